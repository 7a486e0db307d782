"""Shape rules of our own: for operators whose meta kernel in PyTorch is slow or imports much.

A rule takes the operator's arguments and returns a Spec (or a tuple of them), or NotImplemented to
let PyTorch's meta kernel answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.devices import on_gpu, on_host, traits
from dovetail.ops.fake.dtype_probe import probe, probe_reduction
from dovetail.ops.fake.result_spec import Spec, fresh
from dovetail.ops.fake.rules import fourier, images, lapack, reductions, view_rules
from dovetail.ops.fake.rules.layout import broadcast, contiguous, elementwise_strides, is_one
from dovetail.ops.fake.rules.view_rules import axis, expand
from dovetail.ops.fake.symbolic.size_questions import all_same, empty, general, same

aten = torch.ops.aten


def _common_device(tensors: list[torch.Tensor]) -> torch.device:
    chosen = tensors[0].device
    for t in tensors:
        if t.device == chosen:
            continue
        if t.dim() == 0 and on_host(t):
            continue
        first = next(s for s in tensors if s.device == chosen)
        if first.dim() == 0 and traits(chosen).host:
            chosen = t.device
            continue
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, "
                           f"{chosen} and {t.device}!")
    return chosen


def elementwise(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One result of the broadcast tensors among the arguments."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if kwargs:
        tensors += [a for a in kwargs.values() if isinstance(a, torch.Tensor)]
    for t in tensors:
        if t.layout is not torch.strided:
            return NotImplemented
    dtype, device = probe(operator, args, kwargs)
    if not tensors:  # numbers only
        return Spec((), (), dtype, device)
    _common_device(tensors)
    sizes = broadcast([tuple(t.shape) for t in tensors])
    return Spec(sizes, elementwise_strides(sizes, tensors), dtype, device)


def is_elementwise(operator: Any) -> bool:
    """Has the operator one result, computed by PyTorch's TensorIterator?"""
    name = operator._name.removeprefix("aten::")
    if name in _NOT_ITERATED or operator.namespace != "aten":
        return False
    schema = operator._schema
    plain = not schema.is_mutable and len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
    tagged = torch.Tag.pointwise in operator.tags and torch.Tag.nondeterministic_seeded not in operator.tags
    return name in _ITERATED or (plain and tagged)


#: Element-wise by tag, but laid out by rules of their own.
_NOT_ITERATED = frozenset(
    ("clone", "masked_fill.Scalar", "masked_fill.Tensor", "_conj_physical", "positive", "mvlgamma")
)
#: Element-wise without the tag.
_ITERATED = frozenset((
    "floor_divide", "floor_divide.Scalar", "rsub.Tensor", "hardswish", "hardswish_backward", "elu_backward",
))  # fmt: skip


def in_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tensor written to, where nothing has to be broadcast or converted."""
    own, *others = (*args, *kwargs.values())
    for other in others:
        if isinstance(other, torch.Tensor):
            alike = other.dtype is own.dtype and all_same(other.shape, own.shape) and other.device == own.device
            if not alike or other.layout is not torch.strided:
                return NotImplemented
        elif isinstance(other, (bool, complex)):
            return NotImplemented
    return own if own.layout is torch.strided and own.dtype.is_floating_point else NotImplemented


#: Arithmetic in place that floating-point tensors of one shape and type never refuse: what optimizers consist of.
IN_PLACE = frozenset((
    aten.add_.Tensor, aten.sub_.Tensor, aten.mul_.Tensor, aten.div_.Tensor, aten.addcmul_.default,
    aten.addcdiv_.default, aten.lerp_.Scalar,
))  # fmt: skip


def _simple(operands: tuple[Any, ...]) -> bool:
    """Complex numbers and sparse layouts are left to PyTorch."""
    return all(
        not isinstance(o, torch.Tensor) or (o.layout is torch.strided and not o.dtype.is_complex) for o in operands
    )


def _threshold_backward(gradient: torch.Tensor, x: torch.Tensor, threshold: Any) -> Any:
    """The kernel's first operand is the second argument."""
    return elementwise(aten.threshold_backward.default, (x, gradient, threshold), {})


def _hardtanh_backward(gradient: torch.Tensor, x: torch.Tensor, least: Any, most: Any) -> Any:
    """Element-wise without the tag: in the meta kernel the image comes first."""
    return elementwise(aten.hardtanh_backward.default, (gradient, x, least, most), {})


def _rsub(x: torch.Tensor, other: torch.Tensor, **named: Any) -> Any:
    """The kernel's first operand is what is subtracted from."""
    return elementwise(aten.rsub.Tensor, (other, x), named)


def _pow(base: Any, exponent: torch.Tensor) -> Any:
    found = elementwise(aten.pow.Scalar, (base, exponent), {})
    return found if found is NotImplemented else found._replace(strides=contiguous(found.sizes))


