"""Training steps of several processes, one a device: replicas, sharded parameters and tensor parallelism."""
