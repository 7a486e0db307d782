"""Convolutions whose channels each have a weight of their own (depthwise ones), and their gradients.

    y[n, c, o]  = sum over taps t of x[n, c, o * stride - padding + t * dilation] * w[c, t]
    dx[n, c, i] = sum over t of dy[n, c, (i + padding - t * dilation) / stride] * w[c, t], where that is a whole number
    dw[c, t]    = sum over n, o of dy[n, c, o] * x[n, c, o * stride - padding + t * dilation]

There is nothing for tensor cores in them: they take as long as memory does, and what surrounds them can join. cuDNN's
gradients in float32 with the channels last start slowly as well, 0.13 to 0.34 s for each shape (H100).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.devices import traits
from dovetail.ir.dims import Dim, floordiv
from dovetail.ir.loops import Expr, Local, Loop, Reduce, Store
from dovetail.ir.records import dataclass
from dovetail.ir.reshape import contiguous_strides
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import images
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter, nested, ranges
from dovetail.ops.lowering.normalization import all_but
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows(fresh=True, same_bits=lambda args, out: False)
#: Taps of a weight at most, and of those of one kernel of its gradient: each takes a register for every element.
MOST, TOGETHER = 49, 5
#: A weight's gradient is the library's up to so many taps, and in half types: it starts at once, and takes less time
#: (5x5 taps, 32x144x56x56, on an H200: 110 us, kernels 170; 7x7 taps, 16x384x14x14: 370, and kernels 65).
LIBRARY = 25


@dataclass(frozen=True)
class _Axis:
    """How the taps of a weight lie along one dimension of an image of `size` elements, for `count` results."""

    taps: int
    stride: int
    padding: int
    dilation: int
    size: Dim
    count: Dim

    def read(self, at: Dim, tap: int) -> tuple[Dim, Expr]:
        """The element that a tap reads for a result, and whether there is one."""
        place = at * self.stride - self.padding + tap * self.dilation
        return place, build.within(place, 0, self.size) if self.padding else build.const(True, torch.bool)

    def written(self, element: Dim) -> Iterator[tuple[Dim, Dim, Expr]]:
        """The taps that may read an element, the result of each, and whether there is one."""
        at = element + self.padding
        if self.stride == 1:
            for tap in range(self.taps):
                result = at - tap * self.dilation
                yield tap, result, build.within(result, 0, self.count)
            return
        for k in range(-(-self.taps // self.stride)):
            result = floordiv(at, self.stride) - k
            inside, which = build.within(result, 0, self.count), at - result * self.stride
            if self.taps % self.stride:
                inside = build.and_(inside, build.within(which, 0, self.taps))
            yield dims.minimum(which, self.taps - 1), result, inside


def in_kernels(x: Any, weight: Any, stride: Sequence[int], dilation: Sequence[int], groups: int) -> bool:
    """Are such convolutions, and their gradients, kernels of our own? Of what has a device, sizes and a dtype."""
    sizes = tuple(weight.shape if isinstance(weight, torch.Tensor) else weight.sizes)
    if not traits(x.device).depthwise or x.dtype not in build.FLOATS or not all(type(n) is int for n in sizes):
        return False
    steps = zip(*images.each_dimension(len(sizes) - 2, stride, dilation), strict=True)
    apart = groups == sizes[0] > 1 and sizes[1] == 1 and math.prod(sizes[2:]) <= MOST
    return apart and all(step == 1 or spread == 1 for step, spread in steps)


def _axes(x: Sequence[Dim], weight: Sequence[Dim], y: Sequence[Dim], *how: Sequence[int]) -> list[_Axis]:
    """`how`: strides, paddings and dilations."""
    columns = (weight[2:], *images.each_dimension(len(weight) - 2, *how), x[2:], y[2:])
    return [_Axis(*column) for column in zip(*columns, strict=True)]


@ROWS("aten::convolution", shape=images.convolution, trial=trials.CONVOLVED)
def convolution(
    emit: Emitter, out: Spec, input: Value, weight: Value, bias: Value | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    """Each element adds up what its taps read."""
    if transposed or out.empty or not in_kernels(input, weight, stride, dilation, groups):
        return NotImplemented
    axes, dtype = _axes(input.sizes, weight.sizes, out.sizes, stride, padding, dilation), opmath(out.dtype)
    of_tap = _by_tap(emit, weight, out)

    def at(indices: Indices) -> Expr:
        n, c, *place = indices
        total = build.const(0, dtype) if bias is None else build.cast(bias.at((c,)), dtype)
        for taps in itertools.product(*(range(axis.taps) for axis in axes)):
            found = _element(input, axes, (n, c), place, taps, dtype)
            total = build.add(total, build.mul(found, build.cast(of_tap.at((*taps, c)), dtype)))
        return total

    return emit.pointwise(out, at)


@ROWS("aten::convolution_backward", shape=images.convolution_backward)
def convolution_backward(
    emit: Emitter, out: tuple, grad_output: Value, input: Value, weight: Value, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    """Each element of the image adds up what taps read it; each tap, what it is multiplied with."""
    empty = grad_output.spec.empty or input.spec.empty
    if transposed or empty or not in_kernels(input, weight, stride, dilation, groups):
        return NotImplemented
    axes = _axes(input.sizes, weight.sizes, grad_output.sizes, stride, padding, dilation)
    how = stride, padding, dilation, transposed, output_padding, groups
    results: list[Value | None] = [None, None, None]
    if mask[0]:
        results[0] = _of_image(emit, out[0], axes, grad_output, weight)
    if mask[1] and (math.prod(axis.taps for axis in axes) <= LIBRARY or input.dtype is not torch.float32):
        results[1] = _by_library(emit, out[1], grad_output, input, weight, how)
    elif mask[1]:
        results[1] = _of_weight(emit, out[1], axes, grad_output, input)
    if mask[2]:
        wide, incoming = opmath(grad_output.dtype), lambda i: build.cast(grad_output.at(i), wide)
        results[2] = emit.reduce(out[2], grad_output.spec, all_but(grad_output, 1), "sum", incoming, wide)
    return tuple(results)


def _of_image(emit: Emitter, out: Spec, axes: Sequence[_Axis], gradient: Value, weight: Value) -> Value:
    dtype, of_tap = opmath(out.dtype), _by_tap(emit, weight, out)

    def at(indices: Indices) -> Expr:
        n, c, *place = indices
        total = build.const(0, dtype)
        for each in itertools.product(*(axis.written(i) for axis, i in zip(axes, place, strict=True))):
            taps, result, insides = zip(*each, strict=True)
            inside = reduce(build.and_, insides)
            found = build.cast(gradient.load((n, c, *result), inside), dtype)
            found = build.where(inside, found, build.const(0, dtype))
            total = build.add(total, build.mul(found, build.cast(of_tap.at((*taps, c)), dtype)))
        return total

    return emit.pointwise(out, at)


def _by_library(emit: Emitter, out: Spec, gradient: Value, image: Value, weight: Value, how: tuple) -> Value:
    """The weight's gradient alone."""
    made, given = emit.buffer(out), map(emit.reference, (gradient, image, weight))
    operator, mask = torch.ops.aten.convolution_backward.default, [False, True, False]
    emit.library(operator, (*given, None, *how, mask), {}, (None, made, None))
    return emit.stored(made)


