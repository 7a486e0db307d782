"""Operators on lists of tensors, as one operator for each tensor.

    aten._foreach_add_.List([a, b], [c, d], alpha=2)   ->  aten.add_(a, c, alpha=2); aten.add_(b, d, alpha=2)

That is what PyTorch's own kernels for lists compute; fusing is the scheduler's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from dovetail.ops.calls.schema import bound

aten = torch.ops.aten

_PREFIX = "aten::_foreach_"
_SCALED = ("addcdiv", "addcmul")


def takes_list(func: Any) -> bool:
    """Is it an operator on lists that `apart` takes apart?"""
    return func._schema.name.startswith(_PREFIX) and not any(a.is_out for a in func._schema.arguments)


def apart(func: Any, args: tuple, kwargs: dict[str, Any]) -> list | None:
    """Run the operator on each tensor; the results, None of an operator that writes in place."""
    call = _single(func._schema.name.removeprefix(_PREFIX))
    results = [call(*each, **named) for each, named in _rows(func, args, kwargs)]
    if func._schema.returns:
        return results
    for tensor in args[0]:  # PyTorch counts these writes one by one
        torch.autograd.graph.increment_version(tensor)
    return None


def _rows(func: Any, args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[list, dict[str, Any]]]:
    """The arguments of each call: an element of what is a list, and all of what is none."""
    given = bound(func, args, kwargs)
    scaled = any(name in func._schema.name for name in _SCALED)
    arguments = [a for a in func._schema.arguments if a.name in given]
    if scaled and isinstance(given.get("scalars"), torch.Tensor):
        given["scalars"] = given["scalars"].unbind()
    lists = [a.name for a in arguments if isinstance(given[a.name], (list, tuple))]
    lengths = {len(given[name]) for name in lists}
    if len(lengths) != 1:
        raise RuntimeError(
            "Tensor lists must have the same number of tensors, got "
            + " and ".join(str(len(given[name])) for name in lists)
        )
    for k in range(lengths.pop()):
        each = {a.name: given[a.name][k] if a.name in lists else given[a.name] for a in arguments}
        named = {a.name: each.pop(a.name) for a in arguments if a.kwarg_only}
        if scaled and {"scalars", "value"} & each.keys():
            named["value"] = each.pop("scalars" if "scalars" in each else "value")
        yield list(each.values()), named


@cache
def _single(name: str) -> Callable[..., Any]:
    """The operator on one tensor."""
    return _SINGLE.get(name) or getattr(aten, name)


def _scaled(name: str) -> Callable[..., Any]:
    """`addcdiv` and `addcmul` take a number; one that a tensor holds is multiplied by."""
    operator, join = getattr(aten, name), aten.div if "div" in name else aten.mul

    def call(tensor: torch.Tensor, first: torch.Tensor, second: torch.Tensor, value: Any = 1) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            return operator(tensor, first, second, value=value)
        add = aten.add_ if name.endswith("_") else aten.add
        return add(tensor, join(aten.mul(first, value), second))

    return call


def _limited(name: str, limit: str) -> Callable[..., Any]:
    """`maximum` of a tensor and a number."""
    both, one = getattr(aten, name), getattr(aten, limit)
    return lambda tensor, other: both(tensor, other) if isinstance(other, torch.Tensor) else one(tensor, other)


_SINGLE: dict[str, Callable[..., Any]] = {
    **{f"{name}{end}": _scaled(f"{name}{end}") for name in _SCALED for end in ("", "_")},
    "norm": lambda tensor, order=2, dtype=None: aten.linalg_vector_norm(tensor, order, dtype=dtype),
    "maximum": _limited("maximum", "clamp_min"), "minimum": _limited("minimum", "clamp_max"),
    "maximum_": lambda tensor, other: aten.copy_(tensor, _single("maximum")(tensor, other)),
    "minimum_": lambda tensor, other: aten.copy_(tensor, _single("minimum")(tensor, other)),
}  # fmt: skip
