"""Reductions: sums, products, extremes, moments, norms.

Half types accumulate in float32, integers in int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.devices import traits
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Expr
from dovetail.ir.reshape import contiguous_strides
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules.reductions import reduction
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows()

Axes = int | Sequence[int] | None


def axes_of(rank: int, dim: Axes) -> list[int]:
    """The dimensions that `dim` names: all of them for None and for an empty list."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return list(range(rank))
    names = [dim] if isinstance(dim, int) else dim
    return sorted({d % rank for d in names}) if rank else []


def count(value: Value, axes: Sequence[int]) -> Dim:
    """How many elements of these dimensions there are."""
    return dims.product(value.sizes[d] for d in axes)


def total(
    emit: Emitter, out: Spec, value: Value, axes: Sequence[int], kind: str, keepdim: bool,
    dtype: torch.dtype | None = None, term: Callable[[Expr], Expr] | None = None,
    finish: Callable[[Expr], Expr] | None = None,
) -> Value:
    """`finish(kind of term(element))`, computed in `dtype` (the result's compute dtype by default)."""
    wide = dtype or opmath(out.dtype)

    def at(indices: Indices) -> Expr:
        element = build.cast(value.at(indices), wide)
        return element if term is None else term(element)

    return emit.reduce(out, value.spec, axes, kind, at, wide, finish, keepdim)


# ---------------------------------------------------------------- sums and products


def _all_of(kind: str) -> Any:
    """The sum or the product over `dim`, or over all."""

    def lowering(emit: Emitter, out: Spec, self: Value, dim: Axes = None, keepdim: bool = False, **kwargs: Any) -> Any:
        if out.dtype is torch.bool:
            return NotImplemented
        return total(emit, out, self, axes_of(self.rank, dim), kind, keepdim)

    return lowering


ROWS("aten::sum", shape=reduction)(_all_of("sum"))
ROWS("aten::prod", shape=reduction)(_all_of("prod"))


@ROWS("aten::mean", shape=reduction)
def mean(emit: Emitter, out: Spec, self: Value, dim: Axes = None, keepdim: bool = False, **kwargs: Any) -> Value:
    """The sum divided by how many there are."""
    axes = axes_of(self.rank, dim)
    number = count(self, axes)
    return total(emit, out, self, axes, "sum", keepdim, finish=lambda x: divided(x, number))


def divided(x: Expr, number: Dim) -> Expr:
    """x / number; NaN for 0/0."""
    return build.div(x, build.index(number, x.dtype))


