"""Derivatives of normalizations.

With n = (x - mean) * rstd and g the gradient that reaches n, the input's is
rstd * (g - mean(g) - n * mean(g * n)), the means over what was normalized together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir.dims import Dim
from dovetail.ir.loops import Expr
from dovetail.ops.fake.rules import images
from dovetail.ops.fake.rules import normalization as shapes
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.normalization import all_but, inverse_root, optional, statistic
from dovetail.ops.lowering.reduction import count, divided, kept_spec
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value
from dovetail.ops.lowering.views import view

ROWS = Rows()
#: Of a gradient of so few values normalized together hardly anything is left (of two, nothing): in `float32` it would
#: be the rounding of what it is taken from.
FEW = 16
At = Callable[[Indices], Expr]


def _mean(emit: Emitter, like: Value, axes: Sequence[int], wide: torch.dtype, at: At) -> Value:
    number = count(like, axes)
    return emit.reduce(
        kept_spec(like, axes, wide), like.spec, axes, "sum", at, wide, lambda x: divided(x, number), True
    )


@ROWS("aten::native_layer_norm_backward", takes_sizes=True, shape=shapes.layer_norm_backward)
def layer_norm_backward(
    emit: Emitter, out: tuple, grad_out: Value, input: Value, shape: Sequence[Dim], mean: Value, rstd: Value,
    weight: Value | None, bias: Value | None, mask: Sequence[bool],
) -> Any:
    """Over the last dimensions; weight and bias add up over the rows."""
    return _over_last(emit, out, grad_out, input, len(shape), mean, rstd, weight, mask)


@ROWS("aten::_fused_rms_norm_backward", shape=shapes.rms_norm_backward)
def rms_norm_backward(
    emit: Emitter, out: tuple, grad_out: Value, input: Value, shape: Sequence[Dim], rstd: Value,
    weight: Value | None, mask: Sequence[bool],
) -> Any:
    """The same without a mean to subtract."""
    return _over_last(emit, out, grad_out, input, len(shape), None, rstd, weight, mask)


def _over_last(
    emit: Emitter, out: tuple, grad_out: Value, input: Value, count: int, mean: Value | None, rstd: Value,
    weight: Value | None, mask: Sequence[bool],
) -> Any:
    """Gradients of the input, the weight and (where there is one) the bias of a norm over the last dimensions."""
    if input.spec.empty:
        return NotImplemented
    wide = opmath(input.dtype)
    first = input.rank - count
    inner, outer = list(range(first, input.rank)), list(range(first))

    def incoming(i: Indices) -> Expr:
        return build.cast(grad_out.at(i), wide)

    def normal(i: Indices) -> Expr:
        x = build.cast(input.at(i), wide)
        centred = x if mean is None else build.sub(x, build.cast(mean.broadcast(i), wide))
        return build.mul(centred, build.cast(rstd.broadcast(i), wide))

    def weighted(i: Indices) -> Expr:
        scale = optional(weight, i[first:], wide)
        return incoming(i) if scale is None else build.mul(incoming(i), scale)

    results: list = [None] * len(mask)
    if mask[0]:
        results[0] = _of_input(emit, out[0], input, inner, wide, weighted, normal, rstd, mean is not None)
    if mask[1]:
        results[1] = emit.reduce(out[1], input.spec, outer, "sum", lambda i: build.mul(incoming(i), normal(i)), wide)
    if len(mask) > 2 and mask[2]:
        results[2] = emit.reduce(out[2], input.spec, outer, "sum", incoming, wide)
    return tuple(results)


def _of_input(
    emit: Emitter, out: Spec, input: Value, axes: Sequence[int], wide: torch.dtype, gradient: At, normal: At,
    rstd: Value, centred: bool,
) -> Value:
    """The input's gradient from that of the normalized values.

    The average comes last: taken from a product, which rounds only together with what is taken from it, it would leave
    a rounding times rstd where a single value is normalized and nothing should be left.
    """
    average = _mean(emit, input, axes, wide, gradient) if centred else None
    product = _mean(emit, input, axes, wide, lambda i: build.mul(gradient(i), normal(i)))

    def at(i: Indices) -> Expr:
        left = build.sub(gradient(i), build.mul(normal(i), product.broadcast(i)))
        left = left if average is None else build.sub(left, average.broadcast(i))
        return build.mul(left, build.cast(rstd.broadcast(i), wide))

    return emit.pointwise(out, at)


@ROWS("aten::_weight_norm_interface_backward")
def weight_norm_backward(
    emit: Emitter, out: tuple, grad_w: Value, v: Value, g: Value, norms: Value, dim: int
) -> Any:
    """What points along v makes g longer, and the rest turns v."""
    if v.spec.empty:
        return NotImplemented
    wide = opmath(v.dtype)
    axes = all_but(v, dim)

    def incoming(i: Indices) -> Expr:
        return build.cast(grad_w.at(i), wide)

    def length(i: Indices) -> Expr:
        return build.cast(norms.broadcast(i), wide)

    onto = lambda i: build.mul(incoming(i), build.cast(v.at(i), wide))
    along = emit.reduce(kept_spec(v, axes, wide), v.spec, axes, "sum", onto, wide, keepdim=True)

    def of_v(i: Indices) -> Expr:
        n = length(i)
        part = build.div(build.mul(build.cast(v.at(i), wide), along.broadcast(i)), build.mul(n, n))
        return build.mul(build.div(build.cast(g.broadcast(i), wide), n), build.sub(incoming(i), part))

    return emit.pointwise(out[0], of_v), emit.pointwise(out[1], lambda i: build.div(along.broadcast(i), length(i)))


@ROWS("aten::native_batch_norm_backward", shape=images.batch_norm_backward)
def batch_norm_backward(
    emit: Emitter, out: tuple, grad_out: Value, input: Value, weight: Value | None,
    running_mean: Value | None, running_var: Value | None, save_mean: Value | None, save_invstd: Value | None,
    train: bool, eps: float, mask: Sequence[bool],
) -> Any:
    """Sums over a channel first, then one pass with three numbers a channel: dx = a * dy + b * x + c."""
    mean, spread = (save_mean, save_invstd) if train else (running_mean, running_var)
    if input.spec.empty or mean is None or spread is None:
        return NotImplemented
    axes = all_but(input, 1)
    number = count(input, axes)
    wide = torch.float64 if isinstance(number, int) and number <= FEW else opmath(input.dtype)
    channels = Spec(wide, input.device, (input.sizes[1],), (1,))

    def incoming(i: Indices) -> Expr:
        return build.cast(grad_out.at(i), wide)

    def centre(c: Indices) -> Expr:
        return build.cast(mean.at(c), wide)

    def rstd(c: Indices) -> Expr:
        value = build.cast(spread.at(c), wide)
        return value if train else inverse_root(value, eps)

    def product(i: Indices) -> Expr:
        return build.mul(incoming(i), build.sub(build.cast(input.at(i), wide), centre((i[1],))))

    kept = kept_spec(input, axes, wide)
    total = view(emit, channels, emit.reduce(kept, input.spec, axes, "sum", incoming, wide, None, True))
    dot = view(emit, channels, emit.reduce(kept, input.spec, axes, "sum", product, wide, None, True))
    results: list = [None, None, None]
    if mask[0]:
        results[0] = _by_channel(emit, out[0], input, incoming, weight, centre, rstd, total, dot, number, train)
    if mask[1]:
        results[1] = emit.pointwise(out[1], lambda c: build.mul(dot.at(c), rstd(c)))
    if mask[2]:
        results[2] = statistic(emit, out[2], total)
    return tuple(results)


def _by_channel(
    emit: Emitter, out: Spec, input: Value, incoming: At, weight: Value | None, centre: At, rstd: At, total: Value,
    dot: Value, number: Dim, train: bool,
) -> Value:
    wide = total.dtype
    channels = Spec(wide, out.device, (input.sizes[1],), (1,))

    def scale_at(c: Indices) -> Expr:
        scale = optional(weight, c, wide)
        return rstd(c) if scale is None else build.mul(rstd(c), scale)

    scale = emit.pointwise(channels, scale_at)
    if not train:
        return emit.pointwise(out, lambda i: build.mul(incoming(i), scale.at((i[1],))))
    slope = emit.pointwise(
        channels, lambda c: divided(build.mul(build.mul(dot.at(c), rstd(c)), rstd(c)), number)
    )
    average = emit.pointwise(channels, lambda c: divided(total.at(c), number))

    def at(i: Indices) -> Expr:
        c = (i[1],)
        centred = build.sub(build.cast(input.at(i), wide), centre(c))
        left = build.sub(build.sub(incoming(i), build.mul(centred, slope.at(c))), average.at(c))
        return build.mul(left, scale.at(c))

    return emit.pointwise(out, at)
