"""Small windows of images: averages, and gradients of averages and of the largest elements.

    avg_pool2d(x, 2)[n, c, h, w] = (x[n, c, 2h, 2w] + x[n, c, 2h, 2w + 1] + x[n, c, 2h + 1, 2w] + ...) / 4
    its gradient     [n, c, h, w] = g[n, c, h // 2, w // 2] / 4
    of max_pool2d    [n, c, h, w] = g[n, c, h // 2, w // 2] if places[n, c, h // 2, w // 2] == h * width + w else 0

Each is one read for each element of a window, or for each window that an element is in. PyTorch's kernels for GPUs read
as often, and with the channels last one by one (gradients of averages of 3 images in a bfloat16 ResNet, H100: 173 us
each).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch

from dovetail.ir.devices import traits
from dovetail.ir.dims import Dim, floordiv
from dovetail.ir.loops import Expr
from dovetail.ir.records import dataclass
from dovetail.ir.reshape import contiguous_strides
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows(takes_sizes=True, fresh=True)
#: Reads for an element at most.
_MOST = 16
_YES = build.const(True, torch.bool)


@dataclass(frozen=True)
class _Axis:
    """How windows lie along one dimension of the image, of `size` elements."""

    size: Dim
    window: int
    stride: int
    padding: int
    outside: bool  # does padding count as elements?
    whole: bool  # is no window cut off at the end?

    def places(self, at: Dim) -> Iterator[tuple[Dim, Expr]]:
        """The elements of a window, and whether each is one of the image's."""
        for k in range(self.window):
            place = at * self.stride - self.padding + k
            yield place, _YES if self.whole and not self.padding else build.within(place, 0, self.size)

    def windows(self, place: Dim, count: Dim) -> Iterator[tuple[Dim, Expr]]:
        """The windows, of `count`, that may hold an element, and whether each does."""
        at = place + self.padding
        for k in reversed(range(-(-self.window // self.stride))):
            window = floordiv(at, self.stride) - k
            inside = build.within(window, 0, count)
            if self.window % self.stride:
                inside = build.and_(inside, build.within(at - window * self.stride, 0, self.window))
            yield window, inside

    def counted(self, at: Dim, dtype: torch.dtype) -> Expr | None:
        """How many elements a window has, where that is not the same for all. Small floats are exact, and fast."""
        if self.whole and (self.outside or not self.padding):
            return None
        low, high = (-self.padding, self.size + self.padding) if self.outside else (0, self.size)
        one, none = build.const(1, dtype), build.const(0, dtype)
        places = (at * self.stride - self.padding + k for k in range(self.window))
        return reduce(build.add, (build.where(build.within(place, low, high), one, none) for place in places))


def _axes(
    sizes: Sequence[Dim], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil: bool,
    outside: bool,
) -> list[_Axis]:  # fmt: skip
    windows, paddings = pair(kernel), pair(padding)
    strides = pair(stride) if stride else windows
    return [_Axis(*of, outside, not ceil) for of in zip(sizes[-2:], windows, strides, paddings, strict=True)]


def pair(value: Sequence[int]) -> list[int]:
    """One number for each dimension of an image, of which operators take one for both."""
    return list(value) * 2 if len(value) == 1 else list(value)


def _divided(total: Expr, axes: Sequence[_Axis], window: Indices, divisor: int | None) -> Expr:
    """A sum over a window by what it has elements."""
    counts = [axis.counted(at, total.dtype) for axis, at in zip(axes, window, strict=True)]
    if divisor is not None or not any(counts):
        return build.div(total, build.const(divisor or math.prod(a.window for a in axes), total.dtype))
    known = math.prod(axis.window for axis, count in zip(axes, counts, strict=True) if count is None)
    return build.div(total, reduce(build.mul, (c for c in counts if c is not None), build.const(known, total.dtype)))


def _sum(of: Sequence[Iterator[tuple[Dim, Expr]]], term: Callable[[Indices, Expr], Expr]) -> Expr:
    """Of what there is at each place, where it is inside."""
    parts = []
    for each in itertools.product(*of):
        inside = reduce(build.and_, (condition for _, condition in each))
        found = term(tuple(place for place, _ in each), inside)
        parts.append(build.where(inside, found, build.const(0, found.dtype)))
    return reduce(build.add, parts)


def _element(value: Value, indices: Indices, inside: Expr, dtype: torch.dtype) -> Expr:
    return build.cast(value.at(indices) if inside is _YES else value.load(indices, inside), dtype)


def _in_loops(value: Value, reads: int) -> bool:
    return traits(value.device).pools and value.dtype in build.FLOATS and reads <= _MOST and 0 not in value.sizes


@ROWS("aten::avg_pool2d")
def avg_pool2d(
    emit: Emitter, out: Spec, self: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Each window is added up where it is read."""
    axes = _axes(self.sizes, kernel_size, stride, padding, ceil_mode, count_include_pad)
    if not _in_loops(self, math.prod(a.window for a in axes)):
        return NotImplemented
    dtype = opmath(out.dtype)

    def at(indices: Indices) -> Expr:
        plane, window = indices[:-2], indices[-2:]
        each = [axis.places(at) for axis, at in zip(axes, window, strict=True)]
        total = _sum(each, lambda place, inside: _element(self, (*plane, *place), inside, dtype))
        return build.cast(_divided(total, axes, window, divisor_override), out.dtype)

    return emit.pointwise(out, at)


@ROWS("aten::avg_pool2d_backward")
def avg_pool2d_backward(
    emit: Emitter, out: Spec, grad_output: Value, self: Value, kernel_size: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Any:  # fmt: skip
    """Each place adds up what comes from the windows that it is in."""
    axes = _axes(out.sizes, kernel_size, stride, padding, ceil_mode, count_include_pad)
    if not _in_loops(grad_output, math.prod(-(-a.window // a.stride) for a in axes)):
        given = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        return _in_planes(emit, out, grad_output, self, given) if traits(out.device).pools else NotImplemented
    dtype = opmath(out.dtype)

    def at(indices: Indices) -> Expr:
        plane, place = indices[:-2], indices[-2:]
        counts = grad_output.sizes[-2:]
        each = [axis.windows(at, n) for axis, at, n in zip(axes, place, counts, strict=True)]

        def share(window: Indices, inside: Expr) -> Expr:
            return _divided(_element(grad_output, (*plane, *window), inside, dtype), axes, window, divisor_override)

        return build.cast(_sum(each, share), out.dtype)

    return emit.pointwise(out, at)


@ROWS("aten::max_pool2d_with_indices_backward")
def max_pool2d_with_indices_backward(
    emit: Emitter, out: Spec, grad_output: Value, self: Value, kernel_size: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool, indices: Value,
) -> Any:  # fmt: skip
    """Each place adds up what comes from the windows whose largest element it is."""
    axes = _axes(out.sizes, kernel_size, stride, padding, ceil_mode, False)
    reads = 2 * math.prod(-(-a.window // a.stride) for a in axes)
    if not _in_loops(grad_output, reads) or any(n != 1 for n in dilation):
        return NotImplemented
    dtype, width = opmath(out.dtype), out.sizes[-1]

    def at(place: Indices) -> Expr:
        plane, (row, column) = place[:-2], place[-2:]
        here, counts = build.index(row * width + column), grad_output.sizes[-2:]
        each = [axis.windows(at, n) for axis, at, n in zip(axes, (row, column), counts, strict=True)]

        def share(window: Indices, inside: Expr) -> Expr:
            found = _element(grad_output, (*plane, *window), inside, dtype)
            largest = build.eq(_element(indices, (*plane, *window), inside, torch.int64), here)
            return build.where(largest, found, build.const(0, dtype))

        return build.cast(_sum(each, share), out.dtype)

    return emit.pointwise(out, at)


def _in_planes(emit: Emitter, out: Spec, grad_output: Value, self: Value, given: tuple) -> Value:
    """PyTorch's kernel, one plane after the other: with the channels last it leaves padding out of account on GPUs."""
    planes = [v if v.strides == contiguous_strides(v.sizes) else _planes(emit, v) for v in (grad_output, self)]
    made = emit.buffer(Spec(out.dtype, out.device, out.sizes, contiguous_strides(out.sizes)))
    emit.library(torch.ops.aten.avg_pool2d_backward.default, (*map(emit.reference, planes), *given), {}, (made,))
    result = emit.stored(made)
    return result if result.strides == out.strides else emit.copy(result, out)


def _planes(emit: Emitter, value: Value) -> Value:
    return emit.copy(value, replace(value.spec, strides=contiguous_strides(value.sizes)))
