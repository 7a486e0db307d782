"""Operators without loops of their own: called as recorded, on real tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from dovetail.errors import InternalError
from dovetail.ir.devices import traits
from dovetail.ir.liveness import output_buffers, reads
from dovetail.ir.loops import Buffer, BufferRef, Item, LibraryCall, Program
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.indexing import check, out_of_bounds, written_at
from dovetail.ops.lowering.value import Spec, Value


def call_library(emit: Emitter, operator: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> Any:
    """Adds the call; gives Values in the shape of `out`, other results as None.

    A result that is a view keeps its argument's memory alive, so that must be a tensor of its own; so must one whose
    storage the operator counts from. Indices at which it writes are checked first where the result may be an input's
    new value, so that it can be written into that (`schedule/memory/in_place.py`).
    """
    if emit.outlives(out) and traits(out.device).host:
        for index, axis, wraps in written_at(operator, args):
            check(emit, index, args[0].sizes[axis], wraps, out_of_bounds(axis, args[0].sizes[axis]))
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in operator._schema.returns)
    if views or any(a.name == "storage_offset" for a in operator._schema.arguments):
        args = tuple(_private(emit, a) if isinstance(a, Value) else a for a in args)
    arguments = _arguments(emit, args)
    named = {name: _arguments(emit, value) for name, value in kwargs.items()}
    results: list[Buffer | None] = []
    value = _results(emit, out, results)
    emit.library(operator, arguments, named, tuple(results))
    return value


def without_unread(program: Program) -> Iterator[Item]:
    """The items, with None for results of library calls that nobody reads: whatever they look like will do."""
    read = {*output_buffers(program), *(name for item in program.items for name in reads(item))}
    for item in program.items:
        if isinstance(item, LibraryCall):
            item = replace(item, results=tuple(b if b is not None and b.name in read else None for b in item.results))
        yield item


def _arguments(emit: Emitter, value: Any) -> Any:
    if isinstance(value, Value):
        return emit.reference(value)
    if isinstance(value, (tuple, list)):
        return tuple(_arguments(emit, v) for v in value)
    return value


def _results(emit: Emitter, out: Any, results: list[Buffer | None]) -> Any:
    """Values for the tensors in `out`, whose buffers are appended in order."""
    if isinstance(out, Spec):
        buffer = emit.buffer(out)
        results.append(buffer)
        return emit.stored(buffer)
    if isinstance(out, tuple):
        return tuple(_results(emit, spec, results) for spec in out)
    results.append(None)
    return out


def _private(emit: Emitter, value: Value) -> Value:
    """A tensor that owns its memory for as long as anything refers to it.

    Memory that the program lays out itself may be reused after the call; a view made by a library
    call would not be seen to need it.
    """
    held = emit.materialize(value)
    if held.base is None:
        raise InternalError("lower", "a library call's argument is in no memory")
    if held.base.name not in emit.owned:
        return held
    whole = held.base
    copy = emit.buffer(Spec(whole.dtype, whole.device, whole.sizes, whole.strides))
    emit.library(torch.ops.aten.clone.default, (BufferRef(whole),), {}, (copy,))
    return emit.stored(emit.view(copy, held.dtype, held.sizes, held.strides, held.offset))