def _of_weight(emit: Emitter, out: Spec, axes: Sequence[_Axis], gradient: Value, image: Value) -> Value:
    dtype, made = opmath(out.dtype), emit.new(out)
    taps = list(itertools.product(*(range(axis.taps) for axis in axes)))
    for first in range(0, len(taps), TOGETHER):
        n, c, *place = full = ranges(gradient.sizes, "i")
        reduces: list[Reduce] = []
        stores: list[Store] = []
        for tap in taps[first : first + TOGETHER]:
            found = _element(image, axes, (n, c), place, tap, dtype)
            name = f"r{emit.groups}_{len(reduces)}"
            product = build.mul(build.cast(gradient.at(full), dtype), found)
            reduces.append(Reduce(name, "sum", product, dtype))
            stores.append(Store(made, (c, 0, *tap), build.cast(Local(name, dtype), out.dtype)))
        others = tuple(0 if d == 1 else i for d, i in enumerate(full))
        emit.group((c,), (Loop(nested(others, gradient.strides), tuple(reduces)), Loop((), tuple(stores))))
    return emit.stored(made)


def _element(
    image: Value, axes: Sequence[_Axis], channel: Indices, place: Sequence[Dim], taps: Sequence[int],
    dtype: torch.dtype,
) -> Expr:  # fmt: skip
    """What taps read of a channel for a result at a place: nothing beyond the image."""
    places, insides = zip(*(axis.read(at, tap) for axis, at, tap in zip(axes, place, taps, strict=True)), strict=True)
    inside = reduce(build.and_, insides)
    found = build.cast(image.load((*channel, *places), inside), dtype)
    return build.where(inside, found, build.const(0, dtype))


def _by_tap(emit: Emitter, weight: Value, image: Spec) -> Value:
    """The weight of each tap, for all channels together where an image has them so: (taps..., channels)."""
    _, channels, *_ = image.sizes
    sizes = (*weight.sizes[2:], channels)

    def at(indices: Indices) -> Expr:
        *taps, c = indices
        return weight.at((c, 0, *taps))

    spec = Spec(weight.dtype, weight.device, sizes, contiguous_strides(sizes))
    return emit.held(emit.pointwise(spec, at)) if image.strides[1] == 1 else emit.expression(spec, at)
