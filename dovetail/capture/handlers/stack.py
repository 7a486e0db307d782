"""Loads, stores, stack shuffling, operators and attributes."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from dovetail.capture.interpreter.tail_calls import of_attribute, of_setter, of_special
from dovetail.capture.tables.opcode_handlers import RETURN, op
from dovetail.capture.tensors.assertions import asserted
from dovetail.capture.tensors.membership import held
from dovetail.capture.values.base import FALSE, MISSING, NULL, TRUE, Const, boolean
from dovetail.capture.values.callables import CellValue, KnownValue, SuperValue
from dovetail.capture.values.containers import DictValue, SliceValue
from dovetail.capture.values.objects import Lazy

if TYPE_CHECKING:
    from dovetail.bytecode.decode import Instruction
    from dovetail.capture.interpreter.frame import Frame

UNARY = {"UNARY_NEGATIVE": "neg", "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert"}


@op("NOP", "RESUME", "COPY_FREE_VARS")
def nop(f: Frame, i: Instruction) -> None:
    pass


@op("POP_TOP")
def pop_top(f: Frame, i: Instruction) -> None:
    f.stack_.pop()


@op("PUSH_NULL")
def push_null(f: Frame, i: Instruction) -> None:
    f.stack_.append(NULL)


@op("COPY")
def copy(f: Frame, i: Instruction) -> None:
    f.stack_.append(f.stack_[-i.arg])


@op("SWAP")
def swap(f: Frame, i: Instruction) -> None:
    stack = f.stack_
    stack[-1], stack[-i.arg] = stack[-i.arg], stack[-1]


@op("LOAD_CONST")
def load_const(f: Frame, i: Instruction) -> None:
    value = i.value
    f.stack_.append(Const(value) if type(value) in SIMPLE else f.s.from_native(value))


SIMPLE = frozenset((int, float, str, bytes, type(None), bool, complex))


@op("RETURN_VALUE")
def return_value(f: Frame, i: Instruction) -> Any:
    return RETURN, f.stack_.pop()


@op("LOAD_FAST")
def load_fast(f: Frame, i: Instruction) -> None:
    load_local(f, i.value)


def load_local(f: Frame, name: str) -> None:
    value = read_local(f, name)
    if value is None:
        _unbound(f, name)
    f.stack_.append(value)


def read_local(f: Frame, name: str) -> Any:
    """The variable; None where there is none."""
    value = f.locals.get(name)
    if type(value) is Lazy:
        value = f.locals[name] = f.s.wrap(value.real, value.source)
    return value


def _unbound(f: Frame, name: str) -> None:
    f.s.throw(UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value")


@op("STORE_FAST")
def store_fast(f: Frame, i: Instruction) -> None:
    value = f.stack_.pop()
    if value is NULL:  # a comprehension puts back a variable that had no value
        f.locals.pop(i.value, None)
    else:
        f.locals[i.value] = value


@op("DELETE_FAST")
def delete_fast(f: Frame, i: Instruction) -> None:
    if f.locals.pop(i.value, None) is None:
        _unbound(f, i.value)


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(f: Frame, i: Instruction) -> None:
    f.stack_.append(f.locals.pop(i.value, NULL))


# ---------------------------------------------------------------- cells


@op("MAKE_CELL")
def make_cell(f: Frame, i: Instruction) -> None:
    f.locals[i.value] = CellValue(f.locals.get(i.value))


@op("LOAD_DEREF")
def load_deref(f: Frame, i: Instruction) -> None:
    value = f.locals[i.value].load(f.s)
    if value is None and i.value in f.code.code.co_cellvars:
        _unbound(f, i.value)
    if value is None:
        f.s.throw(NameError, f"cannot access free variable {i.value!r} where it is not associated with a value")
    f.stack_.append(value)


@op("STORE_DEREF")
def store_deref(f: Frame, i: Instruction) -> None:
    f.locals[i.value].store(f.s, f.stack_.pop())


@op("DELETE_DEREF")
def delete_deref(f: Frame, i: Instruction) -> None:
    f.locals[i.value].store(f.s, None)


# ---------------------------------------------------------------- globals and names


@op("LOAD_GLOBAL")
def load_global(f: Frame, i: Instruction) -> None:
    value = f.scope.load(f.s, i.value)
    if value is None:
        _undefined(f, i)
    f.stack_.append(value)


def _undefined(f: Frame, i: Instruction) -> None:
    f.s.throw(NameError, f"name {i.value!r} is not defined")


@op("STORE_GLOBAL")
def store_global(f: Frame, i: Instruction) -> None:
    f.scope.store(f.s, i.value, f.stack_.pop())


@op("LOAD_NAME")
def load_name(f: Frame, i: Instruction) -> None:
    value = f.names_table.get(i.value) if f.names_table is not None else None
    if value is not None:
        f.stack_.append(value)
    else:
        load_global(f, i)


@op("DELETE_NAME")
def delete_name(f: Frame, i: Instruction) -> None:
    if f.names_table.pop(i.value, None) is None:
        _undefined(f, i)


@op("SETUP_ANNOTATIONS")
def setup_annotations(f: Frame, i: Instruction) -> None:
    f.names_table.setdefault("__annotations__", DictValue())


@op("LOAD_LOCALS")
def load_locals(f: Frame, i: Instruction) -> None:
    f.stack_.append(NULL)  # the next instruction looks in `names_table` itself


@op("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(f: Frame, i: Instruction) -> None:
    f.stack_.pop()
    load_name(f, i)


@op("LOAD_CLASSDEREF")
def load_classderef(f: Frame, i: Instruction) -> None:
    value = f.names_table.get(i.value)
    if value is not None:
        f.stack_.append(value)
    else:
        load_deref(f, i)


@op("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(f: Frame, i: Instruction) -> None:
    f.stack_.pop()
    load_classderef(f, i)


@op("DELETE_GLOBAL")
def delete_global(f: Frame, i: Instruction) -> None:
    if f.scope.load(f.s, i.value) is None or i.value not in f.scope.table and i.value not in f.scope.values:
        _undefined(f, i)
    f.scope.store(f.s, i.value, MISSING)


@op("STORE_NAME")
def store_name(f: Frame, i: Instruction) -> None:
    f.names_table[i.value] = f.stack_.pop()


@op("LOAD_COMMON_CONSTANT")
def load_common_constant(f: Frame, i: Instruction) -> None:
    f.stack_.append(f.s.wrap(i.value, None))


@op("LOAD_BUILD_CLASS")
def load_build_class(f: Frame, i: Instruction) -> None:
    f.stack_.append(KnownValue(builtins.__build_class__))


# ---------------------------------------------------------------- attributes


@op("LOAD_ATTR")
def load_attr(f: Frame, i: Instruction) -> None:
    value = f.stack_.pop()
    f.awaits = of_attribute(f.s, value, i.value)
    f.stack_.append(value.get_attr(f.s, i.value))


@op("STORE_ATTR")
def store_attr(f: Frame, i: Instruction) -> None:
    target = f.stack_.pop()
    f.awaits = of_setter(f.s, target, i.value)
    f.s.set_attr(target, i.value, f.stack_.pop())


@op("DELETE_ATTR")
def delete_attr(f: Frame, i: Instruction) -> None:
    f.s.del_attr(f.stack_.pop(), i.value)


@op("LOAD_SUPER_ATTR")
def load_super_attr(f: Frame, i: Instruction) -> None:
    super_, cls, receiver = f.popn(3)
    made = f.s.call(super_, cls, receiver) if i.arg else implicit_super(f)
    f.stack_.append(made.get_attr(f.s, i.value))


def implicit_super(f: Frame) -> Any:
    """`super()` with no arguments, from the frame's `__class__` cell and first argument."""
    cell = f.locals.get("__class__")
    first = read_local(f, f.code.code.co_varnames[0]) if f.code.code.co_argcount else None
    if cell is None or first is None:
        return f.s.throw(RuntimeError, "super(): no arguments")
    receiver = first.load(f.s) if isinstance(first, CellValue) else first
    cls = cell.load(f.s)
    if cls is None:
        return f.s.throw(RuntimeError, "super(): empty __class__ cell")
    return SuperValue(*super_parts(cls, receiver))


