"""Importing this module fills the tables of known callables."""

from dovetail.capture.known import builtins, library, mappings, numbers, pure, sequences, sets, standins, torchlib

__all__ = ["builtins", "library", "mappings", "numbers", "pure", "sequences", "sets", "standins", "torchlib"]
