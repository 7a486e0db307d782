"""Shape rules for operators whose meta kernels in PyTorch want plain integers.

They serve where a symbolic size takes part. A rule raises what eager raises; where the outcome depends on sizes, the
compilation relies on what holds in the call that is captured.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.reshape import chunks, reshaped_strides
from dovetail.ops.fake.result_spec import ForOverload, Spec, fresh, in_one_piece
from dovetail.ops.fake.rules.layout import axis, contiguous, elementwise_strides, in_rows, is_one
from dovetail.ops.fake.symbolic.number import needed
from dovetail.ops.fake.symbolic.size_questions import (
    all_same,
    expected,
    general,
    hint,
    is_unbacked,
    plain,
    rewrapped,
    same,
    sizes_behind,
    stretched,
)
from dovetail.ops.fake.symbolic.symint import dim_of

aten = torch.ops.aten


def seen(x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Spec:
    """A view of `x`."""
    start = x.storage_offset() if storage_offset is None else storage_offset
    return Spec(tuple(map(plain, size)), tuple(map(plain, stride)), x.dtype, x.device, plain(start))


as_strided = seen


# ---------------------------------------------------------------- shape


def product(values: Sequence[Any]) -> Any:
    """Of sizes, symbolic ones among them."""
    sizes = sizes_behind(values)
    if sizes is not None:
        return rewrapped(sizes, dims.product(map(dim_of, values)))
    return reduce(operator.mul, values, 1)


def inferred(sizes: Sequence[Any], elements: Any) -> tuple:
    """`sizes` with a -1 replaced by what is left for it. Raises RuntimeError where the numbers do not fit."""
    open_ = [k for k, n in enumerate(sizes) if isinstance(n, int) and n == -1]
    known = product([n for k, n in enumerate(sizes) if k not in open_])
    shape = list(sizes)
    if len(open_) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if any(isinstance(n, int) and n < -1 for n in sizes):
        raise RuntimeError(f"invalid shape dimension {min(n for n in sizes if isinstance(n, int))}")
    if not open_:
        if not same(known, elements) and not expected(known == elements):
            raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {elements}")
        return tuple(shape)
    if not expected(known > 0):
        raise RuntimeError(
            f"cannot reshape tensor of {elements} elements into shape {list(sizes)} because the unspecified dimension "
            "size -1 can be any value and is ambiguous"
        )
    fits = known == 1 if type(elements) is int and elements == 1 else elements % known == 0
    if not same(elements % known, 0) and not expected(fits):
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {elements}")
    shape[open_[0]] = elements // known
    return tuple(shape)


def view_strides(old: Sequence[Any], strides: Sequence[Any], new: Sequence[Any]) -> tuple | None:
    """How the memory looks in another shape, whatever the sizes; None where that takes a copy."""
    sizes = sizes_behind((*old, *strides, *new))
    before, steps, after = (tuple(map(dim_of, v)) for v in (old, strides, new))
    found = reshaped_strides(
        steps, after, chunks(before, after), lambda a, b: same(strides[a], strides[b] * old[b])
    )
    return None if found is None else tuple(rewrapped(sizes, s) for s in found)


def view(x: torch.Tensor, sizes: Sequence[Any]) -> Any:
    """The same elements, row by row, in another shape. Raises where that takes a copy."""
    shape = inferred(sizes, product(x.shape))
    if all_same(shape, x.shape):
        return seen(x, shape, x.stride())
    strides = contiguous(shape) if in_rows(x) else view_strides(x.shape, x.stride(), shape)
    if strides is None:
        strides = _at_these_sizes(x, shape)
    return seen(x, shape, strides)


def _at_these_sizes(x: torch.Tensor, shape: Sequence[Any]) -> tuple:
    """A view that not all sizes allow: where those of this call do, rely on them."""
    plain = [list(map(int, numbers)) for numbers in (x.shape, x.stride(), shape)]
    strides = contiguous(plain[-1]) if 0 in plain[0] else view_strides(*plain)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return strides


# ---------------------------------------------------------------- order and number of dimensions


def permute(x: torch.Tensor, order: Sequence[int]) -> Any:
    """Dimensions in another order."""
    rank = x.dim()
    axes = [axis(d, rank) for d in order]
    if len(axes) != rank or len(set(axes)) != rank:
        raise RuntimeError("permute(dims): duplicate or missing dims are not allowed.")
    return seen(x, [x.shape[d] for d in axes], [x.stride(d) for d in axes])


def transpose(x: torch.Tensor, a: int, b: int) -> Any:
    """Two dimensions exchanged."""
    rank = x.dim()
    order = list(range(rank))
    a, b = axis(a, rank), axis(b, rank)
    if rank:
        order[a], order[b] = order[b], order[a]
    return permute(x, order)


def t(x: torch.Tensor) -> Any:
    """A matrix's transpose; a vector stays."""
    if x.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.dim()}D")
    return permute(x, range(x.dim())[::-1])


