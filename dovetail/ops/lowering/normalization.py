"""Normalizations: layer, group, batch and root-mean-square.

Variance is found in two passes, mean first. Statistics that a caller may want are values of their own and
cost nothing unless read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from dovetail.ir.dims import Dim
from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import images
from dovetail.ops.fake.rules import normalization as shapes
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import shift_by
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.reduction import count, divided, kept_spec, mean_of, spread
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value
from dovetail.ops.lowering.views import view

ROWS = Rows()


def inverse_root(x: Expr, eps: float) -> Expr:
    """1 / sqrt(x + eps)."""
    return build.rsqrt(shift_by(x, eps))


def rstd_of(emit: Emitter, value: Value, average: Value, axes: Sequence[int], eps: float) -> Value:
    """1 / standard deviation (biased) over `axes`, which stay as dimensions of size 1."""
    number = count(value, axes)
    wide = average.dtype
    return spread(
        emit, kept_spec(value, axes, wide), value, average, axes, True, lambda x: inverse_root(divided(x, number), eps)
    )


def scaled(x: Expr, weight: Expr | None, bias: Expr | None) -> Expr:
    """x * weight + bias, as far as they are given."""
    x = x if weight is None else build.mul(x, weight)
    return x if bias is None else build.add(x, bias)


def all_but(value: Value, dim: int) -> list[int]:
    """Every axis but that one."""
    return [d for d in range(value.rank) if d != dim % value.rank]


def optional(value: Value | None, indices: Indices, dtype: torch.dtype) -> Expr | None:
    """The element in `dtype`; None of nothing."""
    return None if value is None else build.cast(value.at(indices), dtype)


def statistic(emit: Emitter, out: Spec, value: Value) -> Value:
    """A computed statistic in the shape and dtype in which eager returns it."""
    seen = view(emit, replace(out, dtype=value.dtype), value)
    return seen if out.dtype is value.dtype else emit.expression(out, seen.at)


@ROWS("aten::native_layer_norm", takes_sizes=True, shape=shapes.layer_norm, trial=trials.LAYER_NORM)
def layer_norm(
    emit: Emitter, out: tuple[Spec, ...], self: Value, shape: Sequence[Dim], weight: Value | None, bias: Value | None,
    eps: float,
) -> Any:
    """Ba et al., arXiv:1607.06450: over the last dimensions."""
    if out[0].empty or not shape:  # which PyTorch refuses
        return NotImplemented
    wide = opmath(self.dtype)
    first = self.rank - len(shape)
    axes = list(range(first, self.rank))
    average = mean_of(emit, self, axes, wide)
    rstd = rstd_of(emit, self, average, axes, eps)

    def at(indices: Indices) -> Expr:
        centred = build.sub(build.cast(self.at(indices), wide), average.broadcast(indices))
        normal = build.mul(centred, rstd.broadcast(indices))
        inner = indices[first:]
        return scaled(normal, optional(weight, inner, wide), optional(bias, inner, wide))

    return emit.pointwise(out[0], at), statistic(emit, out[1], average), statistic(emit, out[2], rstd)


@ROWS("aten::_fused_rms_norm")
def rms_norm(
    emit: Emitter, out: tuple[Spec, ...], self: Value, shape: Sequence[Dim], weight: Value | None, eps: float | None
) -> Any:
    """Zhang and Sennrich, arXiv:1910.07467."""
    if out[0].empty:
        return NotImplemented
    wide = opmath(self.dtype)
    first = self.rank - len(shape)
    axes = list(range(first, self.rank))
    number = count(self, axes)
    small = torch.finfo(wide).eps if eps is None else eps
    rstd = emit.reduce(
        kept_spec(self, axes, wide), self.spec, axes, "sum", lambda i: build.square(build.cast(self.at(i), wide)), wide,
        lambda x: inverse_root(divided(x, number), small), True,
    )

    def at(indices: Indices) -> Expr:
        normal = build.mul(build.cast(self.at(indices), wide), rstd.broadcast(indices))
        return scaled(normal, optional(weight, indices[first:], wide), None)

    return emit.pointwise(out[0], at), statistic(emit, out[1], rstd)


@ROWS("aten::_weight_norm_interface")
def weight_norm(emit: Emitter, out: tuple[Spec, ...], v: Value, g: Value, dim: int = 0) -> Any:
    """Salimans and Kingma, arXiv:1602.07868: every slice along `dim` gets the length that g says."""
    if v.spec.empty:
        return NotImplemented
    wide = opmath(v.dtype)
    length = length_of(emit, v, dim, wide)

    def at(indices: Indices) -> Expr:
        scale = build.div(build.cast(g.broadcast(indices), wide), length.broadcast(indices))
        return build.mul(build.cast(v.at(indices), wide), scale)

    return emit.pointwise(out[0], at), statistic(emit, out[1], length)


def length_of(emit: Emitter, v: Value, dim: int, wide: torch.dtype) -> Value:
    """Euclidean, of each slice along `dim`."""
    axes = all_but(v, dim)
    square = lambda i: build.square(build.cast(v.at(i), wide))
    return emit.reduce(kept_spec(v, axes, wide), v.spec, axes, "sum", square, wide, build.sqrt, True)


@ROWS("aten::native_group_norm", takes_sizes=True, shape=images.group_norm, trial=trials.GROUP_NORM)
def group_norm(
    emit: Emitter, out: tuple[Spec, ...], self: Value, weight: Value | None, bias: Value | None, N: Dim, C: Dim,
    HxW: Dim, group: int, eps: float,
) -> Any:
    """Wu and He, arXiv:1803.08494: over the channels of a group and all positions."""
    if out[0].empty:
        return NotImplemented
    wide = opmath(self.dtype)
    sizes = (self.sizes[0], group, self.sizes[1] // group, *self.sizes[2:])
    stride = self.strides[1]
    strides = (self.strides[0], stride * sizes[2], stride, *self.strides[2:])
    channels = sizes[2]
    grouped = self.remapped(
        sizes, strides, lambda i: (i[0], i[1] * channels + i[2], *i[3:]), None
    )
    axes = list(range(2, len(sizes)))
    average = mean_of(emit, grouped, axes, wide)
    rstd = rstd_of(emit, grouped, average, axes, eps)

    def at(indices: Indices) -> Expr:
        row = (indices[0], indices[1] // channels, *(0 for _ in axes))
        normal = build.mul(build.sub(build.cast(self.at(indices), wide), average.at(row)), rstd.at(row))
        return scaled(normal, optional(weight, (indices[1],), wide), optional(bias, (indices[1],), wide))

    return emit.pointwise(out[0], at), statistic(emit, out[1], average), statistic(emit, out[2], rstd)


# ---------------------------------------------------------------- batch normalization


def by_channel(
    emit: Emitter, out: Spec, self: Value, weight: Value | None, bias: Value | None, mean: Value, rstd: Value
) -> Value:
    """(x - mean) * rstd * weight + bias as x * scale + shift, the two computed once for each channel."""
    wide = opmath(self.dtype)
    channels = Spec(wide, out.device, (self.sizes[1],), (1,))

    def scale_at(c: Indices) -> Expr:
        return scaled(build.cast(rstd.at(c), wide), optional(weight, c, wide), None)

    scale = emit.pointwise(channels, scale_at)

    def shift_at(c: Indices) -> Expr:
        back = build.mul(build.cast(mean.at(c), wide), scale.at(c))
        return build.neg(back) if bias is None else build.sub(build.cast(bias.at(c), wide), back)

    shift = emit.pointwise(channels, shift_at)

    def at(indices: Indices) -> Expr:
        c = (indices[1],)
        return build.add(build.mul(build.cast(self.at(indices), wide), scale.at(c)), shift.at(c))

    return emit.pointwise(out, at)


def with_running(
    emit: Emitter, out: Spec, self: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, eps: float
) -> Value:
    """(x - mean) / sqrt(var + eps) * weight + bias, with given statistics."""
    wide = opmath(self.dtype)
    rstd = var.with_load(wide, lambda c, mask: inverse_root(build.cast(var.at(c), wide), eps))
    return by_channel(emit, out, self, weight, bias, mean, rstd)


def unused_statistics(
    emit: Emitter, specs: Sequence[Spec], mean: Value, var: Value, eps: float
) -> tuple[Value, Value]:
    """Results that eager leaves empty when it does not train, or, on a GPU, makes of the running statistics."""
    if specs[0].empty:
        return emit.constant(specs[0], 0), emit.constant(specs[1], 0)
    rstd = lambda c: inverse_root(build.cast(var.at(c), opmath(var.dtype)), eps)
    return emit.expression(specs[0], mean.at), emit.expression(specs[1], rstd)


@ROWS("aten::_native_batch_norm_legit_no_training", shape=images.batch_norm_eval)
def batch_norm_eval(
    emit: Emitter, out: tuple[Spec, ...], self: Value, weight: Value | None, bias: Value | None, mean: Value,
    var: Value, momentum: float, eps: float,
) -> Any:
    """With running statistics, which stay."""
    result = with_running(emit, out[0], self, weight, bias, mean, var, eps)
    return result, *unused_statistics(emit, out[1:], mean, var, eps)


@ROWS("aten::cudnn_batch_norm", shape=images.batch_norm_cudnn)
@ROWS("aten::native_batch_norm", "aten::_native_batch_norm_legit", shape=images.batch_norm, trial=trials.BATCH_NORM)
def batch_norm(
    emit: Emitter, out: tuple[Spec, ...], self: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    var: Value | None, training: bool, momentum: float, eps: float,
) -> Any:
    """Training with running statistics would update them in place: that stays a library call."""
    if out[0].empty:
        return NotImplemented
    if not training:
        if mean is None or var is None:
            return NotImplemented
        return batch_norm_eval(emit, out[:3], self, weight, bias, mean, var, momentum, eps)
    if mean is not None:
        return NotImplemented
    return batch_statistics(emit, out, self, weight, bias, eps)[:3]


def batch_statistics(
    emit: Emitter, out: tuple[Spec, ...], self: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """(result, mean, rstd, sum of squared differences), the statistics one for each channel."""
    wide = opmath(self.dtype)
    axes = all_but(self, 1)
    number = count(self, axes)
    average = mean_of(emit, self, axes, wide)
    squares = spread(emit, kept_spec(self, axes, wide), self, average, axes, True, lambda x: x)
    channels = Spec(wide, self.device, (self.sizes[1],), (1,))
    mean = view(emit, channels, average)
    total = view(emit, channels, squares)
    rstd = emit.pointwise(channels, lambda c: inverse_root(divided(total.at(c), number), eps))
    result = by_channel(emit, out[0], self, weight, bias, mean, rstd)
    return result, statistic(emit, out[1], mean), statistic(emit, out[2], rstd), total


@ROWS("aten::_native_batch_norm_legit.no_stats", shape=images.batch_norm_alone, trial=trials.BATCH_NORM)
def batch_norm_no_stats(
    emit: Emitter, out: tuple[Spec, ...], self: Value, weight: Value | None, bias: Value | None, training: bool,
    momentum: float, eps: float,
) -> Any:
    """With the batch's own statistics."""
    return batch_norm(emit, out, self, weight, bias, None, None, training, momentum, eps)


