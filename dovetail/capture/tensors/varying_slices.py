"""Parts of tensors from outside under indices that differ from call to call.

The residual takes the part, a view, and the graph has it as an input: which part it is does not show in there. So the
graph reads and writes the tensor's own memory, and an input that overlaps another one is treated as ever.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from dovetail.capture.numbers import dispatch, input_numbers, unbacked_sizes
from dovetail.capture.numbers.size_values import size_value
from dovetail.capture.numbers.unbacked_sizes import UnbackedSize
from dovetail.capture.tensors import torch_function
from dovetail.capture.values.base import ELLIPSIS, Const, Session, Value
from dovetail.capture.values.containers import SliceValue, TupleValue
from dovetail.capture.values.tensor import PLAIN, TensorValue
from dovetail.ir.literals import literal
from dovetail.ir.source import Computed, Source
from dovetail.ops.fake.symbolic.unbacked import INTEGERS


def read(s: Session, tensor: TensorValue, index: Value) -> Value | None:
    """`tensor[index]`; None where the graph must do it."""
    known, bounded = len(s.taken.parts), _bounds(s, index)
    if bounded is not None:
        return s.get_item(tensor, bounded)
    found = part(s, tensor, index)
    if found is None:
        return _selected(s, tensor, index) or _late_part(s, tensor, index)
    if len(s.taken.parts) > known:
        return found
    return s.torch_call(operator.getitem, [found, ELLIPSIS], {})  # eager makes two objects


def store(s: Session, tensor: TensorValue, index: Value, value: Value) -> bool:
    """`tensor[index] = value`; False where the graph must do it."""
    bounded = _bounds(s, index)
    if bounded is not None:
        s.set_item(tensor, bounded, value)
        return True
    given = [v for v in (tensor, value) if isinstance(v, TensorValue)]
    if torch.is_grad_enabled() and any(v.fake.requires_grad for v in given):
        return False  # the whole tensor gets a history
    found = part(s, tensor, index) or _late_part(s, tensor, index)
    if found is None:
        return False
    s.torch_call(operator.setitem, [found, ELLIPSIS, value], {})
    return True


def _selected(s: Session, tensor: TensorValue, index: Any) -> Value | None:
    """A row of a tensor that the graph makes; the entry relies on there being such a row."""
    if not input_numbers.varies(index) or index.cls is not int or tensor.cls not in PLAIN or not tensor.fake.dim():
        return None
    size = size_value(s, tensor.fake.shape[0])
    if isinstance(size, UnbackedSize):
        return None
    known = input_numbers.number_of(size)
    if s.graph is not s.root or not 0 <= index.real < known or torch_function.active(s, [tensor, index]):
        return None
    dispatch.compare(s, "<", index, size)
    return s.torch_method("select", [tensor, Const(0), index], {})


def part(s: Session, tensor: TensorValue, index: Value) -> Value | None:
    """The part as an input of the graph."""
    places = index.all(s) if isinstance(index, TupleValue) else [index]
    if not any(map(_open, places)) or not all(map(_plain, places)) or not _outside(s, tensor, index):
        return None
    if any(map(_of_any_size, places)):
        return None  # the graph knows its size
    owner = next((member for member, value in s.taken.members.items() if value is tensor), tensor.source)
    assert owner is not None
    operands: list[Source] = [owner]
    source = Computed(f"{{}}[{', '.join(_text(place, operands) for place in places)}]", tuple(operands))
    if source not in s.taken.parts:
        try:
            with torch._C._DisableTorchDispatch():
                real = tensor.origin[tuple(map(_native, places))]  # type: ignore[index]
        except (IndexError, TypeError):
            return None
        s.taken.parts[source] = s.wrap_tensor(real, source)
    return s.taken.parts[source]


def _outside(s: Session, tensor: TensorValue, index: Value) -> bool:
    """Can it be taken before the graph runs, with the same history?"""
    if tensor.source is None or tensor.origin is None or id(tensor) in s.tensors.moved or tensor.cls not in PLAIN:
        return False
    if s.graph is not s.root or torch.is_inference_mode_enabled() or torch.is_grad_enabled() is not s.modes.grad_before:
        return False
    return not torch_function.active(s, [tensor, index])


def _numbers(place: Any) -> list:
    return [*place.parts()] if isinstance(place, SliceValue) else [place]


def _open(place: Value) -> bool:
    return any(input_numbers.varies(number) for number in _numbers(place))


def _of_any_size(place: Value) -> bool:
    """A slice one of whose bounds differs from call to call: so does its size."""
    return isinstance(place, SliceValue) and input_numbers.varies(place.start) is not input_numbers.varies(place.stop)


def _plain(place: Value) -> bool:
    kinds = (int, type(None)) if isinstance(place, SliceValue) else (int,)
    return all(isinstance(n, Const) and n.cls in kinds for n in _numbers(place))


def _text(place: Value, operands: list[Source]) -> str:
    texts = []
    for number in _numbers(place):
        if input_numbers.varies(number):
            operands.append(number.source)
            texts.append("{}")
        else:
            texts.append("" if number.cls is type(None) else literal(number.value))
    return ":".join(texts)


def _native(place: Value) -> Any:
    found = [n.real if input_numbers.varies(n) else n.value for n in _numbers(place)]
    return slice(*found) if isinstance(place, SliceValue) else found[0]


# ---------------------------------------------------------------- under numbers that only the graph knows


def _late_part(s: Session, tensor: Any, index: Any) -> Value | None:
    """`tensor[index]` where the first place is such a number, or a tensor that holds one: PyTorch takes a view.

    None where there is none.
    """
    given = index.all(s) if isinstance(index, TupleValue) else [index]
    if not given:
        return None
    first, *rest = given
    number = _place(s, first)
    if number is None or not tensor.fake.dim() or tensor.cls not in PLAIN or s.overrides.modes:
        return None
    row = s.torch_method("select", [tensor, Const(0), number], {})
    return s.get_item(row, TupleValue(rest)) if rest else row


def _bounds(s: Session, index: Any) -> Any:
    """The index with numbers for the tensors that bound its slices; None where there are none."""
    given = index.all(s) if isinstance(index, TupleValue) else [index]
    if not any(isinstance(p, TensorValue) for v in given if isinstance(v, SliceValue) for p in v.parts()):
        return None
    found = [SliceValue(*(_bound(s, p) for p in v.parts())) if isinstance(v, SliceValue) else v for v in given]
    return TupleValue(found) if isinstance(index, TupleValue) else found[0]


def _bound(s: Session, value: Any) -> Any:
    return s.torch_method("item", [value], {}) if isinstance(value, TensorValue) else value


def _place(s: Session, value: Any) -> Value | None:
    if isinstance(value, UnbackedSize):
        return value
    if not isinstance(value, TensorValue) or value.fake.dim() or value.fake.dtype not in _PLACES:
        return None
    return unbacked_sizes.item(s, value)


_PLACES = frozenset(INTEGERS) - {torch.uint8}  # which is a mask
