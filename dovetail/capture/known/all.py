"""Importing this module fills the tables of known callables."""

from dovetail.capture.known import builtins, library, methods, pure, standins, torchlib

__all__ = ["builtins", "library", "methods", "pure", "standins", "torchlib"]
