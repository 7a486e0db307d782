"""Functions that call functions: branches, loops, transforms and checkpoints captured as nodes with graphs of their own."""
