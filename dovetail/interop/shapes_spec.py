"""`dynamic_shapes` of `torch.compile`: which sizes and numbers among the arguments vary.

    ParamsSpec({"x": TensorSpec([ShapeVar("batch"), None]), "n": IntVar()})   →   x.shape[0], n

Known by the names of PyTorch's classes (`torch.fx.experimental.dynamic_spec`), which who makes one has loaded.
Bounds and assumptions need no reading: compiled code checks in each call what it relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from dovetail.errors import InvalidArgument

Named = Iterator[tuple[str, Any]]


def _tensor(path: str, spec: Any) -> Named:
    yield from ((f"{path}.shape[{k}]", size) for k, size in enumerate(spec))


def _object(path: str, spec: Any) -> Named:
    yield from ((f"{path}.{name}", inner) for name, inner in spec._fields.items())


def _dictionary(path: str, spec: Any) -> Named:
    yield from ((f"{path}[{key!r}]", inner) for key, inner in spec._entries.items())


def _sequence(path: str, spec: Any) -> Named:
    yield from ((f"{path}[{k}]", inner) for k, inner in enumerate(spec._entries))


PARTS: Mapping[str, Callable[[str, Any], Named]] = {
    "TensorSpec": _tensor, "ObjectSpec": _object, "DictSpec": _dictionary, "SeqSpec": _sequence,
}  # fmt: skip


def attached(model: Any) -> Any:
    """What `torch.fx.experimental.dynamic_spec.dynamic_spec` has put on a function, or on a module's `forward`."""
    return getattr(model.forward if isinstance(model, torch.nn.Module) else model, "_dynamic_spec", None)


def varying_names(spec: Any, several: tuple[str, str] = ("args", "kwargs")) -> frozenset[str]:
    """The names of what varies. `several`: those of the parameters `*args` and `**kwargs`.

    Raises InvalidArgument for what is no specification.
    """
    if spec is None:
        return frozenset()
    named = getattr(spec, "_params", spec)  # a ShapesSpec's, or a ParamsSpec itself
    if isinstance(named, dict):
        given = named
    elif type(named).__name__ == "ParamsSpec":
        given = {**named._named_args, "*args": named._varargs, "**kwargs": named._varkw}
    elif named is None:
        return frozenset()
    else:
        raise InvalidArgument(f"dynamic_shapes must be a ShapesSpec, a ParamsSpec or a dictionary, not {spec!r}")
    return frozenset(_names(given, several))


def _names(given: Mapping[str, Any], several: tuple[str, str]) -> Iterator[str]:
    parts: list[tuple[str, Any]] = []
    for name, spec in given.items():
        if name == "*args":
            parts += [(f"{several[0]}[{k}]", inner) for k, inner in enumerate(spec or ())]
        elif name == "**kwargs":
            parts += [(f"{several[1]}[{key!r}]", inner) for key, inner in (spec or {}).items()]
        else:
            parts.append((name, spec))
    while parts:
        path, spec = parts.pop()
        if isinstance(spec, torch.SymInt):  # an IntVar, a ShapeVar, or computed from some
            yield path
        elif type(spec).__name__ in PARTS:
            parts += PARTS[type(spec).__name__](path, spec)
        elif spec is not None and type(spec) is not int:
            raise InvalidArgument(f"dynamic_shapes has {spec!r} for {path}, which is no specification")
