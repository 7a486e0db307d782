"""Shape rules of our own: for operators whose meta kernel in PyTorch is slow or imports much.

A rule takes the operator's arguments and returns a Spec (or a tuple of them), or NotImplemented to
let PyTorch's meta kernel answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from dovetail.ops.fake.layout import broadcast, channels_last, contiguous, elementwise_strides, promote, to_float

aten = torch.ops.aten


class Spec(NamedTuple):
    """Metadata of one result."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Any = 0


RULES: dict[Any, Callable[..., Any]] = {}


def _common_device(tensors: list[torch.Tensor]) -> torch.device:
    chosen = tensors[0].device
    for t in tensors:
        if t.device == chosen:
            continue
        if t.dim() == 0 and t.device.type == "cpu":
            continue
        first = next(s for s in tensors if s.device == chosen)
        if first.dim() == 0 and chosen.type == "cpu":
            chosen = t.device
            continue
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, "
                           f"{chosen} and {t.device}!")
    return chosen


def elementwise(operands: tuple[Any, ...], dtype: torch.dtype) -> Spec:
    """One result of the broadcast operands."""
    tensors = [o for o in operands if isinstance(o, torch.Tensor)]
    sizes = broadcast([tuple(t.shape) for t in tensors])
    return Spec(sizes, elementwise_strides(sizes, tensors), dtype, _common_device(tensors))


def _plain(*operands: Any, **_: Any) -> Any:
    """Result dtype: the operands' common one. Trailing options that are no numbers do not count."""
    return elementwise(operands, promote(operands)) if _simple(operands) else NotImplemented


def _float(*operands: Any, **_: Any) -> Any:
    return elementwise(operands, to_float(promote(operands))) if _simple(operands) else NotImplemented


def _bool(*operands: Any, **_: Any) -> Any:
    return elementwise(operands, torch.bool) if _simple(operands) else NotImplemented


def _like(self: torch.Tensor, *_: Any, **__: Any) -> Any:
    """The first operand's dtype and shape, whatever the other (scalar) arguments are."""
    return elementwise((self,), self.dtype) if _simple((self,)) else NotImplemented


def _simple(operands: tuple[Any, ...]) -> bool:
    """Complex numbers and sparse layouts are left to PyTorch."""
    return all(
        not isinstance(o, torch.Tensor) or (o.layout is torch.strided and not o.dtype.is_complex) for o in operands
    )


def _where(condition: torch.Tensor, a: Any, b: Any) -> Any:
    if not _simple((condition, a, b)):
        return NotImplemented
    return elementwise((condition, a, b), promote((a, b)))


def _masked_fill(self: torch.Tensor, mask: torch.Tensor, value: Any) -> Any:
    return elementwise((self, mask), self.dtype) if _simple((self, mask)) else NotImplemented


def _clamp(self: torch.Tensor, low: Any = None, high: Any = None) -> Any:
    operands = tuple(o for o in (self, low, high) if o is not None)
    return elementwise(operands, promote(operands)) if _simple(operands) else NotImplemented