def super_parts(cls: Any, receiver: Any) -> tuple[Any, Any, Any]:
    start = cls.native()
    if issubclass(receiver.cls, type) and issubclass(receiver.native(), start):
        return start, receiver, receiver.native()
    return start, receiver, receiver.cls


# ---------------------------------------------------------------- operators


@op("BINARY_OP")
def binary_op(f: Frame, i: Instruction) -> None:
    right, left = f.stack_.pop(), f.stack_.pop()
    f.stack_.append(f.s.binary(i.value, left, right, tail=True))


@op(*UNARY)
def unary_op(f: Frame, i: Instruction) -> None:
    name, value = UNARY[i.name], f.stack_.pop()
    f.awaits = of_special(f.s, value, f"__{name}__")
    f.stack_.append(f.s.unary(name, value))


@op("UNARY_NOT")
def unary_not(f: Frame, i: Instruction) -> None:
    f.stack_.append(FALSE if decided(f, f.stack_.pop()) else TRUE)


@op("TO_BOOL")
def to_bool(f: Frame, i: Instruction) -> None:
    f.stack_.append(boolean(decided(f, f.stack_.pop())))


def decided(f: Frame, value: Any) -> bool:
    """The truth of what the instruction takes; after a graph break it is made again, with True or False."""
    known = asserted(f, value)
    if known is not None:
        return known
    after, f.ip = f.ip, f.at
    found = f.s.truth(value, tail=True)
    f.ip = after
    return found