def _truth(kind: str) -> Any:
    def lowering(emit: Emitter, out: Spec, self: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        return total(emit, out, self, axes_of(self.rank, dim), kind, keepdim, torch.bool)

    return lowering


for _kind in ("any", "all"):
    ROWS(f"aten::{_kind}", f"aten::{_kind}.dim", shape=reduction)(_truth(_kind))
    ROWS(f"aten::{_kind}.dims")(_truth(_kind))  # where no dimensions are none


@ROWS("aten::count_nonzero", shape=reduction)
def count_nonzero(emit: Emitter, out: Spec, self: Value, dim: Axes = None) -> Value:
    """How many elements are not zero."""
    def at(indices: Indices) -> Expr:
        return build.cast(build.truth(self.at(indices)), torch.int64)

    return emit.reduce(out, self.spec, axes_of(self.rank, dim), "sum", at, torch.int64)


# ---------------------------------------------------------------- extremes


def extreme(emit: Emitter, out: Spec, self: Value, axes: Sequence[int], kind: str, keepdim: bool) -> Value:
    """kind: min or max; on bool they are all and any."""
    if self.dtype is torch.bool:
        return total(emit, out, self, axes, "all" if kind == "min" else "any", keepdim, torch.bool)
    return total(emit, out, self, axes, kind, keepdim, opmath(self.dtype))


def place(emit: Emitter, out: Spec, self: Value, axes: Sequence[int], kind: str, keepdim: bool) -> Value:
    """The position of the first extreme; `kind`: argmin or argmax."""
    wide = torch.uint8 if self.dtype is torch.bool else opmath(self.dtype)
    return emit.reduce(
        out, self.spec, axes, kind, lambda i: build.cast(self.at(i), wide), wide, None, keepdim
    )


def _extremes(kind: str) -> tuple[Any, Any, Any]:
    def over_dims(emit: Emitter, out: Spec, self: Value, dim: Axes = (), keepdim: bool = False) -> Value:
        return extreme(emit, out, self, axes_of(self.rank, dim), kind, keepdim)

    def with_place(emit: Emitter, out: tuple[Spec, Spec], self: Value, dim: int, keepdim: bool = False) -> Any:
        axes = axes_of(self.rank, dim)
        values = extreme(emit, out[0], self, axes, kind, keepdim)
        return values, place(emit, out[1], self, axes, "arg" + kind, keepdim)

    def place_only(emit: Emitter, out: Spec, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        return place(emit, out, self, axes_of(self.rank, dim), "arg" + kind, keepdim)

    return over_dims, with_place, place_only


for _kind in ("min", "max"):
    _over_dims, _with_place, _place_only = _extremes(_kind)
    ROWS(f"aten::a{_kind}", f"aten::{_kind}", shape=reduction)(_over_dims)
    ROWS(f"aten::{_kind}.dim", shape=reduction)(_with_place)
    ROWS(f"aten::arg{_kind}", shape=reduction)(_place_only)


@ROWS("aten::aminmax", shape=reduction)
def aminmax(emit: Emitter, out: tuple[Spec, Spec], self: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest."""
    axes = axes_of(self.rank, dim)
    return tuple(extreme(emit, spec, self, axes, kind, keepdim) for spec, kind in zip(out, ("min", "max"), strict=True))


# ---------------------------------------------------------------- moments


def mean_of(emit: Emitter, value: Value, axes: Sequence[int], dtype: torch.dtype) -> Value:
    """The mean over `axes`, which stay as dimensions of size 1."""
    number = count(value, axes)
    out = kept_spec(value, axes, dtype)
    return total(emit, out, value, axes, "sum", True, dtype, finish=lambda x: divided(x, number))


def kept_spec(value: Value, axes: Sequence[int], dtype: torch.dtype) -> Spec:
    """A reduction's result with its dimensions kept, in rows."""
    sizes = tuple(1 if d in axes else size for d, size in enumerate(value.sizes))
    return Spec(dtype, value.device, sizes, contiguous_strides(sizes))


def spread(
    emit: Emitter, out: Spec, value: Value, average: Value, axes: Sequence[int], keepdim: bool,
    finish: Callable[[Expr], Expr],
) -> Value:
    """`finish(sum of squared differences from the mean)`: the second pass (Chan, Golub, LeVeque 1983)."""
    wide = average.dtype

    def at(indices: Indices) -> Expr:
        return build.square(build.sub(build.cast(value.at(indices), wide), average.broadcast(indices)))

    return emit.reduce(out, value.spec, axes, "sum", at, wide, finish, keepdim)


def _deviation(root: bool, with_mean: bool) -> Any:
    def lowering(
        emit: Emitter, out: Any, self: Value, dim: Any = None, unbiased: bool | None = None,
        keepdim: bool = False, *, correction: Any = None,
    ) -> Any:
        if isinstance(dim, bool):  # the overload (self, unbiased)
            dim, unbiased = None, dim
        axes = axes_of(self.rank, dim)
        less = correction if correction is not None else 1 if unbiased is None else int(unbiased)
        number = count(self, axes)
        if not isinstance(number, int) and not isinstance(less, int):
            return NotImplemented
        freedom = max(number - less, 0) if isinstance(number, int) else dims.maximum(number - less, 0)
        # PyTorch's CPU kernel for variances accumulates in float64 whatever the input.
        average = mean_of(emit, self, axes, torch.float64 if traits(self.device).host else opmath(self.dtype))

        def finish(x: Expr) -> Expr:
            variance = build.div(x, const(float(freedom) if isinstance(freedom, (int, float)) else freedom, x.dtype))
            return build.sqrt(variance) if root else variance

        spec = out[0] if with_mean else out
        result = spread(emit, spec, self, average, axes, keepdim, finish)
        if not with_mean:
            return result
        return result, emit.expression(out[1], lambda i: average.broadcast(i if keepdim else unreduced(i, axes)))

    return lowering


def unreduced(indices: Indices, axes: Sequence[int]) -> Indices:
    """With zeros for the dimensions that were reduced."""
    rest = iter(indices)
    return tuple(0 if d in axes else next(rest) for d in range(len(indices) + len(axes)))


ROWS("aten::var", shape=reduction)(_deviation(False, False))
ROWS("aten::std", shape=reduction)(_deviation(True, False))
ROWS("aten::var_mean", shape=reduction)(_deviation(False, True))
ROWS("aten::std_mean", shape=reduction)(_deviation(True, True))


# ---------------------------------------------------------------- norms


def _power_terms(order: float) -> tuple[str, Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """(reduction, term, finish) of the vector norm of an order."""
    table: dict[float, tuple[str, Callable[[Expr], Expr], Callable[[Expr], Expr]]] = {
        math.inf: ("max", build.abs_, lambda x: x),
        -math.inf: ("min", build.abs_, lambda x: x),
        0.0: ("sum", lambda x: build.cast(build.truth(x), x.dtype), lambda x: x),
        1.0: ("sum", build.abs_, lambda x: x),
        2.0: ("sum", build.square, build.sqrt),
    }
    if order in table:
        return table[order]

    def term(x: Expr) -> Expr:
        return build.pow_(build.abs_(x), const(order, x.dtype))

    return "sum", term, lambda x: build.pow_(x, const(1.0 / order, x.dtype))


@ROWS("aten::linalg_vector_norm", shape=reduction, trial=trials.EMPTY)
def vector_norm(
    emit: Emitter, out: Spec, self: Value, ord: Any = 2, dim: Axes = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    """(sum(|x| ** ord)) ** (1 / ord) for any order, infinite ones included."""
    if self.dtype not in build.FLOATS or not isinstance(ord, (int, float)):
        return NotImplemented
    axes = axes_of(self.rank, dim)
    alone = ord != 0 and all(self.sizes[d] == 1 for d in axes)  # no power can overflow, as in PyTorch's kernel
    kind, term, finish = _power_terms(1.0 if alone else float(ord))
    return total(emit, out, self, axes, kind, keepdim, None, term, finish)


@ROWS("aten::norm")
def norm(
    emit: Emitter, out: Spec, self: Value, p: Any = 2, dim: Axes = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    """`vector_norm` of the order `p`; of 2 if that is None."""
    return vector_norm(emit, out, self, 2 if p is None else p, dim, keepdim)
