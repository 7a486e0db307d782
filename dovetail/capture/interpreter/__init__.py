"""Frames of the symbolic interpreter, and what happens to them."""
