"""Training steps of several processes, one a device: replicas, sharded parameters and tensor parallelism."""

#: Eager mode's way whose losses differ from its own by as much as rounding makes them.
SHAKEN = "shaken"
