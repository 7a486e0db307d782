"""Importing this module fills the tables of known callables."""

from dovetail.capture.known import (
    builtins,
    exceptions,
    functional,
    inspection,
    library,
    logs,
    made,
    mappings,
    numbers,
    pure,
    purelib,
    sequences,
    sets,
    standins,
    text,
    torchlib,
)

__all__ = [
    "builtins",
    "exceptions",
    "functional",
    "inspection",
    "library",
    "logs",
    "made",
    "mappings",
    "numbers",
    "pure",
    "purelib",
    "sequences",
    "sets",
    "standins",
    "text",
    "torchlib",
]
