"""Dovetail in the place of `torch.compile` and of the names of `torch.compiler` that steer it.

Each function takes PyTorch's own arguments. What is not here means the same for both: `is_compiling` and its like are
asked by the program, and filters of guards are given to `compile`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from dovetail import api
from dovetail.errors import InvalidArgument
from dovetail.interop.torch_arguments import ITS_OWN, choices, chosen
from dovetail.interop.torch_settings import STATE, turned_off, unread
from dovetail.ir import marks
from dovetail.ir.marks import Mark
from dovetail.ir.noted import note

#: What stands under the names before anything is installed.
COMPILE: Callable[..., Any] = vars(torch)["compile"]
COMPILER: Mapping[str, Any] = MappingProxyType(dict(vars(torch.compiler)))
_TAKES = inspect.signature(api.request_of).parameters.keys()
_THEIRS = inspect.signature(COMPILE).parameters


@functools.wraps(COMPILE)
def compile(model: Any = None, **given: Any) -> Any:
    if not STATE.on:  # a library has wrapped it meanwhile, and keeps it afterwards
        return COMPILE(model, **given)
    return api.compile(model, **_arguments(**given))


def _arguments(
    backend: Any = None, mode: str | None = None, options: Mapping[str, Any] | None = None, **others: Any
) -> dict[str, Any]:
    """The arguments of `dovetail.compile`. TypeError for names that PyTorch does not take either."""
    for name in others.keys() - _TAKES:
        if name not in _THEIRS:
            raise TypeError(f"compile() got an unexpected keyword argument {name!r}")
        if others.pop(name) != _THEIRS[name].default:
            note(f"argument {name}", f"dovetail has nothing that the argument {name!r} of torch.compile could choose")
    for name, words in unread():
        note(f"setting {name}", words)
    others["disable"] = others.get("disable", False) or turned_off()
    backend = None if backend is None else chosen(backend)
    named = {"mode": mode, "options": options} if callable(backend) else choices(mode, options)
    return {"backend": backend, **named, **others}


def _checked(**given: Any) -> None:
    """Raise what `compile` with these arguments raises."""
    api.request_of(**_arguments(**given))


marks.put(compile, Mark.COMPILE, (_checked, api.compiled_inside))


def _reset() -> None:
    api.reset()
    if "torch._dynamo" in sys.modules:  # what was compiled before
        COMPILER["reset"]()


def _list_backends(exclude_tags: Sequence[str] = ()) -> list[str]:
    return sorted({*api.list_backends(), *ITS_OWN})


def _set_default_backend(backend: Any) -> None:
    api.set_default_backend("dovetail" if backend is None else chosen(backend))


def _set_stance(stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> Any:
    forced = None if force_backend is None else chosen(force_backend)
    return api.set_stance(stance, skip_guard_eval_unsafe=skip_guard_eval_unsafe, force_backend=forced)


class _Collectives:
    """Do ranks agree on what compiled code is run? They need not: each one runs its own."""

    enabled = False

    def set(self, enabled: bool) -> bool:
        if enabled:
            note("guard collectives", "dovetail compiles on each rank for itself: guards use no collectives")
        before, self.enabled = self.enabled, enabled
        return before


def _load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    try:
        return api.load_cache_artifacts(serialized_artifacts)
    except InvalidArgument as error:
        note("cache artifacts", f"dovetail takes no cache of another compiler: {error}")
        return None


def _nonstrict_trace(traceable_fn: Any) -> Any:
    return traceable_fn  # what is called is traced into the graph without being told


def _cudagraph_mark_warmup_incomplete() -> None:
    """Nothing to do: it asks for another warm-up by PyTorch's own CUDA graphs, which are not used."""


#: The name in `torch.compiler`: what takes its place. Names that a version of PyTorch has not stay away.
INSTEAD: Mapping[str, Any] = MappingProxyType({
    **{
        name: getattr(api, name)
        for name in (
            "allow_in_graph", "assume_constant_result", "cudagraph_mark_step_begin", "disable", "get_default_backend",
            "nested_compile_region", "save_cache_artifacts", "substitute_in_graph", "wrap_numpy",
        )
    },
    "cudagraph_mark_warmup_incomplete": _cudagraph_mark_warmup_incomplete, "nonstrict_trace": _nonstrict_trace,
    "list_backends": _list_backends, "load_cache_artifacts": _load_cache_artifacts, "reset": _reset,
    "set_default_backend": _set_default_backend, "set_enable_guard_collectives": _Collectives().set,
    "set_stance": _set_stance,
})  # fmt: skip

for _function in (
    _cudagraph_mark_warmup_incomplete, _list_backends, _nonstrict_trace, _reset, _set_default_backend, _set_stance,
):  # fmt: skip
    marks.put(_function, Mark.OUTSIDE)
