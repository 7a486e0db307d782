"""Numbers that are not constants of the graph: each kind in a file of its own."""
