"""Importing this module fills the tables with the functions that call functions."""

from dovetail.capture.higher import transforms

__all__ = ["transforms"]
