"""Kernels shared out among the programs of a GPU."""