def unsqueeze(x: torch.Tensor, dim: int) -> Any:
    """A dimension of size 1 more."""
    at = axis(dim, x.dim() + 1)
    sizes, strides = tuple(x.shape), x.stride()
    step = strides[at] * sizes[at] if at < x.dim() else 1
    return seen(x, (*sizes[:at], 1, *sizes[at:]), (*strides[:at], step, *strides[at:]))


def squeeze(x: torch.Tensor, dim: Any = None) -> Any:
    """The result's rank depends on sizes: a symbolic one is relied on to be 1 or not."""
    rank = x.dim()
    given = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {axis(d, rank) for d in given}
    kept = [d for d in range(rank) if d not in axes or not (is_one(x.shape[d]) or x.shape[d] == 1)]
    return seen(x, [x.shape[d] for d in kept], [x.stride(d) for d in kept])


def expand(x: torch.Tensor, sizes: Sequence[Any], *, implicit: bool = False) -> Any:
    """Dimensions of size 1 repeated: their stride is 0. -1 keeps a size."""
    new = len(sizes) - x.dim()
    if new < 0:
        raise RuntimeError(
            f"expand({list(x.shape)}, size={list(sizes)}): the number of sizes provided ({len(sizes)}) must be greater "
            f"or equal to the number of dimensions in the tensor ({x.dim()})"
        )
    shape, strides = list(sizes), [0] * len(sizes)
    for d in range(len(sizes) - 1, -1, -1):
        own = x.shape[d - new] if d >= new else 1
        stride = x.stride(d - new) if d >= new else (shape[d + 1] * strides[d + 1] if d + 1 < len(sizes) else 1)
        wanted = sizes[d]
        if isinstance(wanted, int) and wanted == -1:
            if d < new:
                raise RuntimeError("expand: -1 is not allowed in a leading, non-existing dimension")
            wanted = own
        if is_unbacked(wanted) and not expected(wanted >= 0):
            raise RuntimeError(f"expand: the expanded size {wanted} is negative")
        shape[d], strides[d] = wanted, stride
        if same(own, wanted):
            continue
        if is_one(own) or stretched(own, wanted):
            strides[d] = 0
        elif own != wanted:
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({own}) at non-singleton "
                f"dimension {d}.  Target sizes: {list(sizes)}.  Tensor sizes: {list(x.shape)}"
            )
    return seen(x, shape, strides)


# ---------------------------------------------------------------- parts


def bound(position: Any, size: Any, default: Any) -> Any:
    """A slice bound as Python reads it: from the end when negative, cut to [0, size]."""
    if position is None:
        return default
    if isinstance(position, int) and position == _END:
        return size
    at = position + size if position < 0 else position
    return torch.sym_min(torch.sym_max(at, 0), size)


_END = (1 << 63) - 1

#: Where the dimension is among the arguments, and the positions in it, which count from the end if negative.
_POSITIONS = {
    aten.slice.Tensor: (1, (2, 3)), aten.slice_backward.default: (2, (3, 4)), aten.slice_scatter.default: (2, (3, 4)),
    aten.select.int: (1, (2,)), aten.select_backward.default: (2, (3,)), aten.select_scatter.default: (2, (3,)),
}  # fmt: skip


def from_the_front(func: Any, args: tuple) -> tuple:
    """The arguments, symbolic positions that are negative counted from the beginning: later stages know no signs."""
    if func not in _POSITIONS:
        return args
    at, positions = _POSITIONS[func]
    negative = [k for k in positions if k < len(args) and isinstance(args[k], torch.SymInt) and args[k] < 0]
    if not negative:
        return args
    sizes = args[1] if func in (aten.slice_backward.default, aten.select_backward.default) else args[0].shape
    size = sizes[args[at]]
    return tuple(torch.sym_max(arg + size, 0) if k in negative else arg for k, arg in enumerate(args))


