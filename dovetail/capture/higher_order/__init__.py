"""Functions that call functions: branches, loops, transforms and checkpoints as nodes with graphs of their own."""