def _mvlgamma(x: torch.Tensor, order: int) -> Any:
    """A sum along a new dimension, whatever its tag says."""
    dtype, device = probe(aten.mvlgamma.default, (x, order), {})
    return Spec(tuple(x.shape), contiguous(x.shape), dtype, device)


def _normal(mean: torch.Tensor, std: torch.Tensor, **_: Any) -> Any:
    sizes = broadcast([tuple(mean.shape), tuple(std.shape)])
    return fresh(sizes, contiguous(sizes), mean)


def _in_rows(place: int) -> Callable[..., Any]:
    """The gradient of an argument, contiguous whatever the others are."""

    def rule(*args: Any, **_: Any) -> Any:
        x, tensors = args[place], [a for a in args if isinstance(a, torch.Tensor)]
        if any(t.dtype != x.dtype or t.layout is not torch.strided or t.device != x.device for t in tensors):
            return NotImplemented
        return fresh(tuple(x.shape), contiguous(x.shape), x)

    return rule


def _nonzero_static(x: torch.Tensor, *, size: Any, **_: Any) -> Any:
    """In rows on the CPU; the meta kernel says in columns, as on a GPU."""
    if not on_host(x) or type(size) is not int or size < 0:
        return NotImplemented
    return Spec((size, x.dim()), contiguous((size, x.dim())), torch.int64, x.device)


def _log_sigmoid(x: torch.Tensor) -> Any:
    """The second result is kept for the backward pass: on the CPU only, a tensor of the same size."""
    (dtype, _) = probe_reduction(aten.log_sigmoid_forward.default, (x,), {})
    sizes = tuple(x.shape)
    kept = sizes if on_host(x) else (0,)
    return Spec(sizes, contiguous(sizes), dtype, x.device), Spec(kept, contiguous(kept), dtype, x.device)


def _isin(elements: Any, tests: Any, **_: Any) -> Any:
    if not isinstance(elements, torch.Tensor):
        return NotImplemented
    sizes = tuple(elements.shape)
    return Spec(sizes, contiguous(sizes), torch.bool, elements.device)


def _multilabel_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    """Of one sample, unreduced, it is a scalar; the meta kernel says a vector."""
    if reduction or x.dim() > 1 or not all_same(target.shape, x.shape) or empty(x.shape):
        return NotImplemented
    return fresh((), (), x), fresh(tuple(x.shape), contiguous(x.shape), x)


def _layer_norm(x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    sizes = tuple(x.shape)
    lead = sizes[: len(sizes) - len(shape)] + (1,) * len(shape)
    if not shape or not all_same(sizes[len(sizes) - len(shape):], shape):
        return NotImplemented
    stat = Spec(lead, contiguous(lead), _statistics_dtype(x, weight), x.device)
    return Spec(sizes, contiguous(sizes), x.dtype, x.device), stat, stat


def _statistics_dtype(x: torch.Tensor, weight: Any) -> torch.dtype:
    if on_host(x):
        return x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _layer_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    """All contiguous, whatever the arguments are."""
    parts = [(x, mask[0]), (weight, mask[1]), (bias, mask[2])]
    plain = (on_host(x) or on_gpu(x)) and gradient.dtype == x.dtype and x.layout is torch.strided
    if not plain or any(t is None for t, wanted in parts if wanted):
        return NotImplemented
    return tuple(fresh(tuple(t.shape), contiguous(t.shape), t) if wanted else None for t, wanted in parts)


def _rms_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, shape: Any, rstd: Any, weight: Any, mask: Any
) -> Any:
    """A kernel of GPUs; the CPU's is made of other operators."""
    if not on_gpu(x):
        return NotImplemented
    found = _layer_norm_backward(gradient, x, shape, None, rstd, weight, None, (*mask, False))
    return found if found is NotImplemented else found[:2]


def _attention_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any, *_: Any,
    shared_storage_dqdkdv: bool = False, **__: Any,
) -> Any:
    """The kernels make contiguous gradients, where the meta kernel says that they are laid out as the arguments."""
    if bias is not None or shared_storage_dqdkdv:
        return NotImplemented
    made = (fresh(tuple(t.shape), contiguous(t.shape), t) for t in (query, key, value))
    return *made, Spec((), (), torch.float32, query.device)


def _softmax(operator: Any) -> Callable[..., Any]:
    def rule(*args: Any, **kwargs: Any) -> Any:
        x = args[0]
        sizes = tuple(x.shape)
        axis(args[1], len(sizes))  # what the kernels check, PyTorch's own rules do not
        if empty(sizes):  # the kernel is not reached, so any dtype will do
            return Spec(sizes, contiguous(sizes), torch.float32 if args[2] else x.dtype, x.device)
        (dtype,) = probe_reduction(operator, args, kwargs)
        return Spec(sizes, contiguous(sizes), dtype, x.device)

    return rule


