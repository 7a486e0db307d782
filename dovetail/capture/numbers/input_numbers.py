"""What can be done with a number that differs from call to call without relying on its value.

Arithmetic on such numbers is plain Python on what they came from: the residual computes it before the graph runs, and
the graph takes the results that tensors are combined with as inputs. A comparison relies on its outcome only. What
might raise is part of the guards too, where raising is a miss. Everything else asks for the value and makes it a
constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.fx

from dovetail.capture.numbers import unit_interval
from dovetail.capture.numbers.size_table import new_symbol, placeholder_of
from dovetail.capture.outside.wrap import WRAPPERS
from dovetail.capture.tables.operator_names import BINARY, COMPARE, SIGNS, UNARY
from dovetail.capture.values.base import Args, Const, LazyConst, Session, Value, boolean
from dovetail.capture.values.number import Precedence, SymbolicNumber
from dovetail.ir.captured import GraphInput
from dovetail.ir.dims import Dim
from dovetail.ir.guard import GuardKind
from dovetail.ir.literals import literal
from dovetail.ir.source import Computed, Drawn, Source

NUMBERS = (int, float)
EXACT = 2**53  # the integers up to here are floats
LONGEST = 64  # operations in one expression; a longer one becomes a constant

SURE = frozenset(("add", "sub", "mul"))  # cannot raise on two floats or two ints, and keep their type

#: Native functions of numbers alone that the residual may call again.
FUNCTIONS: frozenset[Any] = frozenset(
    (
        int, float, abs, round, math.sqrt, math.exp, math.log, math.log2, math.log10, math.log1p, math.expm1, math.sin,
        math.cos, math.tan, math.tanh, math.sinh, math.cosh, math.asin, math.acos, math.atan, math.atan2, math.pow,
        math.floor, math.ceil, math.trunc, math.fabs, math.erf, math.hypot, math.copysign, math.fmod, math.isnan,
        math.isinf, math.isfinite, math.degrees, math.radians, math.gcd, min, max,
    )
)  # fmt: skip

#: Native functions that take a text apart.
TEXTS: frozenset[Any] = frozenset(
    (
        str.startswith, str.endswith, str.replace, str.removeprefix, str.removesuffix, str.upper, str.lower, str.strip,
        str.lstrip, str.rstrip, str.isdigit, str.count, str.find, str.rfind, str.__contains__, str.title, len,
    )
)  # fmt: skip


def may_be_constant(s: Session, value: Value) -> bool:
    """Is it a number from outside that no call has shown to change? Under `dynamic=True` it is one that might."""
    varying = s.table.varying
    if not varying.everything or not isinstance(value, InputNumber) or not value.open:
        return False
    return not any(isinstance(each, Drawn) or varying.changed(each.name()) for each in _roots(value.source))


def _roots(source: Any) -> Iterator[Source]:
    if isinstance(source, Computed):
        for operand in source.operands:
            yield from _roots(operand)
    else:
        yield source


class InputNumber(LazyConst, SymbolicNumber):
    """A number (or a text made of one) that the compiled entry loads or computes anew in each call.

    `real` is its value in the call that is captured. Whatever needs to know it asks for `value` as for any constant's:
    then the entry relies on that value, and it is a constant from there on.
    """

    __slots__ = ()
    precedence = Precedence.INPUT

    def __init__(self, s: Session, real: Any, source: Source, sure: bool = False) -> None:
        """`sure`: the type follows from the operands' types, and computing it cannot raise."""
        if sure:
            self.s, self.real, self.source, self.seen = s, real, source, False
        else:
            super().__init__(s, real, source)

    @property
    def open(self) -> bool:
        return not self.seen

    def binary(self, s: Session, name: str, left: Value, right: Value) -> Value | None:
        if name == "add" and is_text(left) and is_text(right):
            return joined(s, [left, right])
        if not (is_number(left) and is_number(right)):
            return None
        sure = name in SURE and _type(left) is _type(right) or _is_sure(name, left, right)
        return _operation(s, BINARY[name], f"({{}} {SIGNS[name]} {{}})", [left, right], sure)

    def unary(self, s: Session, name: str) -> Value | None:
        if not is_number(self):
            return None
        function, _, sign = UNARY[name]
        return _operation(s, function, f"({sign}{{}})", [self], name != "invert")

    def compare(self, s: Session, sign: str, left: Value, right: Value) -> Value | None:
        if not (is_text(left) and is_text(right)) and not (is_number(left) and is_number(right)):
            return boolean(sign == "!=") if sign in ("==", "!=") and _literal(left) and _literal(right) else None
        sure = unit_interval.compared(s, sign, left, right)
        if sure is not None:
            return boolean(sure)
        found = COMPARE[sign][0](number_of(left), number_of(right))
        return outcome(s, f"({{}} {sign} {{}})", [left, right], found)

    def truth(self, s: Session) -> bool | None:
        return bool(outcome(s, "({} != 0)", [self], self.real != 0).native()) if is_number(self) else None

    def apply(self, s: Session, function: Any, args: Args) -> Value | None:
        known = function in FUNCTIONS and all(map(is_number, args)) or function in TEXTS and all(map(_literal, args))
        if not known:
            return None
        text, parts = f"{{}}({', '.join('{}' for _ in args)})", [s.bind(function), *args]
        result = _result(function, args)
        if type(result) is bool:
            return outcome(s, text, parts, result)
        return computed(s, text, parts, result, False) if type(result) in (*NUMBERS, str) else None

    def total(self, s: Session, values: list[Value], start: Value) -> Value | None:
        template = f"{{}}(({'{}, ' * len(values)}), {{}})"
        result = sum(map(number_of, values), number_of(start))
        return computed(s, template, [s.bind(sum), *values, start], result, False)

    def as_dim(self, s: Session) -> Dim | None:
        """A symbol for a natural number from outside."""
        if type(self.real) is not int or not 0 <= self.real < 2**31:
            return None
        source: Any = self.source
        found = s.table.numbers.get(source)
        if found is None:
            s.guard(Computed("(0 <= {} < 0x80000000)", (source,)), GuardKind.ID, True)
            found = s.table.numbers[source] = new_symbol(s, source, self.real, [])
        return found

    def as_argument(self, s: Session, numbers: bool) -> tuple[Any, Any] | None:
        if self.cls is str:
            return None
        fixed = callable(s.options.backend) and s.options.dynamic is False  # it made constants of them
        if numbers and s.graph is s.root and not fixed and is_representable(s, self):
            return number_node(s, self), self.real
        return size_argument(s, self, numbers)