@ROWS("aten::_native_batch_norm_legit_functional", shape=images.batch_norm_functional)
def batch_norm_functional(
    emit: Emitter, out: tuple[Spec, ...], self: Value, weight: Value | None, bias: Value | None, mean: Value,
    var: Value, training: bool, momentum: float, eps: float,
) -> Any:
    """The fourth and fifth results are the running statistics after the call (variance unbiased)."""
    if out[0].empty:
        return NotImplemented
    if not training:
        found = batch_norm_eval(emit, out[:3], self, weight, bias, mean, var, momentum, eps)
        return *found, mean.as_copy(out[3].strides), var.as_copy(out[4].strides)
    number = count(self, all_but(self, 1))
    result, average, rstd, squares = batch_statistics(emit, out, self, weight, bias, eps)

    def updated(old: Value, spec: Spec, new: Any) -> Value:
        def at(c: Indices) -> Expr:
            fresh = build.cast(new(c), opmath(spec.dtype))
            kept = build.scale_by(build.cast(old.at(c), fresh.dtype), 1 - momentum)
            return build.add(build.scale_by(fresh, momentum), kept)

        return emit.pointwise(spec, at)

    new_mean = updated(mean, out[3], average.at)
    new_var = updated(var, out[4], lambda c: divided(squares.at(c), number - 1))
    return result, average, rstd, new_mean, new_var
