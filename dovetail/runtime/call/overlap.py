"""Inputs that share memory: compiled code is only right when nothing it writes to is read under another name.

    def f(x, y): x.add_(1); return y * 2          y = x[1:]: eager's y has changed, the compiled program's has not

A program that writes to an input therefore looks at its inputs' addresses on every call, and leaves calls in
which a written input shares memory with another one, or several of its own elements share a place, to eager.
"""

from __future__ import annotations

import bisect
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from dovetail.ir.records import dataclass
from dovetail.ops.fake.rules.layout import overlaps_itself

_address = torch.Tensor.data_ptr

Call = Callable[..., Any]


_now = threading.local()


def unmoved() -> Any:
    """Stands for where the inputs of the protected call under way lie: the same object in another call of the same
    function means that none has moved. None outside such calls."""
    return getattr(_now, "good", None)


def several_in_one_place(inputs: Sequence[Any], written: Sequence[int]) -> bool:
    """Is it known that elements of a written input share a place? Then no kernel can write them."""
    return any(k < len(inputs) and _static(inputs[k]) and overlaps_itself(inputs[k]) for k in written)


def fallback_on_overlap(
    call: Call, eager: Call, written: Sequence[int], inputs: Sequence[Any], constants: Sequence[Any]
) -> Call:
    """`call`, or `eager` for calls whose inputs overlap; both take the graph's inputs and compute the same.

    `written` are positions in `inputs`, whose members have the metadata of the real ones (`constants` are real and
    follow them).
    """
    written = [k for k in written if k < len(inputs)]
    if not written:
        return call
    known = [_static(t) for t in inputs]
    if several_in_one_place(inputs, written):
        return eager
    fixed = [(t.data_ptr(), span(t)) for t in constants]
    spans = [span(t) if fits else None for t, fits in zip(inputs, known, strict=True)]
    if all(spans[k] == 0 for k in written):
        return call
    return _by_address(call, eager, frozenset(written), spans, fixed)


@dataclass(frozen=True)
class _Good:
    """A call whose inputs did not overlap: addresses, layouts that change, where written memory begins and ends."""

    addresses: list[int]
    layouts: list[Any]
    starts: list[int]
    ends: list[int]

    def shares(self, address: int, size: int) -> bool:
        """Does memory overlap what this call wrote to?"""
        before = bisect.bisect_left(self.starts, address + size)
        return size > 0 and before > 0 and self.ends[before - 1] > address


def _by_address(call: Call, eager: Call, written: frozenset[int], spans: list[Any], fixed: list[Any]) -> Call:
    """The addresses decide, with the layouts of inputs whose own change (None in `spans`); those of the last good call
    need no second look, and where what is written stayed in its place, only what moved does (new gradients)."""
    tensors = [k for k, n in enumerate(spans) if n != 0]
    chosen = None if len(tensors) == len(spans) else operator.itemgetter(*tensors, 0)  # never one alone: a tuple
    changing = [k for k, n in enumerate(spans) if n is None]
    last = _Good([], [], [], [])

    def overlap(addresses: list[int], layouts: list[Any], inputs: Sequence[Any]) -> bool:
        nonlocal last
        good = last
        if good.addresses and not changing:
            moved = [k for k, (now, then) in enumerate(zip(addresses, good.addresses, strict=True)) if now != then]
            if not any(tensors[k] in written for k in moved):
                if any(good.shares(addresses[k], spans[tensors[k]]) for k in moved):
                    return True
                last = replace(good, addresses=addresses)
                return False
        sizes = [span(inputs[k]) if spans[k] is None else spans[k] for k in tensors]
        places = list(zip(tensors, addresses, sizes, strict=True))
        if any(k in written and overlaps_itself(inputs[k]) for k in changing) or collide(places, written, fixed):
            return True
        own = sorted((a, a + n) for k, a, n in places if n and k in written)
        last = _Good(addresses, layouts, [start for start, _ in own], [end for _, end in own])
        return False

    def protected(*inputs: Any) -> Any:
        addresses = list(map(_address, inputs if chosen is None else chosen(inputs)[:-1]))
        layouts = [(inputs[k].shape, inputs[k].stride()) for k in changing]
        if (addresses != last.addresses or layouts != last.layouts) and overlap(addresses, layouts, inputs):
            return eager(*inputs)
        around, _now.good = unmoved(), last
        try:
            return call(*inputs)
        finally:
            _now.good = around

    return protected


def collide(places: list[tuple[int, int, int]], written: frozenset[int], fixed: list[tuple[int, int]]) -> bool:
    """Does memory of a written input belong to another one too? `places` are (position, address, bytes)."""
    every = [(a, a + n, k in written) for k, a, n in places if n] + [(a, a + n, False) for a, n in fixed if n]
    every.sort()
    end = end_written = 0  # of everything so far, of what is written so far
    for start, stop, writes in every:
        if start < (end if writes else end_written):
            return True
        end = max(end, stop)
        end_written = max(end_written, stop) if writes else end_written
    return False


def span(tensor: Any) -> int:
    """Bytes from the first element's to the last's end; 0 for what has no memory of its own."""
    if not isinstance(tensor, torch.Tensor):
        return 0
    last = 0
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 0:
            return 0
        last += (size - 1) * stride
    return (last + 1) * tensor.itemsize


def _static(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or all(type(n) is int for n in (*value.shape, *value.stride()))