def size_argument(s: Session, number: InputNumber, numbers: bool) -> tuple[Any, Any] | None:
    """The same as a size, where an operation takes no number that varies; None if it cannot be one."""
    dim = number.as_dim(s) if number.cls is int else None
    if dim is None or isinstance(dim, int):
        return None
    node = s.size_node(dim)
    return node, number.real if numbers else node.meta["fake"]


def number_node(s: Session, value: InputNumber) -> torch.fx.Node:
    """The graph input for a number that varies."""
    source = value.source
    assert source is not None
    node = s.taken.numbers.get(source)
    if node is None:
        node = s.taken.numbers[source] = placeholder_of(s, source)
        node.meta["fake"] = value.real
        s.taken.inputs.append((node, GraphInput(source, value.real)))
    return node


def varies(value: Any) -> bool:
    """Is this a number, or a text, that nothing relies on yet and that differs from call to call?"""
    return isinstance(value, InputNumber) and not value.seen


def is_open(value: Any) -> bool:
    """Is this such a number, or a text from outside that nothing relies on yet?"""
    return varies(value) or type(value) is LazyConst and not value.seen and type(value.real) is str


def from_outside(s: Session, real: Any, source: Source | None) -> Value | None:
    """A number or text whose value has been seen to change, or a number that is wanted as an input, else None."""
    if source is None or type(real) not in (*NUMBERS, str):
        return None
    varying, name = s.table.varying, source.name()
    if not (varying.changed(name) if type(real) is str else name in varying):
        return None
    return InputNumber(s, real, source)


def varies_inside(s: Session, items: tuple, source: Source | None) -> bool:
    """Is this a tuple or shape whose numbers were seen to change?"""
    return type(items) in (tuple, torch.Size) and source is not None and s.table.varying.changed(source.name())


def _type(number: Any) -> type:
    return type(number.real if varies(number) else number.value)


def _is_sure(name: str, left: Any, right: Any) -> bool:
    """Do these give a float, whatever the one is that varies?"""
    number, known = (left, right) if varies(left) else (right, left)
    if varies(known) or not 0 < abs(known.value) <= EXACT or float not in (number.cls, known.cls):
        return False
    small = number.cls is float or isinstance(number.source, Drawn)
    return small and (name in SURE or name == "truediv" and known is right)


