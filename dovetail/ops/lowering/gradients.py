"""Derivatives of element-wise operators, losses and softmax, with the formulas of PyTorch's CPU kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from dovetail.ir.dims import Dim
from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import elementwise
from dovetail.ops.fake.rules.images import dropout_backward
from dovetail.ops.lowering import build
from dovetail.ops.lowering.activation import sigmoid
from dovetail.ops.lowering.build import const, scale_by, shift_by, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.movement import cat, diagonal_scatter, select_scatter, slice_scatter
from dovetail.ops.lowering.reduction import axes_of, divided, kept_spec
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value
from dovetail.ops.lowering.views import clamped, replaced

ROWS = Rows()
pointwise = partial(ROWS.pointwise, cheap=False)


def zero(x: Expr) -> Expr:
    """0 of the type of `x`."""
    return const(0, x.dtype)


def one_minus(x: Expr) -> Expr:
    """1 - x."""
    return build.sub(const(1, x.dtype), x)


# ---------------------------------------------------------------- activations


@pointwise("aten::threshold_backward", operands=2, shape=elementwise.threshold_backward)
def threshold_backward(grad: Expr, x: Expr, threshold: float) -> Expr:
    """The gradient above the threshold, 0 up to it."""
    return where(build.le(x, const(threshold, x.dtype)), zero(grad), grad)


@pointwise("aten::gelu_backward", operands=2)
def gelu_backward(grad: Expr, x: Expr, approximate: str = "none") -> Expr:
    """grad * (Phi(x) + x * phi(x)), or the derivative of the form by tanh."""
    square = build.mul(x, x)
    if approximate == "none":
        normal = scale_by(shift_by(build.erf(scale_by(x, math.sqrt(0.5))), 1), 0.5)
        density = scale_by(build.exp(scale_by(square, -0.5)), 1 / math.sqrt(2 * math.pi))
        return build.mul(grad, build.add(normal, build.mul(x, density)))
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    tanh = build.tanh(scale_by(build.add(x, scale_by(build.mul(square, x), kappa)), beta))
    left = scale_by(shift_by(tanh, 1), 0.5)
    slope = build.mul(one_minus(build.mul(tanh, tanh)), scale_by(shift_by(scale_by(square, 3 * kappa), 1), beta))
    return build.mul(grad, build.add(left, build.mul(scale_by(x, 0.5), slope)))


@pointwise("aten::silu_backward", operands=2)
def silu_backward(grad: Expr, x: Expr) -> Expr:
    """grad * s * (1 + x * (1 - s)), with s the sigmoid of x."""
    s = sigmoid(x)
    return build.mul(build.mul(grad, s), shift_by(build.mul(x, one_minus(s)), 1))


@pointwise("aten::sigmoid_backward", operands=2)
def sigmoid_backward(grad: Expr, y: Expr) -> Expr:
    """grad * (1 - y) * y, by the result."""
    return build.mul(build.mul(grad, one_minus(y)), y)


@pointwise("aten::tanh_backward", operands=2)
def tanh_backward(grad: Expr, y: Expr) -> Expr:
    """grad * (1 - y * y), by the result."""
    return build.mul(grad, one_minus(build.mul(y, y)))


@pointwise("aten::hardtanh_backward", operands=2, shape=elementwise.hardtanh_backward)
def hardtanh_backward(grad: Expr, x: Expr, min_val: float, max_val: float) -> Expr:
    """The gradient between the bounds, 0 at them and outside."""
    outside = build.or_(build.le(x, const(min_val, x.dtype)), build.ge(x, const(max_val, x.dtype)))
    return where(outside, zero(grad), grad)


@pointwise("aten::leaky_relu_backward", operands=2, shape=elementwise.leaky_relu_backward)
def leaky_relu_backward(grad: Expr, x: Expr, negative_slope: float, self_is_result: bool) -> Expr:
    """The gradient above 0, slope * gradient below; by the argument or the result, which have one sign."""
    return where(build.gt(x, zero(x)), grad, scale_by(grad, negative_slope))


@ROWS("aten::elu_backward")
def elu_backward(
    emit: Emitter, out: Spec, grad_output: Value, alpha: float, scale: float, input_scale: float, is_result: bool,
    self_or_result: Value,
) -> Value:
    """By the argument, or by the result where `is_result`."""
    wide = opmath(out.dtype)

    def at(indices: Indices) -> Expr:
        grad, x = (build.cast(v.at(indices), wide) for v in (grad_output, self_or_result))
        if is_result:
            slope = scale_by(shift_by(x, alpha * scale), input_scale)
        else:
            slope = scale_by(build.exp(scale_by(x, input_scale)), input_scale * alpha * scale)
        return where(build.le(x, zero(x)), build.mul(grad, slope), scale_by(grad, scale))

    return emit.pointwise(out, at)


@pointwise("aten::softplus_backward", operands=2)
def softplus_backward(grad: Expr, x: Expr, beta: float, threshold: float) -> Expr:
    """grad * z / (1 + z) with z = exp(beta * x); the gradient above the threshold."""
    scaled = scale_by(x, beta)
    z = build.exp(scaled)
    curve = build.div(build.mul(grad, z), shift_by(z, 1))
    return where(build.gt(scaled, const(threshold, x.dtype)), grad, curve)


@pointwise("aten::mish_backward", operands=2)
def mish_backward(grad: Expr, x: Expr) -> Expr:
    """grad * (t + x * s * (1 - t * t)), with t = tanh(softplus(x)) and s the sigmoid of x."""
    tanh = build.tanh(build.log1p(build.exp(x)))
    slope = build.mul(build.mul(x, sigmoid(x)), one_minus(build.mul(tanh, tanh)))
    return build.mul(grad, build.add(tanh, slope))


@pointwise("aten::hardsigmoid_backward", operands=2)
def hardsigmoid_backward(grad: Expr, x: Expr) -> Expr:
    """grad / 6 between -3 and 3, else 0."""
    inside = build.and_(build.gt(x, const(-3, x.dtype)), build.lt(x, const(3, x.dtype)))
    return where(inside, build.div(grad, const(6, x.dtype)), zero(grad))


@pointwise("aten::hardswish_backward", operands=2)
def hardswish_backward(grad: Expr, x: Expr) -> Expr:
    """0 below -3, the gradient above 3, grad * (x / 3 + 1/2) between."""
    middle = build.mul(grad, shift_by(build.div(x, const(3, x.dtype)), 0.5))
    right = where(build.lt(x, const(3, x.dtype)), middle, grad)
    return where(build.le(x, const(-3, x.dtype)), zero(grad), right)


@pointwise("aten::hardshrink_backward", "aten::softshrink_backward", operands=2, takes_numbers=True)
def shrink_backward(grad: Expr, x: Expr, lambd: float) -> Expr:
    """0 within [-lambd, lambd], the gradient outside."""
    high = const(lambd, x.dtype)
    return where(build.and_(build.ge(x, build.neg(high)), build.le(x, high)), zero(grad), grad)


@pointwise("aten::log_sigmoid_backward", operands=2)
def log_sigmoid_backward(grad: Expr, x: Expr, buffer: Any = None) -> Expr:
    """grad * sigmoid(-x), from exp(-|x|)."""
    z = build.exp(build.neg(build.abs_(x)))
    share = build.div(z, shift_by(z, 1))
    return build.mul(grad, where(build.lt(x, zero(x)), one_minus(share), share))


@ROWS("aten::native_dropout_backward", shape=dropout_backward)
def native_dropout_backward(emit: Emitter, out: Spec, grad_output: Value, mask: Value, scale: float) -> Value:
    """grad * mask * scale."""
    wide = opmath(out.dtype)

    def at(indices: Indices) -> Expr:
        kept = build.cast(mask.at(indices), wide)
        return scale_by(build.mul(build.cast(grad_output.at(indices), wide), kept), scale)

    return emit.pointwise(out, at)


# ---------------------------------------------------------------- losses

NONE, MEAN, SUM = 0, 1, 2


def averaged(x: Expr, out: Spec, reduction: int) -> Expr:
    """The gradient of a mean over all elements is that of a sum divided by their number."""
    number: Dim = 1
    for size in out.sizes:
        number = number * size
    return divided(x, number) if reduction == MEAN else x


Formula = Callable[..., Expr]


def _loss(*names: str, **known: Any) -> Callable[[Formula], Formula]:
    """`formula(grad, input, target, *rest)`; the incoming gradient is one number unless nothing was reduced."""

    def register(formula: Formula) -> Formula:
        def lowering(
            emit: Emitter, out: Spec, grad: Value, self: Value, target: Value, reduction: int = MEAN, *rest: Any
        ) -> Value:
            wide = opmath(out.dtype)

            def at(indices: Indices) -> Expr:
                g, x, t = (build.cast(v.broadcast(indices), wide) for v in (grad, self, target))
                return averaged(formula(g, x, t, *rest), out, reduction)

            return emit.pointwise(out, at)

        ROWS(*names, **known)(lowering)
        return formula

    return register


@_loss("aten::mse_loss_backward")
def mse_loss_backward(grad: Expr, x: Expr, target: Expr) -> Expr:
    """2 * grad * (x - target)."""
    return build.mul(scale_by(build.sub(x, target), 2), grad)


@_loss("aten::smooth_l1_loss_backward", shape=elementwise.in_rows(1))
def smooth_l1_loss_backward(grad: Expr, x: Expr, target: Expr, beta: float) -> Expr:
    """grad * (x - target) / beta, within [-grad, grad]."""
    difference = build.sub(x, target)
    middle = grad if beta == 0 else build.div(build.mul(difference, grad), const(beta, x.dtype))
    return _clipped(grad, difference, beta, middle, 1)


@_loss("aten::huber_loss_backward", shape=elementwise.in_rows(1))
def huber_loss_backward(grad: Expr, x: Expr, target: Expr, delta: float) -> Expr:
    """grad * (x - target), within [-delta * grad, delta * grad]."""
    difference = build.sub(x, target)
    return _clipped(grad, difference, delta, build.mul(difference, grad), delta)


def _clipped(grad: Expr, difference: Expr, bound: float, middle: Expr, slope: float) -> Expr:
    above = where(build.ge(difference, const(bound, grad.dtype)), scale_by(grad, slope), middle)
    return where(build.le(difference, const(-bound, grad.dtype)), scale_by(grad, -slope), above)


@ROWS("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(
    emit: Emitter, out: Spec, grad: Value, self: Value, target: Value, weight: Value | None, reduction: int,
    ignore_index: int, total_weight: Value,
) -> Any:
    """Nothing except at each row's target, and nothing there if the target is ignored."""
    axis = 0 if self.rank == 1 else 1
    wide = opmath(out.dtype)

    def at(indices: Indices) -> Expr:
        others = indices[1:] if self.rank == 1 else (indices[0], *indices[2:])
        place = build.cast(target.broadcast(others), torch.int64)
        g = build.cast(grad.broadcast(others if reduction == NONE else ()), wide)
        g = build.neg(g if weight is None else build.mul(g, build.cast(weight.at((indices[axis],)), wide)))
        if reduction == MEAN:
            g = build.div(g, build.cast(total_weight.broadcast(()), wide))
        here = build.eq(place, build.index(indices[axis]))
        return where(build.and_(here, build.ne(place, const(ignore_index, torch.int64))), g, zero(g))

    return emit.pointwise(out, at)