def slice_(x: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Every `step`-th position of a dimension; bounds are cut as Python cuts them."""
    if not x.dim():
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    d = axis(dim, x.dim())
    size = x.shape[d]
    first = bound(start, size, 0)
    last = torch.sym_max(bound(end, size, size), first)
    sizes, strides = list(x.shape), list(x.stride())
    sizes[d] = last - first if step == 1 else (last - first + step - 1) // step
    offset = x.storage_offset() + first * strides[d]
    strides[d] = strides[d] * step
    return seen(x, sizes, strides, offset)


def select(x: torch.Tensor, dim: int, index: Any) -> Any:
    """One position of a dimension, which goes."""
    if not x.dim():
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = axis(dim, x.dim())
    size = x.shape[d]
    if not (expected(-size <= index) and expected(index < size)):
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    at = index + size if index < 0 else index
    sizes, strides = list(x.shape), list(x.stride())
    offset = x.storage_offset() + at * strides[d]
    return seen(x, sizes[:d] + sizes[d + 1 :], strides[:d] + strides[d + 1 :], offset)


def _part(x: torch.Tensor, d: int, first: Any, length: Any) -> Spec:
    sizes = list(x.shape)
    sizes[d] = length
    return seen(x, sizes, x.stride(), x.storage_offset() + first * x.stride(d))


def split(x: torch.Tensor, size: Any, dim: int = 0) -> Any:
    """Into how many parts depends on sizes: that they are so many is relied on, not the sizes."""
    d = axis(dim, x.dim())
    whole = x.shape[d]
    if isinstance(size, int) and size == 0 or not expected(size >= 0):
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if is_unbacked(whole) or is_unbacked(size):
        count = max(int((whole + size - 1) // size), 1)  # nobody knows how many
    else:
        count = max(-(-hint(whole) // hint(size)), 1)
    last = whole - size * (count - 1)
    if not (last <= size and (count == 1 or last > 0)):
        raise needed()
    return [_part(x, d, size * k, last if k == count - 1 else size) for k in range(count)]


def split_with_sizes(x: torch.Tensor, sizes: Sequence[Any], dim: int = 0) -> Any:
    """Parts of given sizes, which must fill the dimension."""
    d = axis(dim, x.dim())
    total = sum(sizes)
    if not same(total, x.shape[d]) and not expected(total == x.shape[d]):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {x.shape[d]} (input tensor's size at dimension "
            f"{d}), but got split_sizes={list(sizes)}"
        )
    found, first = [], 0
    for length in sizes:
        if not expected(length >= 0):
            raise RuntimeError(f"split_with_sizes expects split_sizes have only non-negative entries, but got {sizes}")
        found.append(_part(x, d, first, length))
        first = first + length
    return found


def unbind(x: torch.Tensor, dim: int = 0) -> Any:
    """All positions of a dimension; how many is relied on."""
    d = axis(dim, x.dim())
    sizes, strides, start = list(x.shape), list(x.stride()), x.storage_offset()
    left = sizes[:d] + sizes[d + 1 :], strides[:d] + strides[d + 1 :]
    return [seen(x, *left, start + k * strides[d]) for k in range(int(x.shape[d]))]


def diagonal(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The places where two dimensions have the same index, as a last dimension."""
    a, b = axis(dim1, x.dim()), axis(dim2, x.dim())
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = x.shape[a] - max(-offset, 0), x.shape[b] - max(offset, 0)
    length = rows if same(rows, columns) else torch.sym_min(rows, columns)
    length = torch.sym_max(length, 0)
    others = [d for d in range(x.dim()) if d not in (a, b)]
    start = x.storage_offset()
    if length > 0:
        start = start + max(-offset, 0) * x.stride(a) + max(offset, 0) * x.stride(b)
    strides = [*(x.stride(d) for d in others), x.stride(a) + x.stride(b)]
    return seen(x, [*(x.shape[d] for d in others), length], strides, start)


def unfold(x: torch.Tensor, dimension: int, size: Any, step: int) -> Any:
    """Windows along a dimension; the place inside a window comes last."""
    d = axis(dimension, x.dim())
    whole = x.shape[d] if x.dim() else 1
    if not expected(size <= whole):
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {whole} but size is {size}")
    if not x.dim():
        return seen(x, (size,), (1,))
    sizes, strides = list(x.shape), list(x.stride())
    sizes[d] = (whole - size) // step + 1
    inner = strides[d]
    strides[d] = inner * step
    return seen(x, [*sizes, size], [*strides, inner])


def alias(x: torch.Tensor) -> Any:
    """The same tensor, as a view."""
    return seen(x, x.shape, x.stride())


# ---------------------------------------------------------------- tensors made from others


def stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """Tensors of one shape along a new dimension, in rows where all are."""
    first = tensors[0]
    if any(t.dim() != first.dim() or t.dtype != first.dtype or t.device != first.device for t in tensors):
        return NotImplemented
    for t in tensors[1:]:
        if not all_same(t.shape, first.shape) and t.shape != first.shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 and "
                f"{list(t.shape)} at entry {tensors.index(t)}"
            )
    d = axis(dim, first.dim() + 1)
    if not all(map(in_rows, tensors)):
        return NotImplemented
    sizes = (*first.shape[:d], len(tensors), *first.shape[d:])
    return in_one_piece(sizes, first)


