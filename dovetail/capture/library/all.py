"""Importing this module fills the tables of known callables."""

from dovetail.capture.library.numpy import functions, scalars
from dovetail.capture.library.python import (
    builtins,
    class_creation,
    exceptions,
    functional,
    inspection,
    mappings,
    number_protocols,
    ordering,
    output,
    pure_functions,
    python_halves,
    random,
    sequences,
    sets,
    stdlib,
    string_methods,
    tees,
)
from dovetail.capture.library.torch import constructors, distributions, optimizers, settings, states, torch_function
from dovetail.capture.polyfills import library

__all__ = [
    "builtins",
    "class_creation",
    "constructors",
    "distributions",
    "exceptions",
    "functional",
    "functions",
    "inspection",
    "library",
    "mappings",
    "number_protocols",
    "optimizers",
    "ordering",
    "output",
    "pure_functions",
    "python_halves",
    "random",
    "scalars",
    "sequences",
    "sets",
    "settings",
    "states",
    "stdlib",
    "string_methods",
    "tees",
    "torch_function",
]
