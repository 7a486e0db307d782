"""Modes, options and backends as `torch.compile` is given them, and what `dovetail.compile` takes for each.

Most of PyTorch's options choose among its own kernels. What means nothing here is told once and never refused, so that
programs and libraries run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dovetail.errors import InvalidArgument
from dovetail.interop.backends import BACKENDS
from dovetail.ir.noted import note
from dovetail.options import GUARD_FILTER, MODES, USER_OPTIONS

#: Backends of PyTorch's that stand for its own compiler, and so for Dovetail.
ITS_OWN = ("inductor", "cudagraphs")
#: Its modes that Dovetail does not know by name.
MORE_MODES = ("lite",)
#: Its options, and which ones of Dovetail's say the same.
SAME: Mapping[str, str] = {"triton.cudagraphs": "cudagraphs", "fallback_random": "fallback_random"}


def choices(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments `mode` and `options` of `dovetail.compile`; raises InvalidArgument where PyTorch does too."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidArgument(f"options must be a dictionary, not {type(options).__name__}")
    if mode in MORE_MODES:
        note(f"mode {mode}", f"dovetail has no mode {mode!r}, and takes the default one")
        mode = None
    if mode is not None and mode not in MODES:
        raise InvalidArgument(f"unknown mode {mode!r}; the modes are {', '.join(map(repr, (*MODES, *MORE_MODES)))}")
    return {"mode": mode, "options": None if options is None else _known(options)}


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    named = {SAME.get(name, name).replace("-", "_"): value for name, value in options.items()}
    for name in named.keys() - USER_OPTIONS.keys() - {GUARD_FILTER}:
        note(f"option {name}", f"dovetail has nothing that the option {name!r} of torch.compile could choose")
    return {name: value for name, value in named.items() if name in USER_OPTIONS or name == GUARD_FILTER}


def chosen(backend: Any) -> str | Callable[..., Any]:
    """The backend for one that `torch.compile` is given: Dovetail itself where that is PyTorch's own compiler."""
    if backend in ITS_OWN:
        if backend != ITS_OWN[0]:
            note(f"backend {backend}", f"dovetail takes the place of the backend {backend!r}")
        return "dovetail"
    return BACKENDS.resolve(backend)
