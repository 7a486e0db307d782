"""What a lowered tensor is: how to read one element, and the memory that holds it if any does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Buffer, Expr
from dovetail.ir.records import dataclass
from dovetail.ops.fake.symbolic.symint import final_of

Indices = tuple[Dim, ...]
LoadFn = Callable[[Indices, "Expr | None"], Expr]


@dataclass(frozen=True, slots=True)
class Spec:
    """The metadata that eager's result has."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    @property
    def empty(self) -> bool:
        """Has it no elements?"""
        return 0 in self.sizes


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph.

    `load(indices, mask)` reads one element; an element whose mask is false reads as anything and touches
    no memory. `base` is the buffer whose memory holds the tensor at `offset` (counted, as all
    offsets, from base's own first element) with `strides`; without it the tensor exists only as an
    expression and `strides` are those it would have in eager.
    """

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    load: LoadFn
    base: Buffer | None = None
    offset: Dim = 0

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.sizes)

    @property
    def numel(self) -> Dim:
        """The number of elements."""
        return dims.product(self.sizes)

    @property
    def spec(self) -> Spec:
        """What it looks like."""
        return Spec(self.dtype, self.device, self.sizes, self.strides)

    def at(self, indices: Indices) -> Expr:
        """The element at `indices`."""
        return self.load(indices, None)

    def broadcast(self, indices: Indices, mask: Expr | None = None) -> Expr:
        """The element that a consumer of larger shape sees at `indices`."""
        own = indices[len(indices) - len(self.sizes) :]
        return self.load(tuple(0 if size == 1 else i for size, i in zip(self.sizes, own, strict=True)), mask)

    def remapped(
        self, sizes: tuple[Dim, ...], strides: tuple[Dim, ...], source: Callable[[Indices], Indices], offset: Dim | None
    ) -> Value:
        """The tensor whose element `i` is this one's `source(i)`.

        `offset` is where it starts in the same memory; None when no strides describe it.
        """
        inner = self.load

        def load(indices: Indices, mask: Expr | None) -> Expr:
            return inner(source(indices), mask)

        if offset is None or self.base is None:
            return Value(self.dtype, self.device, sizes, strides, load)
        return Value(self.dtype, self.device, sizes, strides, load, self.base, offset)

    def as_copy(self, strides: tuple[Dim, ...]) -> Value:
        """The same elements, in no memory yet."""
        return replace(self, strides=strides, base=None, offset=0)

    def with_load(self, dtype: torch.dtype, load: LoadFn) -> Value:
        """The same shape computed from this one, in no memory."""
        return replace(self, dtype=dtype, load=load, base=None, offset=0)


def spec_of(val: Any) -> Any:
    """The Spec of a (fake) tensor; of a tuple or list of them a tuple; other values as they are.

    Raises Unsupported for a tensor that strides do not describe.
    """
    if isinstance(val, torch.Tensor):
        if val.layout is not torch.strided:
            raise Unsupported(
                "sparse-tensor", f"a tensor has the layout {val.layout}, and only strided tensors are compiled",
                "Convert it with .to_dense(), or keep this code in a function marked with dovetail.disable.",
            )
        return Spec(val.dtype, val.device, tuple(map(final_of, val.shape)), tuple(map(final_of, val.stride())))
    if isinstance(val, (tuple, list)):
        return tuple(map(spec_of, val))
    return val