def _matrix(a: torch.Tensor, b: torch.Tensor, sizes: tuple[Any, ...]) -> Any:
    if not _simple((a, b)) or a.dtype != b.dtype:
        return NotImplemented
    return Spec(sizes, contiguous(sizes), a.dtype, _common_device([a, b]))


def _mm(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != 2 or b.dim() != 2:
        return NotImplemented
    if not same(a.shape[1], b.shape[0]) and a.shape[1] != b.shape[0]:  # meta kernels say it in other words
        shapes = " and ".join("x".join(map(str, t.shape)) for t in (a, b))
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({shapes})")
    return _matrix(a, b, (a.shape[0], b.shape[1]))


def _addmm(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if c.dtype != a.dtype or a.dim() != 2 or b.dim() != 2:
        return NotImplemented
    made = _mm(a, b)
    sizes = a.shape[0], b.shape[1]
    pairs = zip(c.shape[::-1], sizes[::-1], strict=False)
    if c.dim() > 2 or any(not same(x, y) and not is_one(x) and x not in (1, y) for x, y in pairs):
        expand(c, sizes)  # the meta kernel raises nothing
    return made


def _bmm(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != 3 or b.dim() != 3 or not all_same((a.shape[0], a.shape[2]), b.shape[:2]):
        return NotImplemented
    sizes = a.shape[0], a.shape[1], b.shape[2]
    if a.dtype != b.dtype and empty((*sizes, a.shape[2])):  # eager has taken it by now (`eager_trials.py`)
        return fresh(sizes, contiguous(sizes), b)
    return _matrix(a, b, sizes)


def _uniform(x: torch.Tensor, *_: Any, **__: Any) -> Any:
    """Laid out as a clone is."""
    sizes = tuple(x.shape)
    return fresh(sizes, elementwise_strides(sizes, (x,)), x)


def _scatter(operator: Any) -> Callable[..., Any]:
    """Of an expanded tensor the result is laid out as a clone; PyTorch 2.11's meta kernel lets its elements overlap."""

    def rule(x: torch.Tensor, source: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes = tuple(x.shape)
        if not any(general(stride) == 0 and not is_one(size) for size, stride in zip(sizes, x.stride(), strict=True)):
            return NotImplemented
        operator(*(torch.empty(t.shape, dtype=t.dtype, device="meta") for t in (x, source)), *args, **kwargs)
        return fresh(sizes, elementwise_strides(sizes, (x,)), x)

    return rule


def _angle(x: torch.Tensor) -> Any:
    """Of complex numbers, in rows whatever the layout."""
    sizes = tuple(x.shape)
    return Spec(sizes, contiguous(sizes), x.dtype.to_real(), x.device) if x.dtype.is_complex else NotImplemented


def _poisson(x: torch.Tensor, *_: Any, **__: Any) -> Any:
    sizes = tuple(x.shape)
    return fresh(sizes, contiguous(sizes), x)


RULES: dict[Any, Callable[..., Any]] = {
    aten.uniform.default: _uniform,
    aten.poisson.default: _poisson,
    aten.angle.default: _angle,
    aten.select_scatter.default: _scatter(aten.select_scatter.default),
    aten.slice_scatter.default: _scatter(aten.slice_scatter.default),
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten._fused_rms_norm_backward.default: _rms_norm_backward,
    aten._efficient_attention_backward.default: _attention_backward,
    aten.binary_cross_entropy.default: view_rules.RULES[aten.binary_cross_entropy.default],
    aten.binary_cross_entropy_backward.default: view_rules.RULES[aten.binary_cross_entropy_backward.default],
    aten._softmax.default: _softmax(aten._softmax.default),
    aten._log_softmax.default: _softmax(aten._log_softmax.default),
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.isin.Tensor_Tensor: _isin,
    aten.isin.Tensor_Scalar: _isin,
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    aten.threshold_backward.default: _threshold_backward,
    aten.hardtanh_backward.default: _hardtanh_backward,
    aten.rsub.Tensor: _rsub,
    aten.pow.Scalar: _pow,
    aten.mvlgamma.default: _mvlgamma,
    aten.nonzero_static.default: _nonzero_static,
    aten.normal.Tensor_Tensor: _normal,
    aten.smooth_l1_loss_backward.default: _in_rows(1),
    aten.huber_loss_backward.default: _in_rows(1),
    aten.glu_backward.default: _in_rows(1),
    aten._log_softmax_backward_data.default: _in_rows(0),
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _bmm,
    **images.RULES,
    **fourier.RULES,
    **reductions.RULES,
    **lapack.RULES,
}
