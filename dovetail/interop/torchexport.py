"""PyTorch's exporter, for those who ask for its `ExportedProgram`. It is loaded then."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import torch


def dim(name: str, low: int, high: int | None) -> Any:
    """A size with a name and a range."""
    return _exporter().Dim(name, min=low, max=high)


def hint(low: int | None, high: int | None) -> Any:
    """A size whose relations to others the exporter finds out itself."""
    return _exporter().Dim.AUTO(min=low, max=high)


def exported(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any, hints: Any) -> Any:
    """Its ExportedProgram of a module whose code is a graph's. Where it relies on more than `dynamic_shapes` say, it is
    given `hints` instead."""
    made = partial(_exporter().export, module, args, kwargs, strict=False)
    try:
        return made(dynamic_shapes=dynamic_shapes)
    except RuntimeError as error:
        if "Constraints violated" not in str(error):
            raise
        return made(dynamic_shapes=hints)


def _exporter() -> Any:
    return importlib.import_module("torch.export")
