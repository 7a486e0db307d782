"""Dovetail, eager PyTorch and torch.compile on the same models, side by side in one run."""
