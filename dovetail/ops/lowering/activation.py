"""Activation functions, each with the formula and the treatment of NaN of PyTorch's CPU kernel."""

from __future__ import annotations

import math
from typing import Any

from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import elementwise as shapes
from dovetail.ops.lowering import build
from dovetail.ops.lowering.arithmetic import rounds_alike
from dovetail.ops.lowering.build import const, scale_by, shift_by, where
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, elementwise, in_result_dtype
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows()
pointwise = ROWS.pointwise


@pointwise("aten::sigmoid", "aten::special_expit", operands=1)
def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return build.reciprocal(shift_by(build.exp(build.neg(x)), 1))


def between(x: Expr, low: float, high: float) -> Expr:
    """x kept within [low, high]; NaN stays."""
    return build.at_most(build.at_least(x, const(low, x.dtype)), const(high, x.dtype))


@pointwise("aten::silu", operands=1)
def silu(x: Expr) -> Expr:
    """x / (1 + exp(-x)) (Elfwing et al., arXiv:1702.03118)."""
    return build.div(x, shift_by(build.exp(build.neg(x)), 1))


@pointwise("aten::gelu", operands=1)
def gelu(x: Expr, approximate: str = "none") -> Expr:
    """x * Phi(x) (Hendrycks and Gimpel, arXiv:1606.08415), exact or by tanh."""
    half = scale_by(x, 0.5)
    if approximate == "none":
        return build.mul(half, shift_by(build.erf(scale_by(x, math.sqrt(0.5))), 1))
    cube = build.mul(build.mul(x, x), x)
    inner = scale_by(build.add(x, scale_by(cube, 0.044715)), math.sqrt(2 / math.pi))
    return build.mul(half, shift_by(build.tanh(inner), 1))


@pointwise("aten::relu", operands=1)
def relu(x: Expr) -> Expr:
    """max(x, 0)."""
    return build.at_least(x, const(0, x.dtype))


@pointwise("aten::relu6", operands=1)
def relu6(x: Expr) -> Expr:
    """x kept within [0, 6]."""
    return between(x, 0, 6)


@pointwise("aten::leaky_relu", operands=1, takes_numbers=True)
def leaky_relu(x: Expr, negative_slope: float = 0.01) -> Expr:
    """x above 0, slope * x below."""
    return where(build.gt(x, const(0, x.dtype)), x, scale_by(x, negative_slope))


@pointwise("aten::prelu", operands=2)
@pointwise("aten::_prelu_kernel", operands=2, trial=trials.EACH)
def prelu(x: Expr, weight: Expr) -> Expr:
    """x above 0, weight * x below (He et al., arXiv:1502.01852)."""
    return where(build.gt(x, const(0, x.dtype)), x, build.mul(weight, x))


