"""What operators give that work element by element, and others with a result for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.devices import on_host, traits
from dovetail.ops.fake.dtype_probe import probe, probe_reduction
from dovetail.ops.fake.result_spec import Spec, fresh, in_one_piece
from dovetail.ops.fake.rules.layout import broadcast, contiguous, elementwise_strides
from dovetail.ops.fake.symbolic.size_questions import all_same, empty

aten = torch.ops.aten


def common_device(tensors: list[torch.Tensor]) -> torch.device:
    """The one device that all are on, apart from scalars on the CPU. Raises eager's error where there is none."""
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


def elementwise(operator: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
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
    common_device(tensors)
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
    "hardshrink_backward", "softshrink_backward", "hardsigmoid_backward", "mish_backward", "softplus_backward",
))  # fmt: skip


def in_place(args: tuple, kwargs: dict[str, Any]) -> Any:
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
    aten.add_.Tensor, aten.sub_.Tensor, aten.mul_.Tensor, aten.div_.Tensor, aten.add_.Scalar, aten.sub_.Scalar,
    aten.mul_.Scalar, aten.div_.Scalar, aten.addcmul_.default,
    aten.addcdiv_.default, aten.lerp_.Scalar, aten.neg_.default, aten.reciprocal_.default, aten.sqrt_.default,
    aten.rsqrt_.default, aten.abs_.default, aten.sign_.default, aten.exp_.default,
))  # fmt: skip


def threshold_backward(gradient: torch.Tensor, x: torch.Tensor, threshold: Any) -> Any:
    """The kernel's first operand is the second argument."""
    return elementwise(aten.threshold_backward.default, (x, gradient, threshold), {})


def leaky_relu_backward(gradient: torch.Tensor, x: torch.Tensor, slope: Any, from_result: bool) -> Any:
    """The same."""
    return elementwise(aten.leaky_relu_backward.default, (x, gradient, slope, from_result), {})


def hardtanh_backward(gradient: torch.Tensor, x: torch.Tensor, least: Any, most: Any) -> Any:
    """Element-wise without the tag: in the meta kernel the image comes first."""
    return elementwise(aten.hardtanh_backward.default, (gradient, x, least, most), {})


def rsub(x: torch.Tensor, other: torch.Tensor, **named: Any) -> Any:
    """The kernel's first operand is what is subtracted from."""
    return elementwise(aten.rsub.Tensor, (other, x), named)


def power(base: Any, exponent: torch.Tensor) -> Any:
    """Of a number to a tensor: in rows."""
    found = elementwise(aten.pow.Scalar, (base, exponent), {})
    return found if found is NotImplemented else found._replace(strides=contiguous(found.sizes))


def mvlgamma(x: torch.Tensor, order: int) -> Any:
    """A sum along a new dimension, whatever its tag says."""
    return in_one_piece(x.shape, x, probe(aten.mvlgamma.default, (x, order), {})[0])


def normal(mean: torch.Tensor, std: torch.Tensor, **_: Any) -> Any:
    """In rows, of the mean's type."""
    return in_one_piece(broadcast([tuple(mean.shape), tuple(std.shape)]), mean)


def in_rows(place: int) -> Callable[..., Any]:
    """The gradient of an argument, contiguous whatever the others are."""

    def rule(*args: Any, **_: Any) -> Any:
        x, tensors = args[place], [a for a in args if isinstance(a, torch.Tensor)]
        if any(t.dtype != x.dtype or t.layout is not torch.strided or t.device != x.device for t in tensors):
            return NotImplemented
        return in_one_piece(x.shape, x)

    return rule


def nonzero_static(x: torch.Tensor, *, size: Any, **_: Any) -> Any:
    """In rows on the CPU; the meta kernel says in columns, as on a GPU."""
    if not on_host(x) or type(size) is not int or size < 0:
        return NotImplemented
    return in_one_piece((size, x.dim()), x, torch.int64)


def log_sigmoid(x: torch.Tensor) -> Any:
    """The second result is kept for the backward pass: on the CPU only, a tensor of the same size."""
    (dtype, _) = probe_reduction(aten.log_sigmoid_forward.default, (x,), {})
    return in_one_piece(x.shape, x, dtype), in_one_piece(x.shape if on_host(x) else (0,), x, dtype)


def isin(elements: Any, tests: Any, **_: Any) -> Any:
    """One truth for each element, in rows."""
    known = isinstance(elements, torch.Tensor)
    return in_one_piece(elements.shape, elements, torch.bool) if known else NotImplemented


def multilabel_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    """Of one sample, unreduced, it is a scalar; the meta kernel says a vector."""
    if reduction or x.dim() > 1 or not all_same(target.shape, x.shape) or empty(x.shape):
        return NotImplemented
    return fresh((), (), x), in_one_piece(x.shape, x)


def uniform(x: torch.Tensor, *_: Any, **__: Any) -> Any:
    """Laid out as a clone is."""
    sizes = tuple(x.shape)
    return fresh(sizes, elementwise_strides(sizes, (x,)), x)


def angle(x: torch.Tensor) -> Any:
    """Of complex numbers, in rows whatever the layout."""
    return in_one_piece(x.shape, x, x.dtype.to_real()) if x.dtype.is_complex else NotImplemented


def poisson(x: torch.Tensor, *_: Any, **__: Any) -> Any:
    """In rows, whatever the rates' layout."""
    return in_one_piece(x.shape, x)
