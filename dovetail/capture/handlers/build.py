"""Building containers, strings and slices; unpacking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.bytecode.decode import Instruction
from dovetail.capture.containers.hashing import set_entries
from dovetail.capture.interpreter.frame import Frame
from dovetail.capture.interpreter.tail_calls import runs_code, used_up
from dovetail.capture.polyfills.iteration import first, listed
from dovetail.capture.protocols.formatting import joined
from dovetail.capture.protocols.subscripts import mark
from dovetail.capture.tables.opcode_handlers import op
from dovetail.capture.values.base import MISSING, NONE, NULL, Const, Session, Value
from dovetail.capture.values.callables import ClassValue, FunctionValue, MethodValue
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, SliceValue, TupleValue, copied
from dovetail.capture.values.iterators import IteratorValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.sets import SetValue

CONVERSIONS: dict[int, Callable[..., str]] = {0: format, 1: str, 2: repr, 3: ascii}


@op("BUILD_TUPLE")
def build_tuple(f: Frame, i: Instruction) -> None:
    f.push(TupleValue(f.popn(i.arg)))


@op("BUILD_LIST")
def build_list(f: Frame, i: Instruction) -> None:
    f.push(ListValue(f.popn(i.arg)))


@op("BUILD_SET")
def build_set(f: Frame, i: Instruction) -> None:
    made = SetValue()
    for value in f.popn(i.arg):
        made.add(f.s, value)
    f.push(made)


@op("BUILD_MAP")
def build_map(f: Frame, i: Instruction) -> None:
    flat = f.popn(2 * i.arg)
    made = DictValue()
    for key, value in zip(flat[::2], flat[1::2]):
        made.put(f.s, key, value)
    f.push(made)


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(f: Frame, i: Instruction) -> None:
    keys = f.pop()
    made = DictValue()
    for key, value in zip(keys.all(f.s), f.popn(i.arg)):
        made.put(f.s, key, value)
    f.push(made)


@op("BUILD_SLICE")
def build_slice(f: Frame, i: Instruction) -> None:
    parts = f.popn(i.arg)
    f.push(SliceValue(*parts, *[NONE] * (3 - len(parts))))


@op("BUILD_STRING")
def build_string(f: Frame, i: Instruction) -> None:
    parts = f.popn(i.arg)
    f.push(joined(f.s, parts))


@op("FORMAT_VALUE")
def format_value(f: Frame, i: Instruction) -> None:
    spec = f.pop().native() if i.arg & 4 else ""
    value = f.pop()
    f.push(_formatted(f, value, spec, i.arg & 3))


def _formatted(f: Frame, value: Any, spec: str, conversion: int) -> Any:
    text = f.s.to_string(value, "" if conversion else spec, CONVERSIONS[conversion])
    return Const(format(text.native(), spec)) if conversion and spec else text


@op("CONVERT_VALUE")
def convert_value(f: Frame, i: Instruction) -> None:
    f.push(f.s.to_string(f.pop(), "", CONVERSIONS[i.arg]))


@op("LIST_APPEND")
def list_append(f: Frame, i: Instruction) -> None:
    value = f.pop()
    target = f.stack_[-i.arg]
    target.extend([value])
    mark(f.s, target)


@op("SET_ADD")
def set_add(f: Frame, i: Instruction) -> None:
    value = f.pop()
    target = f.stack_[-i.arg]
    target.add(f.s, value)


@op("MAP_ADD")
def map_add(f: Frame, i: Instruction) -> None:
    key, value = f.popn(2)
    f.stack_[-i.arg].put(f.s, key, value)


@op("LIST_EXTEND")
def list_extend(f: Frame, i: Instruction) -> None:
    value = f.pop()
    target = f.stack_[-i.arg]
    if runs_code(value):
        value = used_up(f, listed, value)
    if not walks(f.s, value):
        f.s.throw(TypeError, f"Value after * must be an iterable, not {value.cls.__name__}")
    if isinstance(value, SequenceValue) and value.divisible:
        target.join(f.s, value)
    else:
        target.extend(f.s.unpack(value))
    mark(f.s, target)


@op("SET_UPDATE")
def set_update(f: Frame, i: Instruction) -> None:
    value = f.pop()
    target = f.stack_[-i.arg]
    target.entries.take_in(set_entries(f.s, value))
    target.mark(f.s)


@op("DICT_UPDATE", "DICT_MERGE")
def dict_update(f: Frame, i: Instruction) -> None:
    value = f.pop()
    target = f.stack_[-i.arg]
    called = _called_with(f, i) if i.name == "DICT_MERGE" else None
    if not (hasattr(value, "pairs") or f.s.has_attr(value, "keys")):
        wrong = f"{value.cls.__name__!r} object is not a mapping"
        after = f"argument after ** must be a mapping, not {value.cls.__name__}"
        f.s.throw(TypeError, wrong if called is None else f"{called} {after}")
    for key, item in mapping_pairs(f.s, value):
        if called is not None and f.s.hashable(key) in target.entries:
            f.s.throw(TypeError, f"{called} got multiple values for keyword argument '{key.native()}'")
        target.put(f.s, key, item)


def _called_with(f: Frame, i: Instruction) -> str:
    """What the keywords that are being collected are for."""
    return callee_text(next(v for v in reversed(f.stack_[: -i.arg - 1]) if v is not NULL))


def callee_text(function: Any) -> str:
    """A callable as errors about its arguments name it."""
    function = function.function if isinstance(function, MethodValue) else function
    real = getattr(function, "real", MISSING)
    module: str | None
    name: str | None
    if isinstance(function, FunctionValue) and real is MISSING:
        module, name = function.globals.get("__name__"), function.code.co_qualname
    else:
        module, name = getattr(real, "__module__", None), getattr(real, "__qualname__", None)
    if name is None:
        return f"{function.cls.__name__} object"
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


def mapping_pairs(s: Session, value: Any) -> list[tuple[Any, Any]]:
    """The (key, value) pairs of any mapping."""
    if isinstance(value, DictValue) or hasattr(value, "pairs"):
        return value.pairs(s)
    keys = s.unpack(s.call_method(value, "keys"))
    return [(k, s.get_item(value, k)) for k in keys]


@op("LIST_TO_TUPLE")
def list_to_tuple(f: Frame, i: Instruction) -> None:
    f.stack_[-1] = copied(f.s, f.stack_[-1], TupleValue)


def walks(s: Session, value: Value) -> bool:
    """Can Python iterate over it?"""
    named = any(s.static(value.cls, name) is not MISSING for name in ("__iter__", "__getitem__"))
    return named or isinstance(value, ClassValue)


def _unpacked(s: Session, value: Value) -> list[Value]:
    if not walks(s, value):
        s.throw(TypeError, f"cannot unpack non-iterable {value.cls.__name__} object")
    return s.unpack(value)


def _first(f: Frame, value: Value, count: int) -> list[Value]:
    """No more than so many items: there may be no end to them."""
    if runs_code(value):
        return f.s.unpack(used_up(f, first, value, Const(count)))
    if not isinstance(value, (IteratorValue, ObjectValue)) or isinstance(value, (SequenceValue, DictValue, SetValue)):
        return _unpacked(f.s, value)
    if not walks(f.s, value):
        f.s.throw(TypeError, f"cannot unpack non-iterable {value.cls.__name__} object")
    iterator, found = f.s.iterate(value), list[Value]()
    while len(found) < count and (item := f.s.step(iterator)) is not None:
        found.append(item)
    return found


@op("UNPACK_SEQUENCE")
def unpack_sequence(f: Frame, i: Instruction) -> None:
    items = _first(f, f.pop(), i.arg + 1)
    if len(items) < i.arg:
        f.s.throw(ValueError, f"not enough values to unpack (expected {i.arg}, got {len(items)})")
    if len(items) > i.arg:
        f.s.throw(ValueError, f"too many values to unpack (expected {i.arg})")
    f.stack_.extend(reversed(items))


@op("UNPACK_EX")
def unpack_ex(f: Frame, i: Instruction) -> None:
    before, after = i.arg & 255, i.arg >> 8
    value = f.pop()
    items = _unpacked(f.s, value if not runs_code(value) else used_up(f, listed, value))
    if len(items) < before + after:
        f.s.throw(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    middle = len(items) - after
    f.stack_.extend(reversed(items[middle:]))
    f.stack_.append(ListValue(items[before:middle]))
    f.stack_.extend(reversed(items[:before]))