@op("COMPARE_OP")
def compare_op(f: Frame, i: Instruction) -> None:
    right, left = f.stack_.pop(), f.stack_.pop()
    f.stack_.append(f.s.compare(i.value, left, right, tail=True))


@op("IS_OP")
def is_op(f: Frame, i: Instruction) -> None:
    right = f.stack_.pop()
    f.stack_[-1] = boolean(f.s.same(f.stack_[-1], right) != bool(i.arg))


@op("CONTAINS_OP")
def contains_op(f: Frame, i: Instruction) -> None:
    container, item = f.stack_.pop(), f.stack_.pop()
    found = held(f.s, container, item, not i.arg)
    f.stack_.append(found or boolean(f.s.contains(container, item, not i.arg, tail=True)))


@op("BINARY_SUBSCR")
def binary_subscr(f: Frame, i: Instruction) -> None:
    index, container = f.stack_.pop(), f.stack_.pop()
    f.awaits = of_special(f.s, container, "__getitem__")
    f.stack_.append(f.s.get_item(container, index))


@op("BINARY_SLICE")
def binary_slice(f: Frame, i: Instruction) -> None:
    container, start, stop = f.popn(3)
    f.awaits = of_special(f.s, container, "__getitem__")
    f.push(f.s.get_item(container, SliceValue(start, stop, Const(None))))


@op("STORE_SUBSCR")
def store_subscr(f: Frame, i: Instruction) -> None:
    value, container, index = f.popn(3)
    f.awaits = of_special(f.s, container, "__setitem__")
    f.s.set_item(container, index, value)


@op("STORE_SLICE")
def store_slice(f: Frame, i: Instruction) -> None:
    value, container, start, stop = f.popn(4)
    f.s.set_item(container, SliceValue(start, stop, Const(None)), value)


@op("DELETE_SUBSCR")
def delete_subscr(f: Frame, i: Instruction) -> None:
    container, index = f.popn(2)
    f.awaits = of_special(f.s, container, "__delitem__")
    f.s.del_item(container, index)