def pad(x: torch.Tensor, pad: Sequence[Any], value: Any = 0) -> Any:
    """Sizes grow by what is put before and after; in rows where the tensor is."""
    sizes = list(x.shape)
    for k in range(len(pad) // 2):
        d = x.dim() - 1 - k
        sizes[d] = sizes[d] + pad[2 * k] + pad[2 * k + 1]
        if not expected(sizes[d] >= 0):
            raise RuntimeError(f"The input size {x.shape[d]}, plus padding {pad[2 * k]} and {pad[2 * k + 1]}, resulted "
                               "in a negative output size, which is invalid.")
    if not in_rows(x):
        return NotImplemented
    return in_one_piece(sizes, x)


def scatter(view: Callable[..., Any]) -> Callable[..., Any]:
    """A tensor with a part replaced: laid out as it is, in memory of its own."""

    def rule(x: torch.Tensor, source: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        part = view(x, *args, **kwargs)
        if not all_same(part.sizes, source.shape) and tuple(part.sizes) != tuple(source.shape):
            raise RuntimeError(
                "expected src to have a size equal to the slice of self. "
                f"src size = {list(source.shape)}, slice size = {list(part.sizes)}"
            )
        return seen(x, x.shape, x.stride())

    return rule


def roll(x: torch.Tensor, shifts: Any, dims: Any = ()) -> Any:
    """In rows where the tensor is."""
    if not dims or len(shifts) != len(dims) or not in_rows(x):
        return NotImplemented
    for d in dims:
        axis(d, x.dim())
    return in_one_piece(x.shape, x)


def like(
    x: torch.Tensor, *_: Any, memory_format: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    **__: Any,
) -> Any:  # fmt: skip
    """Fresh memory in the order of the dimensions of `x`."""
    if memory_format not in (None, torch.preserve_format) or {x.layout, layout or x.layout} != {torch.strided}:
        return NotImplemented
    sizes = tuple(map(plain, x.shape))
    strides = tuple(map(plain, elementwise_strides(sizes, (x,))))
    return Spec(sizes, strides, dtype or x.dtype, torch.device(device) if device is not None else x.device)


def cross_entropy(x: torch.Tensor, target: torch.Tensor, weight: Any = None, reduction: int = 1) -> Any:
    """Of probabilities and targets of the same sizes: laid out as the probabilities."""
    if not all_same(x.shape, target.shape):
        return NotImplemented
    return Spec((), (), x.dtype, x.device) if reduction else like(x)


def cross_entropy_backward(gradient: Any, x: torch.Tensor, target: torch.Tensor, *_: Any) -> Any:
    """Laid out as the probabilities."""
    return like(x)


def _expanded_scatter(operator: Any) -> Callable[..., Any]:
    """Of an expanded tensor the result is laid out as a clone; PyTorch 2.11's meta kernel lets its elements overlap."""

    def rule(x: torch.Tensor, source: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes = tuple(x.shape)
        if not any(general(stride) == 0 and not is_one(size) for size, stride in zip(sizes, x.stride(), strict=True)):
            return NotImplemented
        operator(*(torch.empty(t.shape, dtype=t.dtype, device="meta") for t in (x, source)), *args, **kwargs)
        return fresh(sizes, elementwise_strides(sizes, (x,)), x)

    return rule


expanded_scatter = ForOverload(_expanded_scatter)