# ---------------------------------------------------------------- softmax


def _by_rows(term: Callable[[Expr, Expr], Expr], formula: Callable[[Expr, Expr, Expr], Expr]) -> Any:
    """`formula(grad, y, sum(term(grad, y)))`, by the result y, the sum along one dimension."""

    def lowering(emit: Emitter, out: Spec, grad: Value, output: Value, dim: int, input_dtype: torch.dtype) -> Any:
        if out.empty:
            return NotImplemented
        wide, axes = opmath(torch.promote_types(grad.dtype, out.dtype)), axes_of(grad.rank, dim)

        def both(indices: Indices) -> tuple[Expr, Expr]:
            return build.cast(grad.at(indices), wide), build.cast(output.at(indices), wide)

        kept = kept_spec(grad, axes, wide)
        total = emit.reduce(kept, grad.spec, axes, "sum", lambda i: term(*both(i)), wide, None, True)
        return emit.pointwise(out, lambda i: formula(*both(i), total.broadcast(i)))

    return lowering


ROWS("aten::_softmax_backward_data", trial=trials.BACKWARD)(
    _by_rows(build.mul, lambda grad, y, total: build.mul(build.sub(grad, total), y))
)
ROWS("aten::_log_softmax_backward_data", shape=elementwise.in_rows(0), trial=trials.BACKWARD)(
    _by_rows(lambda grad, y: grad, lambda grad, y, total: build.sub(grad, build.mul(build.exp(y), total)))
)


