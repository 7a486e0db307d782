"""Parts of tensors from outside under indices that differ from call to call.

The residual takes the part, a view, and the graph has it as an input: which part it is does not show in there. So the
graph reads and writes the tensor's own memory, and an input that overlaps another one is treated as ever.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from dovetail.capture import late, overrides, scalars, sizes
from dovetail.capture.values.base import ELLIPSIS, Const, Value
from dovetail.capture.values.containers import SliceValue, TupleValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.literals import literal
from dovetail.ir.source import Computed, Source

if TYPE_CHECKING:
    from dovetail.capture.session import Session


def read(s: Session, tensor: TensorValue, index: Value) -> Value | None:
    """`tensor[index]`; None where the graph must do it."""
    known, bounded = len(s.parts), late.bounds(s, index)
    if bounded is not None:
        return s.get_item(tensor, bounded)
    found = part(s, tensor, index)
    if found is None:
        return _selected(s, tensor, index) or late.part(s, tensor, index)
    if len(s.parts) > known:
        return found
    return s.torch_call(operator.getitem, [found, ELLIPSIS], {})  # eager makes two objects


def store(s: Session, tensor: TensorValue, index: Value, value: Value) -> bool:
    """`tensor[index] = value`; False where the graph must do it."""
    bounded = late.bounds(s, index)
    if bounded is not None:
        s.set_item(tensor, bounded, value)
        return True
    given = [v for v in (tensor, value) if isinstance(v, TensorValue)]
    if torch.is_grad_enabled() and any(v.fake.requires_grad for v in given):
        return False  # the whole tensor gets a history
    found = part(s, tensor, index) or late.part(s, tensor, index)
    if found is None:
        return False
    s.torch_call(operator.setitem, [found, ELLIPSIS, value], {})
    return True


def _selected(s: Session, tensor: TensorValue, index: Any) -> Value | None:
    """A row of a tensor that the graph makes; the entry relies on there being such a row."""
    if not scalars.varies(index) or index.cls is not int or tensor.cls not in overrides.PLAIN or not tensor.fake.dim():
        return None
    size = sizes.size_value(s, tensor.fake.shape[0])
    if sizes.is_late_size(size):
        return None
    known = size.real if scalars.varies(size) else size.value  # type: ignore[attr-defined]
    if s.graph is not s.root or not 0 <= index.real < known or overrides.active(s, [tensor, index]):
        return None
    scalars.compare(s, "<", operator.lt, index, size)
    return s.torch_method("select", [tensor, Const(0), index], {})


def part(s: Session, tensor: TensorValue, index: Value) -> Value | None:
    """The part as an input of the graph."""
    places = index.all(s) if isinstance(index, TupleValue) else [index]
    if not any(map(_open, places)) or not all(map(_plain, places)) or not _outside(s, tensor, index):
        return None
    if any(map(_of_any_size, places)):
        return None  # the graph knows its size
    owner = next((member for member, value in s.members.items() if value is tensor), tensor.source)
    assert owner is not None
    operands: list[Source] = [owner]
    source = Computed(f"{{}}[{', '.join(_text(place, operands) for place in places)}]", tuple(operands))
    if source not in s.parts:
        try:
            with torch._C._DisableTorchDispatch():
                real = tensor.origin[tuple(map(_native, places))]  # type: ignore[index]
        except (IndexError, TypeError):
            return None
        s.parts[source] = s.wrap_tensor(real, source)
    return s.parts[source]


def _outside(s: Session, tensor: TensorValue, index: Value) -> bool:
    """Can it be taken before the graph runs, with the same history?"""
    if tensor.source is None or tensor.origin is None or id(tensor) in s.moved or tensor.cls not in overrides.PLAIN:
        return False
    if s.graph is not s.root or torch.is_inference_mode_enabled() or torch.is_grad_enabled() is not s.grad_mode:
        return False
    return not overrides.active(s, [tensor, index])


def _numbers(place: Any) -> list[Any]:
    return [place.start, place.stop, place.step] if isinstance(place, SliceValue) else [place]


def _open(place: Value) -> bool:
    return any(scalars.varies(number) for number in _numbers(place))


def _of_any_size(place: Value) -> bool:
    """A slice one of whose bounds differs from call to call: so does its size."""
    return isinstance(place, SliceValue) and scalars.varies(place.start) is not scalars.varies(place.stop)


def _plain(place: Value) -> bool:
    kinds = (int, type(None)) if isinstance(place, SliceValue) else (int,)
    return all(isinstance(n, Const) and n.cls in kinds for n in _numbers(place))


def _text(place: Value, operands: list[Source]) -> str:
    texts = []
    for number in _numbers(place):
        if scalars.varies(number):
            operands.append(number.source)
        texts.append("{}" if scalars.varies(number) else "" if number.cls is type(None) else literal(number.value))
    return ":".join(texts)


def _native(place: Value) -> Any:
    found = [n.real if scalars.varies(n) else n.value for n in _numbers(place)]
    return slice(*found) if isinstance(place, SliceValue) else found[0]
