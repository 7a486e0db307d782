"""Functions of PyTorch that are no operators."""