def _div_mode(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if not _simple((self, other)):
        return NotImplemented
    dtype = promote((self, other))
    return elementwise((self, other), to_float(dtype) if rounding_mode is None else dtype)


def _three(a: Any, b: Any, c: Any, *, value: Any = 1) -> Any:
    return elementwise((a, b, c), promote((a, b, c))) if _simple((a, b, c)) else NotImplemented


def _fresh_like(t: torch.Tensor, dtype: torch.dtype | None = None) -> Spec:
    sizes = tuple(t.shape)
    return Spec(sizes, elementwise_strides(sizes, [t]), dtype or t.dtype, t.device)


def _layer_norm(x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    sizes = tuple(x.shape)
    lead = sizes[: len(sizes) - len(shape)] + (1,) * len(shape)
    if tuple(sizes[len(sizes) - len(shape):]) != tuple(shape):
        return NotImplemented
    stat = Spec(lead, contiguous(lead), _statistics_dtype(x, weight), x.device)
    return Spec(sizes, contiguous(sizes), x.dtype, x.device), stat, stat


def _statistics_dtype(x: torch.Tensor, weight: Any) -> torch.dtype:
    if x.device.type == "cpu":
        return x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    if not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        return NotImplemented
    dtype = torch.float32 if half_to_float else x.dtype
    sizes = tuple(x.shape)
    return Spec(sizes, contiguous(sizes), dtype, x.device)


def _matrix(a: torch.Tensor, b: torch.Tensor, sizes: tuple[Any, ...]) -> Any:
    if not _simple((a, b)) or a.dtype != b.dtype:
        return NotImplemented
    return Spec(sizes, contiguous(sizes), a.dtype, _common_device([a, b]))


def _mm(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        return NotImplemented
    return _matrix(a, b, (a.shape[0], b.shape[1]))


def _addmm(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    fits = c.dtype == a.dtype and c.dim() <= 2 and a.dim() == 2 and b.dim() == 2
    if not fits or any(x not in (1, y) for x, y in zip(c.shape[::-1], (b.shape[1], a.shape[0]), strict=False)):
        return NotImplemented
    return _mm(a, b)


def _bmm(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return NotImplemented
    return _matrix(a, b, (a.shape[0], a.shape[1], b.shape[2]))


def _batch_norm_eval(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, *_: Any) -> Any:
    """Inference: the statistics come back empty."""
    nothing = Spec((0,), (1,), (mean if mean is not None else x).dtype, x.device)
    return _fresh_like(x), nothing, nothing


def _batch_norm(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> Any:
    return NotImplemented if training else _batch_norm_eval(x, weight, bias, mean, var)


def _convolution(
    x: torch.Tensor, w: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:
    """Forward, 2-d, on the CPU: oneDNN keeps channels_last if the image or the weight has it."""
    if transposed or x.dim() != 4 or w.dim() != 4 or x.device.type != "cpu" or not _simple((x, w)):
        return NotImplemented
    if x.shape[1] != w.shape[1] * groups or x.dtype != w.dtype or x.dtype is not torch.float32:
        return NotImplemented
    spatial = []
    for k in (0, 1):
        reach = dilation[k] * (w.shape[k + 2] - 1) + 1
        spatial.append((x.shape[k + 2] + 2 * padding[k] - reach) // stride[k] + 1)
    if any(isinstance(s, int) and s <= 0 for s in spatial) or x.numel() == 0:
        return NotImplemented
    sizes = (x.shape[0], w.shape[0], *spatial)
    last = _suggests_channels_last(x) or _suggests_channels_last(w)
    return Spec(sizes, channels_last(sizes) if last else contiguous(sizes), x.dtype, x.device)


def _suggests_channels_last(t: torch.Tensor) -> bool:
    """at::suggest_memory_format: the strides' order decides, ambiguous ones count as contiguous."""
    if t.stride(1) == 0:
        return False
    least: Any = 0
    for d in (1, 3, 2, 0):
        size, stride = t.shape[d], t.stride(d)
        if size == 0 or stride < least or (d == 0 and least == t.stride(1)):
            return False
        least = stride * (size if size > 1 else 1)
    return True


_PLAIN = """add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar rsub.Tensor rsub.Scalar maximum
minimum remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar floor_divide floor_divide.Scalar pow.Tensor_Tensor
pow.Tensor_Scalar pow.Scalar bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar
bitwise_or.Scalar bitwise_xor.Scalar fmax fmin"""
_FLOAT = """div.Tensor div.Scalar sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log
log2 log10 log1p sqrt rsqrt reciprocal sigmoid erf erfc lgamma atan2"""
_BOOL = """eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar
ge.Tensor ge.Scalar logical_and logical_or logical_xor logical_not isnan isinf isfinite"""
_LIKE = """relu neg gelu silu hardtanh hardswish hardsigmoid leaky_relu elu softplus mish bitwise_not floor
ceil round trunc sign hardshrink softshrink threshold"""


def _named(text: str) -> list[Any]:
    found = []
    for name in text.split():
        packet, _, overload = name.partition(".")
        if hasattr(aten, packet) and (overload or "default") in getattr(aten, packet).overloads():
            found.append(getattr(getattr(aten, packet), overload or "default"))
    return found


for _text, _rule in ((_PLAIN, _plain), (_FLOAT, _float), (_BOOL, _bool), (_LIKE, _like)):
    RULES.update(dict.fromkeys(_named(_text), _rule))

RULES.update({
    aten.where.self: _where,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp,
    aten.clamp_min.default: _clamp,
    aten.div.Tensor_mode: _div_mode,
    aten.addcmul.default: _three,
    aten.addcdiv.default: _three,
    aten.native_layer_norm.default: _layer_norm,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _softmax,
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _bmm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_eval,
    aten.native_batch_norm.default: _batch_norm,
    aten.convolution.default: _convolution,
})
