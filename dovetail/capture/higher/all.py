"""Importing this module fills the tables with the functions that call functions."""

from dovetail.capture.higher import checkpoint, control, function, stateless, transforms

__all__ = ["checkpoint", "control", "function", "stateless", "transforms"]