def contains(s: Session, keys: Iterable[Any], item: Any) -> bool | None:
    """`item in keys`; None where something else than numbers and texts is among them."""
    known = frozenset(keys)
    if not all(type(k) in (int, float, str, bool, type(None)) for k in known):
        return None
    text = f"({{}} in {s.bind(known, 'a set of constants').expr()})"
    return bool(outcome(s, text, [item], item.real in known).native())


def text(s: Session, value: Any, spec: str, function: Any) -> Value | None:
    """`format(value, spec)` after `function`: a text that the residual makes anew."""
    if not is_open(value):
        return None
    if type(value.real) is str and function in (str, format) and not spec:
        return value
    try:
        made = format(value.real if spec else function(value.real), spec)
    except ValueError as error:  # too many digits
        s.throw_native(error)
    inner, parts = ("{}", [value]) if spec else ("{}({})", [s.bind(function), value])
    return computed(s, f"{{}}({inner}, {braced(repr(spec))})", [s.bind(format), *parts], made, True)


def joined(s: Session, parts: list[Value]) -> Value | None:
    """Texts in one."""
    if not any(map(is_open, parts)) or not all(isinstance(p, Const) for p in parts):
        return None
    whole = "".join(number_of(p) for p in parts)
    return computed(s, f"''.join(({' '.join('{},' for _ in parts)}))", parts, whole, True)


def is_representable(s: Session, value: InputNumber) -> bool:
    """May the graph take it? Integers must fit 64 bits, as for PyTorch; the entry relies on that."""
    if type(value.real) is not int or isinstance(value.source, Drawn):
        return True
    if not -(2**63) <= value.real < 2**63:
        return False
    outcome(s, "(-0x8000000000000000 <= {} <= 0x7fffffffffffffff)", [value], True)
    return True


# ---------------------------------------------------------------- making them


def number_of(value: Any) -> Any:
    """Its value in the call that is captured."""
    return value.real if isinstance(value, LazyConst) else value.value


def is_number(value: Any) -> bool:
    """Is it one of Python's, known or not?"""
    return isinstance(value, Const) and value.cls in (int, float, bool)


def is_text(value: Any) -> bool:
    """Is it a text, known or not?"""
    return isinstance(value, Const) and value.cls is str


def _literal(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, bool, str, type(None))


def _result(function: Any, args: list) -> Any:
    try:
        return function(*map(number_of, args))
    except (ArithmeticError, ValueError, TypeError):
        return None


def _operation(s: Session, function: Any, template: str, operands: list, sure: bool) -> Value | None:
    result = _result(function, operands)
    if type(result) not in NUMBERS:
        return None  # it raises, or gives a complex number: with constants, Python says so
    return computed(s, template, operands, result, sure)


def computed(s: Session, template: str, operands: list, result: Any, sure: bool = True) -> Value | None:
    """A number or text that the residual computes; operands are numbers, texts, what has a source, and sources."""
    source = source_of(s, template, operands)
    if source.length > LONGEST:
        return None
    return InputNumber(s, result, source, sure)


def outcome(s: Session, template: str, operands: list, found: bool) -> Value:
    """Rely on what comes of a test."""
    s.guard(source_of(s, template, operands), GuardKind.ID, found)
    return boolean(found)


def source_of(s: Session, template: str, operands: list) -> Computed:
    """What gives the result; constants become part of the template."""
    known = [isinstance(v, Const) and not is_open(v) for v in operands]
    texts = [braced(constant(s, v)) if fixed else "{}" for v, fixed in zip(operands, known)]
    found = (v if isinstance(v, Source) else v.source for v, fixed in zip(operands, known) if not fixed)
    return Computed(template.format(*texts), tuple(found))


def constant(s: Session, value: Any) -> str:
    """Text for a constant, in parentheses where it begins with a sign."""
    number = value.value
    if type(number) is float and not math.isfinite(number):
        return s.bind(number, repr(number)).expr()
    shown = literal(number)
    return f"({shown})" if shown[0] == "-" else shown


def braced(text: str) -> str:
    """The text as part of a template of `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


def _wrap_lazily(s: Session, obj: Any, source: Source | None) -> Value:
    """A number or text that may never be looked at."""
    if source is None:
        return Const(obj)
    return from_outside(s, obj, source) or LazyConst(s, obj, source)


WRAPPERS |= dict.fromkeys((int, float, complex, str, bytes, range), _wrap_lazily)
