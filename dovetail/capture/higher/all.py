"""Importing this module fills the tables with the functions that call functions."""

from dovetail.capture.higher import blocks, checkpoint, control, function, gradients, stateless, switches, transforms

__all__ = ["blocks", "checkpoint", "control", "function", "gradients", "stateless", "switches", "transforms"]
