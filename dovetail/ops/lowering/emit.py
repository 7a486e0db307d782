"""Builds the program: operators call it to add groups, library calls and views.

A tensor that lives in memory is a Buffer of eager's sizes and strides; everything else stays an
expression until something needs its memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from dovetail.ir import dims, dimvalues
from dovetail.ir.dims import Dim
from dovetail.ir.loops import (
    Buffer,
    BufferRef,
    Check,
    Const,
    Expr,
    Group,
    Item,
    LibraryCall,
    Load,
    Local,
    Loop,
    Reduce,
    Store,
    View,
)
from dovetail.ir.ranges import new_range
from dovetail.ir.reshape import contiguous_strides
from dovetail.ir.scalar import REDUCTIONS
from dovetail.ops.lowering import build
from dovetail.ops.lowering.value import Indices, Spec, Value

At = Callable[[Indices], Expr]


def by_stride(strides: Sequence[Dim]) -> list[int]:
    """Dimensions from the slowest to the fastest."""
    steps = list(map(dimvalues.typical, strides))
    return sorted(range(len(steps)), key=lambda d: -steps[d])


def ranges(sizes: Sequence[Dim], prefix: str) -> Indices:
    """One range for each dimension; 0 where the size is 1."""
    return tuple(0 if size == 1 else new_range(f"{prefix}{d}", size) for d, size in enumerate(sizes))


def nested(indices: Indices, strides: Sequence[Dim]) -> Indices:
    """The ranges among `indices`, ordered so that the last walks the smallest stride."""
    return tuple(indices[d] for d in by_stride(strides) if indices[d] != 0)


def disjoint(sizes: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Do different indices have different places? Assumed of symbolic strides."""
    pairs = [(t, n) for n, t in zip(sizes, strides, strict=True) if isinstance(t, int) and isinstance(n, int)]
    if len(pairs) < len(sizes):
        return True
    reach = 0
    for stride, size in sorted(pair for pair in pairs if pair[1] > 1):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


MANY, FEW, PARTS = 1 << 18, 32, 64


def alone(kind: str, element: Expr) -> Expr:
    """The reduction of a single element: a sum starts at 0.0, with which -0.0 makes 0.0."""
    return build.add(element, build.const(REDUCTIONS[kind], element.dtype)) if kind == "sum" else element


