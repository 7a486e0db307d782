"""Dovetail: a just-in-time compiler for PyTorch programs. `dovetail.compile(model)` is where to start."""

from __future__ import annotations

import importlib
import typing

import torch as _torch

from dovetail import supported as _supported
from dovetail.ir.process import paused_collection as _paused_collection

with _paused_collection():  # what is imported stays
    _supported.check(_torch.__version__)  # before the rest, which would fail in a way that tells nobody why
    from dovetail import api as _api
    from dovetail.api import *  # noqa: F403
    from dovetail.config import switched_on as _switched_on

if _switched_on("INSTALL"):
    _api.install()

if typing.TYPE_CHECKING:
    from dovetail.exporting.program import ExportedProgram

__version__ = "0.1.0"

__all__ = ["ExportedProgram"]
__all__ += _api.__all__


def __getattr__(name: str) -> typing.Any:
    # Its modules are loaded where something is exported, or loaded from a file.
    if name != "ExportedProgram":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("dovetail.exporting.program").ExportedProgram
