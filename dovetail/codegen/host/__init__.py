"""The host program: plain Python around the kernels."""
