"""Python's operations on numbers that are no constants. None: there is no rule, and only constants will do."""

from __future__ import annotations

from typing import Any

from dovetail.capture.numbers.input_numbers import is_text, joined
from dovetail.capture.tables.operator_names import out_of_place
from dovetail.capture.values.base import Args, Const, Session, Value
from dovetail.capture.values.number import answering


def binary(s: Session, name: str, left: Value, right: Value) -> Value | None:
    """`left op right`, in place or not."""
    name = out_of_place(name)
    number = answering(left, right)
    if number is not None:
        return number.binary(s, name, left, right)
    return joined(s, [left, right]) if name == "add" and is_text(left) and is_text(right) else None


def unary(s: Session, name: str, value: Value) -> Value | None:
    """`-value` and its like."""
    number = answering(value)
    return None if number is None else number.unary(s, name)


def compare(s: Session, sign: str, left: Value, right: Value) -> Value | None:
    """`left sign right`. The entry relies on the outcome, or it is a claim."""
    number = answering(left, right)
    return None if number is None else number.compare(s, sign, left, right)


def truth(s: Session, value: Value) -> bool | None:
    """`bool(value)`. The entry relies on it."""
    number = answering(value)
    return None if number is None else number.truth(s)


def call(s: Session, function: Any, args: Args) -> Value | None:
    """`function(*args)` for a native function of numbers or texts."""
    number = answering(*args)
    return None if number is None else number.apply(s, function, args)


def added(s: Session, values: list, start: Any) -> Value:
    """`sum(values, start)` of numbers: Python may be more exact than adding one after the other."""
    number = answering(*values, start)
    made = None if number is None else number.total(s, values, start)
    return made or Const(sum((v.value for v in values), start.value))
