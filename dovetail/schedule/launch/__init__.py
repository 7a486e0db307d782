"""Kernels that are launched together."""
