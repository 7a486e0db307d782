"""What an item of a program does, whatever the names in it; and the item under other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dovetail.ir.liveness import mapped
from dovetail.ir.loops import (
    Buffer,
    BufferRef,
    Check,
    Group,
    Item,
    LibraryCall,
    View,
)
from dovetail.ir.structure import structure_of, with_buffers
from dovetail.repeats.find import constant
from dovetail.repeats.rows import Irregular


class Shape(NamedTuple):
    """Items of equal `kind` do the same with their `operands`, which are all buffers that they name, in one order."""

    kind: Any
    operands: tuple[Buffer, ...]


def shape_of(item: Item) -> Shape:
    made = _SHAPES.get(type(item))
    if made is None:
        raise Irregular(f"a {type(item).__name__} is among the turns")
    kind, operands = made(item)
    return Shape((type(item), kind, tuple(map(_layout, operands))), tuple(operands))


def renamed(item: Item, name: str, buffers: Mapping[str, Buffer]) -> Item:
    """The item under another name, with others for the buffers of these names."""
    return _RENAMED[type(item)](item, name, buffers)


def _layout(buffer: Buffer) -> tuple:
    return (
        buffer.dtype,
        buffer.device,
        buffer.sizes,
        buffer.strides,
        buffer.offset,
        buffer.kind,
    )


def _group(group: Group) -> tuple[Any, list[Buffer]]:
    structure = structure_of(group)
    return (
        structure.key,
        tuple(s.message for s in group.statements() if isinstance(s, Check)),
    ), structure.buffers


def _library_call(call: LibraryCall) -> tuple[Any, list[Buffer]]:
    operands: list[Buffer] = []

    def described(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value), tuple(map(described, value))
        if isinstance(value, Mapping):
            return tuple((key, described(part)) for key, part in value.items())
        if isinstance(value, BufferRef):
            operands.append(value.buffer)
            return BufferRef
        return type(value), _plain(value)

    arguments = described((call.args, call.kwargs))
    operands += [b for b in call.results if b is not None]
    return (
        call.operator,
        arguments,
        tuple(b is None for b in call.results),
    ), operands


def _plain(value: Any) -> Any:
    """Sizes are compared as such: equal ones are one."""
    return (
        value if type(value).__module__ == "dovetail.ir.dims" else constant(value)
    )


_SHAPES: dict[type, Callable[[Any], tuple[Any, list[Buffer]]]] = {
    Group: _group,
    LibraryCall: _library_call,
    View: lambda view: (None, [view.result, view.base]),
}


def _renamed_call(
    call: LibraryCall, name: str, buffers: Mapping[str, Buffer]
) -> LibraryCall:
    other = lambda b: buffers.get(b.name, b)
    leaf = lambda value: (
        BufferRef(other(value.buffer)) if isinstance(value, BufferRef) else value
    )
    kwargs = {key: mapped(value, leaf) for key, value in call.kwargs.items()}
    results = tuple(None if b is None else other(b) for b in call.results)
    return replace(
        call,
        name=name,
        args=mapped(call.args, leaf),
        kwargs=kwargs,
        results=results,
    )


def _renamed_view(view: View, _: str, buffers: Mapping[str, Buffer]) -> View:
    result, base = (buffers.get(b.name, b) for b in (view.result, view.base))
    return View(result, base)


_RENAMED: dict[type, Callable[..., Item]] = {
    Group: with_buffers,
    LibraryCall: _renamed_call,
    View: _renamed_view,
}