# ---------------------------------------------------------------- parts of a tensor


@ROWS("aten::slice_backward", takes_sizes=True)
def slice_backward(
    emit: Emitter, out: Spec, grad: Value, sizes: Any, dim: int, start: int, end: int, step: int
) -> Value:
    """Zeros around a slice without gaps are pieces of their own, so that what computes it may store it in place."""
    axis = dim % len(out.sizes)
    size, length = out.sizes[axis], grad.sizes[axis]
    if step != 1 or grad.spec.empty:
        return slice_scatter(emit, out, emit.constant(out, 0), grad, dim, start, end, step)
    first = clamped(start, size, 0)

    def zeros(count: Dim) -> Value:
        return emit.constant(replace(out, sizes=replaced(out.sizes, axis, (count,))), 0)

    return cat(emit, out, [zeros(first), grad, zeros(size - first - length)], axis)


@ROWS("aten::select_backward", takes_sizes=True)
def select_backward(emit: Emitter, out: Spec, grad: Value, sizes: Any, dim: int, index: int) -> Value:
    """The gradient at one position of a dimension, zeros elsewhere."""
    return select_scatter(emit, out, emit.constant(out, 0), grad, dim, index)


@ROWS("aten::diagonal_backward")
def diagonal_backward(
    emit: Emitter, out: Spec, grad: Value, sizes: Any, offset: int, dim1: int, dim2: int
) -> Value:
    """The gradient on a diagonal, zeros elsewhere."""
    return diagonal_scatter(emit, out, emit.constant(out, 0), grad, offset, dim1, dim2)
