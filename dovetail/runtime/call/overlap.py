"""Inputs that share memory: compiled code is only right when nothing it writes to is read under another name.

    def f(x, y): x.add_(1); return y * 2          y = x[1:]: eager's y has changed, the compiled program's has not

A program that writes to an input therefore looks at its inputs' addresses on every call, and leaves calls in
which a written input shares memory with another one, or several of its own elements share a place, to eager.
"""

from __future__ import annotations

import bisect
import operator
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from dovetail.ir.records import dataclass
from dovetail.ops.fake.rules.layout import overlaps_itself

_address = torch.Tensor.data_ptr

OVERLAPS = "it writes to a tensor that shares memory with another one"

#: `good` is what `unmoved` gives.
NOW = threading.local()


def unmoved() -> Any:
    """Stands for where the inputs of the protected call under way lie: the same object in another call of the same
    function means that none has moved. None outside such calls."""
    return getattr(NOW, "good", None)


def several_in_one_place(inputs: Sequence[Any], written: Sequence[int]) -> bool:
    """Is it known that elements of a written input share a place? Then no kernel can write them."""
    return any(k < len(inputs) and _static(inputs[k]) and overlaps_itself(inputs[k]) for k in written)


@dataclass(frozen=True)
class _Good:
    """A call whose inputs did not overlap: addresses, layouts that change, where written memory begins and ends."""

    addresses: list[int]
    layouts: list
    starts: list[int]
    ends: list[int]

    def shares(self, address: int, size: int) -> bool:
        """Does memory overlap what this call wrote to?"""
        before = bisect.bisect_left(self.starts, address + size)
        return size > 0 and before > 0 and self.ends[before - 1] > address


class Overlap:
    """Finds calls in which memory of an input that is written to belongs to another one too.

    The addresses decide, with the layouts of inputs whose own change (None in `spans`); those of the last good call
    need no second look, and where what is written stayed in its place, only what moved does (new gradients).
    """

    def __init__(self, written: frozenset[int], spans: list, fixed: list[tuple[int, int]]) -> None:
        self.written, self.spans, self.fixed = written, spans, fixed
        self.tensors = [k for k, n in enumerate(spans) if n != 0]
        self.changing = [k for k, n in enumerate(spans) if n is None]
        self.all = len(self.tensors) == len(spans)
        self.chosen: Any = operator.itemgetter(*self.tensors, slice(0))  # never one alone: a tuple
        self.last = _Good([], [], [], [])

    @classmethod
    def of(cls, written: Sequence[int], inputs: Sequence[Any], constants: Sequence[Any]) -> Overlap | None:
        """None where nothing can overlap. `inputs` have the metadata of the real ones, which `written` are positions
        of; `constants` are real, and positions after those of inputs are theirs."""
        places = frozenset(k for k in written if k < len(inputs))
        spans = [span(t) if _static(t) else None for t in inputs]
        if all(spans[k] == 0 for k in places):
            return None
        return cls(places, spans, [(t.data_ptr(), span(t)) for t in constants])

    def found(self, inputs: Sequence[Any]) -> bool:
        """Does a call overlap?"""
        addresses = list(map(_address, inputs if self.all else self.chosen(inputs)[:-1]))
        layouts = [(inputs[k].shape, inputs[k].stride()) for k in self.changing]
        last = self.last
        return (addresses != last.addresses or layouts != last.layouts) and self._moved(addresses, layouts, inputs)

    def _moved(self, addresses: list[int], layouts: list, inputs: Sequence[Any]) -> bool:
        good, tensors, written = self.last, self.tensors, self.written
        if good.addresses and not self.changing:
            moved = [k for k, (now, then) in enumerate(zip(addresses, good.addresses, strict=True)) if now != then]
            if not any(tensors[k] in written for k in moved):
                if any(good.shares(addresses[k], self.spans[tensors[k]]) for k in moved):
                    return True
                self.last = replace(good, addresses=addresses)
                return False
        sizes = [span(inputs[k]) if self.spans[k] is None else self.spans[k] for k in tensors]
        places = list(zip(tensors, addresses, sizes, strict=True))
        if any(k in written and overlaps_itself(inputs[k]) for k in self.changing):
            return True
        if collide(places, written, self.fixed):
            return True
        own = sorted((a, a + n) for k, a, n in places if n and k in written)
        self.last = _Good(addresses, layouts, [start for start, _ in own], [end for _, end in own])
        return False


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