@pointwise("aten::elu", operands=1)
def elu(x: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    """scale * x above 0, alpha * scale * (exp(input_scale * x) - 1) below (Clevert et al., arXiv:1511.07289)."""
    negative = scale_by(build.expm1(scale_by(x, input_scale)), alpha * scale)
    return where(build.le(x, const(0, x.dtype)), negative, scale_by(x, scale))


@pointwise("aten::celu", operands=1)
def celu(x: Expr, alpha: float = 1.0) -> Expr:
    """x above 0, alpha * (exp(x / alpha) - 1) below (Barron, arXiv:1704.07483)."""
    return elu(x, alpha, 1, 1.0 / alpha)


@pointwise("aten::selu", operands=1)
def selu(x: Expr) -> Expr:
    """Klambauer et al., arXiv:1706.02515."""
    return elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@pointwise("aten::softplus", operands=1)
def softplus(x: Expr, beta: float = 1, threshold: float = 20) -> Expr:
    """log(1 + exp(beta * x)) / beta; x where beta * x is above the threshold."""
    scaled = scale_by(x, beta)
    curve = build.div(build.log1p(build.exp(scaled)), const(beta, x.dtype))
    return where(build.gt(scaled, const(threshold, x.dtype)), x, curve)


@pointwise("aten::mish", operands=1)
def mish(x: Expr) -> Expr:
    """x * tanh(log(1 + exp(x))) (Misra, arXiv:1908.08681)."""
    return build.mul(x, build.tanh(build.log1p(build.exp(x))))


@pointwise("aten::hardtanh", operands=1)
def hardtanh(x: Expr, min_val: float = -1, max_val: float = 1) -> Expr:
    """x kept within [min_val, max_val]."""
    return between(x, min_val, max_val)


def _three_to_nine(x: Expr) -> Expr:
    return between(shift_by(x, 3), 0, 6)


@pointwise("aten::hardsigmoid", operands=1)
def hardsigmoid(x: Expr) -> Expr:
    """(x + 3) kept within [0, 6], / 6."""
    return build.div(_three_to_nine(x), const(6, x.dtype))


@pointwise("aten::hardswish", operands=1)
def hardswish(x: Expr) -> Expr:
    """x * hardsigmoid(x) (Howard et al., arXiv:1905.02244)."""
    return build.div(build.mul(x, _three_to_nine(x)), const(6, x.dtype))


@pointwise("aten::hardshrink", operands=1, takes_numbers=True, same_bits=rounds_alike)
def hardshrink(x: Expr, lambd: float = 0.5) -> Expr:
    """0 within [-lambd, lambd], x outside."""
    high = const(lambd, x.dtype)
    return where(build.and_(build.ge(x, build.neg(high)), build.le(x, high)), const(0, x.dtype), x)


@pointwise("aten::softshrink", operands=1, takes_numbers=True)
def softshrink(x: Expr, lambd: float = 0.5) -> Expr:
    """x moved towards 0 by lambd; 0 within."""
    high = const(lambd, x.dtype)
    low = where(build.lt(x, build.neg(high)), build.add(x, high), scale_by(x, 0))
    return where(build.gt(x, high), build.sub(x, high), low)


@pointwise("aten::threshold", operands=1, takes_numbers=True)
def threshold(x: Expr, threshold: float, value: float) -> Expr:
    """`value` up to the threshold, x above."""
    return where(build.le(x, const(threshold, x.dtype)), const(value, x.dtype), x)


def _log_sigmoid(x: Expr) -> Expr:
    tail = build.log1p(build.exp(build.neg(build.abs_(x))))
    return build.sub(build.minimum(x, const(0, x.dtype)), tail)


_log_sigmoid_row = elementwise(_log_sigmoid, 1, in_result_dtype)


@ROWS("aten::log_sigmoid_forward", cheap=True, shape=shapes.log_sigmoid)
def log_sigmoid_forward(emit: Emitter, out: tuple[Spec, Spec], x: Value) -> Any:
    """The second result is what PyTorch's CPU kernel keeps for the backward: exp(-|x|)."""
    result = _log_sigmoid_row(emit, out[0], x)
    wide = in_result_dtype([x], out[0])[1]

    def tail(indices: Indices) -> Expr:
        return build.exp(build.neg(build.abs_(build.cast(x.at(indices), wide))))

    kept = emit.expression(out[1], tail) if out[1].sizes == x.sizes else emit.constant(out[1], 0)
    return result, kept


@ROWS("aten::glu", cheap=True, trial=trials.GATED)
def glu(emit: Emitter, out: Spec, x: Value, dim: int = -1) -> Any:
    """First half times the sigmoid of the second half along `dim`."""
    axis = dim % x.rank
    half = out.sizes[axis]
    wide = in_result_dtype([x], out)[1]

    def at(indices: Indices) -> Expr:
        second = (*indices[:axis], indices[axis] + half, *indices[axis + 1 :])
        return build.mul(build.cast(x.at(indices), wide), sigmoid(build.cast(x.at(second), wide)))

    return emit.pointwise(out, at)


@ROWS("aten::dropout", "aten::native_dropout", cheap=True)
def dropout(emit: Emitter, out: Any, x: Value, p: float, train: bool | None) -> Any:
    """Only the forms that draw no random number."""
    if train and not (isinstance(p, (int, float)) and p == 0):
        return NotImplemented
    if isinstance(out, Spec):
        return x
    return emit.pointwise(out[0], x.at), emit.constant(out[1], True)
