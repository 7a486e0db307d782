"""Importing this module fills the tables with the functions that call functions."""

from dovetail.capture.higher import control, transforms

__all__ = ["control", "transforms"]
