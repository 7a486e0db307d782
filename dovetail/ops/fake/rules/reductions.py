"""Reductions: contiguous results, dtypes as a probe finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ops.fake.dtype_probe import probe_reduction
from dovetail.ops.fake.result_spec import ForOverload, in_one_piece

_NO_IDENTITY = frozenset(("max", "min", "amax", "amin", "argmax", "argmin", "median", "aminmax"))


def _rule(operator: Any) -> Callable[..., Any]:
    parameters = [a.name for a in operator._schema.arguments]
    name = operator._schema.name.removeprefix("aten::")

    def rule(*args: Any, **kwargs: Any) -> Any:
        x = args[0]
        named = {**dict(zip(parameters, args, strict=False)), **kwargs}
        if x.layout is not torch.strided or name in _NO_IDENTITY and 0 in _looked_at(x, named.get("dim")):
            return _empty(name, x, named)
        dtypes = probe_reduction(operator, args, kwargs)
        sizes = reduced(tuple(x.shape), named.get("dim"), bool(named.get("keepdim")))
        results = tuple(in_one_piece(sizes, x, dtype) for dtype in dtypes)
        return results if len(operator._schema.returns) > 1 else results[0]

    return rule


def _looked_at(x: torch.Tensor, dim: Any) -> list:
    """The sizes that must not be 0; a symbolic one is relied on only where it is reduced."""
    rank = x.dim()
    given = range(rank) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim) or range(rank)
    axes = {d % rank if rank else 0 for d in given}
    return [n for d, n in enumerate(x.shape) if d in axes or isinstance(n, int)]


def _empty(name: str, x: torch.Tensor, named: dict[str, Any]) -> Any:
    if name in ("max", "min") and "dim" not in named and x.layout is torch.strided:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )
    dim = named.get("dim")
    if name in ("max", "min") and isinstance(dim, int) and -x.dim() <= dim < x.dim() and x.shape[dim] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {dim % x.dim()} to have non-zero size.")
    return NotImplemented


def reduced(sizes: tuple, dim: Any, keepdim: bool) -> tuple:
    """The sizes left after reducing `dim`: None and an empty list mean every dimension."""
    rank = len(sizes)
    given = (dim,) if isinstance(dim, int) else tuple(dim or range(rank))
    gone = {d % rank if rank else 0 for d in given}
    if keepdim:
        return tuple(1 if d in gone else size for d, size in enumerate(sizes))
    return tuple(size for d, size in enumerate(sizes) if d not in gone)


reduction = ForOverload(_rule)


def running(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Of sums and products so far. PyTorch's own description masks a square of the sizes, of which newer versions ask
    whether one is negative."""
    if x.layout is not torch.strided or not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        return NotImplemented
    whole = not (x.dtype.is_floating_point or x.dtype.is_complex)
    return in_one_piece(tuple(x.shape), x, dtype or (torch.int64 if whole else x.dtype))
