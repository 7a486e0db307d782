"""Which sizes and strides of a tensor from outside are symbols."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dovetail.capture.numbers.size_table import Bounds, dims_of, new_symbol
from dovetail.capture.numbers.specialization import SizesConstant, names_of
from dovetail.capture.values.base import Session
from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.guard import Follows, Guard, GuardKind, TensorFacts
from dovetail.ir.records import dataclass
from dovetail.ir.sizesource import size_of, source_of
from dovetail.ir.source import Attr, Computed, Item, Source
from dovetail.ir.varying import marks_of
from dovetail.ops.fake.rules.layout import contiguous
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL
from dovetail.ops.fake.symbolic.symint import dim_of, symint


@dataclass(frozen=True)
class Layout:
    """Sizes and strides of an input, symbolic ones among them, and what its facts say instead."""

    sizes: tuple
    strides: tuple
    changes: dict[str, Any]

    def applied(self, facts: TensorFacts) -> TensorFacts:
        """The facts with what this layout says instead."""
        return replace(facts, **self.changes)


def tensor_facts(real: torch.Tensor) -> TensorFacts:
    """What a guard compares of a tensor."""
    strided = real.layout is torch.strided
    return TensorFacts(
        type(real), real.dtype, real.device, tuple(real.shape), tuple(real.stride()) if strided else (),
        int(real.storage_offset()) if strided else None, real.requires_grad, torch._C._dispatch_keys(real), real.layout,
    )  # fmt: skip


def is_resized(s: Session, real: torch.Tensor, source: Source) -> bool:
    """Was a size of the tensor at this path seen to change?"""
    return any(s.table.varying.changed(size_of(source, k).name()) for k in range(real.dim()))


def laid_out(s: Session, real: torch.Tensor, source: Source) -> Layout | None:
    """The layout of an input with sizes that vary; None where all are constants."""
    before = set(s.table.symbols)
    sizes: list[Dim] = [_input_size(s, real, source, k) for k in range(real.dim())]
    steps = [Item(Attr(source, "stride()"), k) for k in range(real.dim())]
    free = [k for k, step in enumerate(steps) if s.table.varying.changed(step.name())]
    if not free and all(isinstance(size, int) for size in sizes):
        return None
    shared = s.table.sources
    shown = tuple(
        n if isinstance(n, int) else shared[dims.as_symbol(n)] if dims.as_symbol(n) in before else None for n in sizes
    )
    plain = not free and tuple(real.stride()) == contiguous(real.shape) and not {0, 1}.intersection(shown)
    if plain:
        strides, facts = list(contiguous(sizes)), (None,) * len(sizes)
    else:
        strides, facts = _strides(s, real, sizes, {k: steps[k] for k in free})
    changes = {"sizes": shown, "strides": facts, "contiguous": plain}
    return Layout(_symints(s, sizes), _symints(s, strides), changes)


def _symints(s: Session, values: Any) -> tuple:
    return tuple(symint(s.table.sizes, v) for v in values)


def _input_size(s: Session, real: torch.Tensor, source: Source, k: int) -> Dim:
    place, size, marks = size_of(source, k), real.shape[k], marks_of(real)
    name, table = place.name(), s.table
    table.seen[name] = size
    marked = k in marks.dynamic
    if not marked:
        everything = name in table.varying and size > 1 and not isinstance(real, torch.nn.Parameter)
        wanted = k in marks.perhaps or everything or table.varying.changed(name)
        if not wanted or k in marks.static or name in table.varying.constant:
            return size
    made = _symbol(s, place, size, marks.dynamic.get(k, (None, None)), marked)
    if k in marks.names:
        table.sizes.declare(made, *marks.names[k])
    return made


def _symbol(s: Session, place: Source, size: int, bounds: Bounds = (None, None), marked: bool = False) -> Dim:
    """A symbol for a size; the one of another that was equal to it in every call so far."""
    table, name = s.table, place.name()
    for known in table.symbols.values():
        alike = known.size == size and known.bounds == bounds and known.names
        if alike and all(table.varying.alike(name, other) for other in known.names):
            known.names.append(name)
            known.marked |= marked
            if getattr(place, "base", place) == getattr(known.source, "base", None):
                # other tensors' facts name the size
                condition = Computed("({} == {})", (place, known.source))
                s.relied.guards.append(Guard(place, GuardKind.SIZE, condition, s.user_line()))
            return known.dim
    return new_symbol(s, place, size, [name], bounds, marked)


def _strides(
    s: Session, real: torch.Tensor, sizes: list[Dim], free: dict[int, Source]
) -> tuple[list[Dim], tuple]:
    """Strides as products of sizes further in where they are, and what guards say of them.

    How a result is laid out depends on their order, and on whether they leave gaps: for free ones, that is relied on.
    """
    strides: list[Dim] = list(real.stride())
    facts: list = list(strides)
    step: Dim = 1
    expected, inner = 1, -1
    opened: set[Any] = set()
    for k in sorted(range(real.dim()), key=lambda k: (real.stride(k), real.shape[k])):
        if real.stride(k) == 0:
            continue
        if real.stride(k) == expected:
            if not isinstance(step, int):
                strides[k], facts[k] = step, Follows(inner)
        elif k in free:
            strides[k], facts[k] = new_symbol(s, free[k], real.stride(k), []), None
            opened |= dims.symbols(strides[k])
        if opened & {*dims.symbols(strides[k]), *dims.symbols(step)}:
            _keep_order(s.table.sizes, strides[k], step, strides[inner])
        step, expected, inner = strides[k] * sizes[k], real.stride(k) * real.shape[k], k
    return strides, tuple(facts)


def _keep_order(sizes: Any, stride: Dim, end: Dim, inner: Dim) -> None:
    """Relies on the order of two strides, and on which side of the end of what lies further in one of them is."""
    beyond = sizes.hint(stride - end)
    if beyond > 0:
        sizes.holds(AT_LEAST, stride - end - 1)
    elif beyond < 0:
        sizes.holds(AT_LEAST, end - stride - 1)
        if not sizes.holds(EQUAL, stride - inner):
            sizes.holds(AT_LEAST, stride - inner - 1)


def show_strides(s: Session, value: Any) -> None:
    """The program sees a tensor's strides: they are products of sizes only where none is 0, or strange beside a 1."""
    sizes = s.table.sizes
    involved = {symbol for dim in dims_of(value.fake) for symbol in dims.symbols(dim)}
    for dim in map(dim_of, value.fake.shape):
        if not isinstance(dim, int) and not sizes.holds(AT_LEAST, dim - 1):
            reason = f"the strides of an empty tensor are asked for  # {s.user_line()}"
            raise SizesConstant(names_of(s, involved), reason)
    if involved and value.origin is not None and value.source is not None:
        for k, step in enumerate(map(dim_of, value.fake.stride())):
            place = Item(Attr(value.source, "stride()"), k)
            formula = source_of(step, s.table.sources) if not isinstance(step, int) else None
            template = "({} == {})" if formula is not None else f"({{}} == {step})"
            condition = Computed(template, (place, formula) if formula is not None else (place,))
            s.relied.guards.append(Guard(value.source, GuardKind.SIZE, condition, s.user_line()))
