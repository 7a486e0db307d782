"""Layer and root-mean-square norms, softmax, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ir.devices import on_gpu, on_host
from dovetail.ops.fake.dtype_probe import probe_reduction
from dovetail.ops.fake.result_spec import ForOverload, Spec, fresh, in_one_piece
from dovetail.ops.fake.rules.layout import axis, elementwise_strides
from dovetail.ops.fake.symbolic.size_questions import all_same, empty


def layer_norm(x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The result in rows, and a mean and a deviation for each row."""
    sizes = tuple(x.shape)
    lead = sizes[: len(sizes) - len(shape)] + (1,) * len(shape)
    if not shape or not all_same(sizes[len(sizes) - len(shape):], shape):
        return NotImplemented
    stat = in_one_piece(lead, x, _statistics_dtype(x, weight))
    return in_one_piece(sizes, x), stat, stat


def _statistics_dtype(x: torch.Tensor, weight: Any) -> torch.dtype:
    if on_host(x):
        return x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def layer_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    """All contiguous, whatever the arguments are."""
    parts = [(x, mask[0]), (weight, mask[1]), (bias, mask[2])]
    plain = (on_host(x) or on_gpu(x)) and gradient.dtype == x.dtype and x.layout is torch.strided
    if not plain or any(t is None for t, wanted in parts if wanted):
        return NotImplemented
    return tuple(in_one_piece(t.shape, t) if wanted else None for t, wanted in parts)


def rms_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, shape: Any, rstd: Any, weight: Any, mask: Any
) -> Any:
    """A kernel of GPUs; the CPU's is made of other operators."""
    if not on_gpu(x):
        return NotImplemented
    found = layer_norm_backward(gradient, x, shape, None, rstd, weight, None, (*mask, False))
    return found if found is NotImplemented else found[:2]


def attention_on_cpu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> Any:
    """The meta kernel of PyTorch 2.11 has sums in float32 where the kernel has them in float64."""
    if query.dtype is not torch.float64:
        return NotImplemented
    batch, heads, length, _size = sizes = tuple(query.shape)
    sums = fresh((batch, heads, length), (length * heads, 1, heads), query)
    return fresh(sizes, elementwise_strides(sizes, (query,)), query), sums


def attention_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any, *_: Any,
    shared_storage_dqdkdv: bool = False, **__: Any,
) -> Any:
    """The kernels make contiguous gradients, where the meta kernel says that they are laid out as the arguments."""
    if bias is not None or shared_storage_dqdkdv:
        return NotImplemented
    return *(in_one_piece(t.shape, t) for t in (query, key, value)), Spec((), (), torch.float32, query.device)


def _softmax(operator: Any) -> Callable[..., Any]:
    def rule(*args: Any, **kwargs: Any) -> Any:
        x = args[0]
        sizes = tuple(x.shape)
        axis(args[1], len(sizes))  # what the kernels check, PyTorch's own rules do not
        if empty(sizes):  # the kernel is not reached, so any dtype will do
            return in_one_piece(sizes, x, torch.float32 if args[2] else x.dtype)
        return in_one_piece(sizes, x, *probe_reduction(operator, args, kwargs))

    return rule


softmax = ForOverload(_softmax)