def two_stages(source: Spec, reduced: set[int]) -> tuple[int, int] | None:
    """(axis, parts) when a long reduction of a few columns should be done in parts, which threads can share.

    Rows, whose elements are adjacent, are left to code generation.
    """
    sizes = [n for n in source.sizes if isinstance(n, int)]
    if len(sizes) < len(source.sizes) or len(reduced) == len(sizes):
        return None
    columns = math.prod(size for d, size in enumerate(sizes) if d not in reduced)
    fastest = [d for d in by_stride(source.strides) if sizes[d] != 1][-1:]
    if math.prod(sizes) < MANY or columns >= FEW or not fastest or fastest[0] in reduced:
        return None
    axis = max(reduced, key=lambda d: sizes[d])
    parts = next((p for p in range(PARTS, 7, -1) if sizes[axis] % p == 0 and sizes[axis] // p >= 8), None)
    return None if parts is None else (axis, parts)


class Emitter:
    """`begin` says which operator the following calls lower."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.label = "op"
        self.returned: tuple[Spec, ...] = ()
        self.owned: set[str] = set()  # buffers whose memory the program itself lays out
        self.origins: dict[str, Dim] = {}  # storage_offset() of each input
        self.ends: dict[int, int] = {}  # of arguments' values: what their integers are below
        self.stack: tuple = ()  # the user's, of the operator that is being lowered
        self.lines: dict[str, tuple] = {}  # the same of what each buffer holds
        self._buffers = 0
        self.groups = 0
        self._views: dict[Any, Buffer] = {}
        self._copies: dict[int, tuple[Value, Value]] = {}

    def begin(self, label: str, returned: tuple[Spec, ...] = ()) -> None:
        """`returned`: those of the operator's results, as they are, that outlive the program."""
        self.label, self.returned = label, returned

    def outlives(self, spec: Any) -> bool:
        """Is it a result of the operator that outlives the program?"""
        return any(spec is s for s in self.returned)

    # ------------------------------------------------------------ names

    def buffer(self, spec: Spec) -> Buffer:
        """A new buffer for a value that looks so: an output if it leaves the program, else a temporary."""
        name = f"b{self._buffers}"
        self._buffers += 1
        kind = "output" if self.outlives(spec) else "temporary"
        if self.stack:
            self.lines[name] = self.stack
        return Buffer(name, spec.dtype, spec.device, spec.sizes, spec.strides, 0, kind)

    def group(self, outer: Indices, loops: tuple[Loop, ...]) -> None:
        """Append a group of loops."""
        self.items.append(Group(f"{self.label}_{self.groups}", outer, loops))
        self.groups += 1

    # ------------------------------------------------------------ values

    def stored(self, buffer: Buffer) -> Value:
        """The tensor that `buffer` holds."""

        def load(indices: Indices, mask: Expr | None) -> Expr:
            return Load(buffer, indices, mask)

        return Value(buffer.dtype, buffer.device, buffer.sizes, buffer.strides, load, buffer, buffer.offset)

    def constant(self, spec: Spec, number: build.Number) -> Value:
        """A tensor filled with one number, in no memory."""
        expr = build.const(number, spec.dtype)
        return Value(spec.dtype, spec.device, spec.sizes, spec.strides, lambda indices, mask: expr)

    def expression(self, spec: Spec, at: At) -> Value:
        """A tensor computed wherever it is read: for what costs nothing and reads no masked memory."""

        def load(indices: Indices, mask: Expr | None) -> Expr:
            return build.cast(at(indices), spec.dtype)

        return Value(spec.dtype, spec.device, spec.sizes, spec.strides, load)

    # ------------------------------------------------------------ groups

    def pointwise(self, out: Spec, at: At) -> Value:
        """A new buffer whose element `i` is `at(i)`, converted to its dtype.

        NotImplemented, and nothing added, when `at` gives that.
        """
        indices = ranges(out.sizes, "i")
        value = build.const(0, out.dtype) if out.empty else at(indices)
        if value is NotImplemented:
            return NotImplemented
        buffer = self.new(out)
        value = build.cast(value, out.dtype)
        self.group(nested(indices, out.strides), (Loop((), (Store(buffer, indices, value),)),))
        return self.stored(buffer)

    def new(self, out: Spec) -> Buffer:
        """A buffer for groups to write."""
        buffer = self.buffer(out)
        self.owned.add(buffer.name)
        return buffer

    def write(self, buffer: Buffer, part: Spec, place: Callable[[Indices], Indices], at: At) -> None:
        """Store `at(i)` at `place(i)` of a buffer, for every index of `part`."""
        indices = ranges(part.sizes, "i")
        value = build.const(0, buffer.dtype) if part.empty else build.cast(at(indices), buffer.dtype)
        self.group(nested(indices, part.strides), (Loop((), (Store(buffer, place(indices), value),)),))

    def check(self, over: Spec, condition: At, message: str) -> None:
        """IndexError(message) unless `condition` holds for every index."""
        if over.empty:
            return
        indices = ranges(over.sizes, "i")
        truth = condition(indices)
        if not (isinstance(truth, Const) and truth.value):
            self.group(nested(indices, over.strides), (Loop((), (Check(truth, message),)),))

    def reduce(
        self,
        out: Spec,
        source: Spec,
        axes: Sequence[int],
        kind: str,
        at: At,
        dtype: torch.dtype,
        finish: Callable[[Expr], Expr] | None = None,
        keepdim: bool = False,
    ) -> Value:
        """`finish(kind over `axes` of at(i))` for i in source's shape; `at` gives `dtype`.

        argmin and argmax give positions in the row-major order of the reduced axes.
        """
        finish = finish or (lambda x: x)
        if source.empty:
            identity = build.const(REDUCTIONS[kind] or 0, dtype)
            return self.pointwise(out, lambda _: finish(identity))
        positional = kind in ("argmin", "argmax")
        reduced = set(axes)
        parts = None if positional else two_stages(source, reduced)
        if parts is not None:
            source, at = self.partial(source, reduced, kind, at, dtype, *parts)
        full = tuple(
            0 if size == 1 else new_range(f"{'j' if d in reduced else 'i'}{d}", size)
            for d, size in enumerate(source.sizes)
        )
        inside = tuple(full[d] for d in by_stride(source.strides) if d in reduced and full[d] != 0)
        if positional:
            inside = tuple(full[d] for d in sorted(reduced) if full[d] != 0)
        kept = tuple(0 if d in reduced else full[d] for d in range(len(full)) if keepdim or d not in reduced)
        buffer = self.new(out)
        loops: tuple[Loop, ...] = ()
        result: Expr
        if inside:
            name = f"r{self.groups}"
            result = Local(name, torch.int64 if positional else dtype)
            loops = (Loop(inside, (Reduce(name, kind, at(full), result.dtype),)),)
        else:
            result = build.const(0, torch.int64) if positional else alone(kind, at(full))
        store = Store(buffer, kept, build.cast(finish(result), out.dtype))
        self.group(nested(kept, out.strides), (*loops, Loop((), (store,))))
        return self.stored(buffer)

    def scan(self, out: Spec, axis: int, kind: str, at: At) -> Value:
        """At each index `i` the `kind` of at(j) for all j up to i along `axis`; `at` gives `out`'s dtype."""
        if out.sizes[axis] == 1 or out.empty:
            return self.pointwise(out, at)
        full = ranges(out.sizes, "i")
        buffer, others = self.new(out), tuple(0 if d == axis else i for d, i in enumerate(full))
        store = Store(buffer, full, at(full), kind)
        self.group(nested(others, out.strides), (Loop((full[axis],), (store,)),))
        return self.stored(buffer)

    def partial(
        self, source: Spec, reduced: set[int], kind: str, at: At, dtype: torch.dtype, axis: int, parts: int
    ) -> tuple[Spec, At]:
        """Reduce `parts` stretches of an axis by themselves; what is left to reduce, and its elements."""
        length = dims.floordiv(source.sizes[axis], parts)
        sizes = (*source.sizes[:axis], parts, length, *source.sizes[axis + 1 :])
        step = source.strides[axis]
        strides = (*source.strides[:axis], step * length, step, *source.strides[axis + 1 :])
        inner = [d + (d >= axis) for d in reduced]
        left = tuple(1 if d in inner else size for d, size in enumerate(sizes))
        found = self.reduce(
            Spec(dtype, source.device, left, contiguous_strides(left)),
            Spec(source.dtype, source.device, sizes, strides), inner, kind,
            lambda i: at((*i[:axis], i[axis] * length + i[axis + 1], *i[axis + 2 :])), dtype, keepdim=True,
        )  # fmt: skip
        rest = (*left[: axis + 1], *left[axis + 2 :])
        return (
            Spec(dtype, source.device, rest, contiguous_strides(rest)),
            lambda i: found.at((*i[: axis + 1], 0, *i[axis + 1 :])),
        )

    # ------------------------------------------------------------ memory

    def view(self, base: Buffer, dtype: torch.dtype, sizes: Indices, strides: Indices, offset: Dim) -> Buffer:
        """A Buffer that is part of `base`'s memory; `base` itself when it is all of it."""
        whole = (base.dtype, base.sizes, base.strides, base.offset)
        if whole == (dtype, sizes, strides, offset):
            return base
        key = (base.name, dtype, sizes, strides, offset)
        found = self._views.get(key)
        if found is None:
            found = Buffer(f"b{self._buffers}", dtype, base.device, sizes, strides, offset, "temporary")
            self._buffers += 1
            self._views[key] = found
            self.items.append(View(found, base))
        return found

    def again(self, base: Buffer) -> Buffer:
        """The same memory as another tensor."""
        found = replace(base, name=f"b{self._buffers}", kind="temporary")
        self._buffers += 1
        self.items.append(View(found, base))
        return found

    def cloned(self, base: Buffer) -> Buffer:
        """A copy that PyTorch makes: of a tensor with the negative bit, memory holds the other signs."""
        made = self.buffer(Spec(base.dtype, base.device, base.sizes, contiguous_strides(base.sizes)))
        layout = {"memory_format": torch.contiguous_format}
        self.library(torch.ops.aten.clone.default, (BufferRef(base),), layout, (made,))
        return made

    def materialize(self, value: Value) -> Value:
        """The same tensor in memory: itself if it is, else a copy with eager's strides."""
        if value.base is not None:
            return value
        known = self._copies.get(id(value))
        if known is None:  # the pair keeps `value` alive, so its id stays its own
            known = self._copies[id(value)] = (value, self.fresh(value))
        return known[1]

    def fresh(self, value: Value) -> Value:
        """A copy with eager's strides; where those are 0, one element is stored and seen many times."""
        repeated = [stride == 0 and size != 1 for size, stride in zip(value.sizes, value.strides, strict=True)]
        sizes = tuple(1 if r else size for r, size in zip(repeated, value.sizes, strict=True))
        strides = value.strides if disjoint(sizes, value.strides) else contiguous_strides(sizes)
        once = self.copy(replace(value, sizes=sizes), Spec(value.dtype, value.device, sizes, strides))
        if not any(repeated):
            return once
        seen = tuple(0 if r else stride for r, stride in zip(repeated, strides, strict=True))
        return replace(once, sizes=value.sizes, strides=seen, load=lambda i, mask: once.broadcast(i, mask))

    def copy(self, value: Value, spec: Spec) -> Value:
        """A new buffer of `spec`'s dtype and strides with the elements of `value`."""
        if value.dtype in build.SUPPORTED and spec.dtype in build.SUPPORTED:
            return self.pointwise(spec, lambda indices: value.at(indices))
        buffer = self.buffer(spec)
        contiguous = spec.strides == contiguous_strides(spec.sizes)
        layout = {"memory_format": torch.contiguous_format} if contiguous else {}
        self.library(torch.ops.aten.clone.default, (self.reference(value),), layout, (buffer,))
        return self.stored(buffer)

    def memory(self, value: Value) -> Buffer:
        """A Buffer holding exactly `value`."""
        held = self.materialize(value)
        assert held.base is not None
        return self.view(held.base, held.dtype, held.sizes, held.strides, held.offset)

    def held(self, value: Value) -> Value:
        """`value` in memory, in order: its readers do not compute it, or gather it, in their places."""
        return self.stored(self.again(self.memory(value)))

    def reference(self, value: Value) -> BufferRef:
        """`value` as a tensor argument of a library call."""
        return BufferRef(self.memory(value))

    def library(
        self, operator: Any, args: tuple, kwargs: Mapping[str, Any], results: tuple[Buffer | None, ...]
    ) -> None:
        """Append a call of an operator of PyTorch's."""
        self.items.append(LibraryCall(f"{self.label}_{self.groups}", operator, args, dict(kwargs), results))
        self.groups += 1
