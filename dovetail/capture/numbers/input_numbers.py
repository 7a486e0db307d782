"""What can be done with a number that differs from call to call without relying on its value.

Arithmetic on such numbers is plain Python on what they came from: the residual computes it before the graph runs, and
the graph takes the results that tensors are combined with as inputs. A comparison relies on its outcome only. What
might raise is part of the guards too, where raising is a miss. Everything else asks for the value and makes it a
constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dovetail.capture.numbers import graph_numbers, size_values, tensor_numbers, unbacked_sizes
from dovetail.capture.outside.wrap import WRAPPERS
from dovetail.capture.values.base import Const, LazyConst, Value, boolean
from dovetail.capture.values.scalar import Claim, GraphNumber, ScalarValue, TensorNumber
from dovetail.ir.guard import GuardKind
from dovetail.ir.literals import literal
from dovetail.ir.source import Computed, Drawn, Source

if TYPE_CHECKING:
    from dovetail.capture.session import Session

NUMBERS = (int, float)
IN_GRAPH = (GraphNumber, TensorNumber)
EXACT = 2**53  # the integers up to here are floats
LONGEST = 64  # operations in one expression; a longer one becomes a constant

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
UNARY_SIGNS = {"neg": "-", "pos": "+", "invert": "~"}
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


class Kind(NamedTuple):
    """What is done with another kind of number that varies, in place of the functions below."""

    binary: Callable[..., Any]
    compare: Callable[..., Any]
    call: Callable[..., Any]


KINDS: dict[type, Kind] = {}  # by the class of their values


def _kind(*values: Any) -> Kind | None:
    return next((KINDS[type(v)] for v in values if type(v) in KINDS and not v.seen), None)


def varies(value: Any) -> bool:
    """Is this a number, or a text, that nothing relies on yet and that differs from call to call?"""
    return isinstance(value, ScalarValue) and not value.seen


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
    return ScalarValue(s, real, source)


def varies_inside(s: Session, items: tuple[Any, ...], source: Source | None) -> bool:
    """Is this a tuple or shape whose numbers were seen to change?"""
    return type(items) in (tuple, torch.Size) and source is not None and s.table.varying.changed(source.name())


def binary(s: Session, name: str, left: Value, right: Value) -> Value | None:
    """`left op right`; None where only constants will do."""
    if isinstance(left, (GraphNumber, Claim)) or isinstance(right, (GraphNumber, Claim)):
        return graph_numbers.binary(s, name, left, right)
    if isinstance(left, TensorNumber) or isinstance(right, TensorNumber):
        return tensor_numbers.binary(s, name, left, right)
    kind = _kind(left, right)
    if kind is not None:
        return kind.binary(s, name, left, right)
    name = name if name in SIGNS else name[1:]
    made = size_values.binary(s, name, left, right)
    if made is not None:
        return made
    if name == "add" and _text(left) and _text(right):
        return joined(s, [left, right])
    if name not in SIGNS or not (varies(left) or varies(right)) or not (_number(left) and _number(right)):
        return None
    kinds = _type(left), _type(right)
    sure = name in SURE and kinds[0] is kinds[1] or _is_sure(name, left, right)
    return _operation(s, f"({{}} {SIGNS[name]} {{}})", [left, right], sure)


def _type(number: Any) -> type:
    return type(number.real if varies(number) else number.value)


def _is_sure(name: str, left: Any, right: Any) -> bool:
    """Do these give a float, whatever the one is that varies?"""
    number, known = (left, right) if varies(left) else (right, left)
    if varies(known) or not 0 < abs(known.value) <= EXACT or float not in (number.cls, known.cls):
        return False
    small = number.cls is float or isinstance(number.source, Drawn)
    return small and (name in SURE or name == "truediv" and known is right)


def unary(s: Session, name: str, value: Value) -> Value | None:
    if isinstance(value, (GraphNumber, Claim)):
        return graph_numbers.unary(s, name, value)
    if isinstance(value, TensorNumber):
        return tensor_numbers.unary(s, name, value)
    if not varies(value) or not _number(value):
        return None
    made = size_values.unary(s, name, value)
    return made or _operation(s, f"({UNARY_SIGNS[name]}{{}})", [value], name != "invert")


def compare(s: Session, sign: str, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Value | None:
    """The entry relies on the outcome."""
    if isinstance(left, (*IN_GRAPH, Claim)) or isinstance(right, (*IN_GRAPH, Claim)):
        open_ = unbacked_sizes.compare(s, sign, left, right)
        if open_ is not None:
            return open_
        both = all(isinstance(v, (*IN_GRAPH, Claim)) or _number(v) for v in (left, right))
        return graph_numbers.needed(s) if both else None
    if not (varies(left) or varies(right)):
        return None
    kind = _kind(left, right)
    if kind is not None:
        return kind.compare(s, sign, function, left, right)
    known = size_values.compare(s, sign, left, right)
    if known is not None:
        return boolean(known)
    texts = _text(left) and _text(right)
    if not texts and not (_number(left) and _number(right)):
        return boolean(sign == "!=") if sign in ("==", "!=") and _literal(left) and _literal(right) else None
    return outcome(s, f"({{}} {sign} {{}})", [left, right], function(number_of(left), number_of(right)))


def contains(s: Session, keys: Iterable[Any], item: Any) -> bool | None:
    """`item in keys`; None where something else than numbers and texts is among them."""
    known = frozenset(keys)
    if not all(type(k) in (int, float, str, bool, type(None)) for k in known):
        return None
    text = f"({{}} in {s.bind(known, 'a set of constants').expr()})"
    return bool(outcome(s, text, [item], item.real in known).native())


def truth(s: Session, value: Any) -> bool | None:
    if isinstance(value, (*IN_GRAPH, Claim)):
        known = unbacked_sizes.truth(s, value)
        return graph_numbers.needed(s) if known is None else known
    if not varies(value) or not _number(value):
        return None
    known = size_values.compare(s, "!=", value, Const(0))
    if known is not None:
        return known
    return bool(outcome(s, "({} != 0)", [value], value.real != 0).native())


def call(s: Session, function: Any, args: list[Value]) -> Value | None:
    """`function(*args)` for a native function of numbers."""
    if any(isinstance(a, TensorNumber) for a in args):
        return tensor_numbers.call(s, function, args)
    kind = _kind(*args)
    if kind is not None:
        return kind.call(s, function, args)
    made = graph_numbers.call(s, function, args) or size_values.call(s, function, args)
    if made is not None:
        return made
    known = function in FUNCTIONS and all(map(_number, args)) or function in TEXTS and all(map(_literal, args))
    if not known or not any(map(varies, args)):
        return None
    text, parts = f"{{}}({', '.join('{}' for _ in args)})", [s.bind(function), *args]
    result = _result(function, args)
    if type(result) is bool:
        return outcome(s, text, parts, result)
    return computed(s, text, parts, result, False) if type(result) in (*NUMBERS, str) else None


def added(s: Session, values: list[Any], start: Any) -> Value:
    """`sum(values, start)` of numbers: Python may be more exact than adding one after the other."""
    numbers = [*values, start]
    whole = size_values.added(s, numbers)
    if whole is not None:
        return whole
    if any(map(varies, numbers)):
        template = f"{{}}(({'{}, ' * len(values)}), {{}})"
        made = computed(s, template, [s.bind(sum), *numbers], sum(map(number_of, values), number_of(start)), False)
        if made is not None:
            return made
    return Const(sum((v.value for v in values), start.value))


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


def is_representable(s: Session, value: ScalarValue) -> bool:
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


def _number(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, bool)


def _text(value: Any) -> bool:
    return isinstance(value, Const) and value.cls is str


def _literal(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, bool, str, type(None))


def _result(function: Any, args: list[Any]) -> Any:
    try:
        return function(*map(number_of, args))
    except (ArithmeticError, ValueError, TypeError):
        return None


def _operation(s: Session, template: str, operands: list[Any], sure: bool) -> Value | None:
    names = tuple(f"_{k}" for k in range(len(operands)))
    result = _result(_evaluator(template, names), operands)
    if type(result) not in NUMBERS:
        return None  # it raises, or gives a complex number: with constants, Python says so
    return computed(s, template, operands, result, sure)


def _evaluator(template: str, names: tuple[str, ...]) -> Any:
    return eval(f"lambda {', '.join(names)}: {template.format(*names)}")


def computed(s: Session, template: str, operands: list[Any], result: Any, sure: bool = True) -> Value | None:
    """A number or text that the residual computes; operands are numbers, texts, what has a source, and sources."""
    source = source_of(s, template, operands)
    if source.length > LONGEST:
        return None
    return ScalarValue(s, result, source, sure)


def outcome(s: Session, template: str, operands: list[Any], found: bool) -> Value:
    """Rely on what comes of a test."""
    s.guard(source_of(s, template, operands), GuardKind.ID, found)
    return boolean(found)


def source_of(s: Session, template: str, operands: list[Any]) -> Computed:
    """What gives the result; constants become part of the template."""
    known = [isinstance(v, Const) and not is_open(v) for v in operands]
    texts = [braced(constant(s, v)) if fixed else "{}" for v, fixed in zip(operands, known)]
    found = (v if isinstance(v, Source) else v.source for v, fixed in zip(operands, known) if not fixed)
    return Computed(template.format(*texts), tuple(found))


def constant(s: Session, value: Any) -> str:
    number = value.value
    if type(number) is float and not math.isfinite(number):
        return s.bind(number, repr(number)).expr()
    shown = literal(number)
    return f"({shown})" if shown[0] == "-" else shown


def braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _wrap_late(s: Session, obj: Any, source: Source | None) -> Value:
    """A number or text that may never be looked at."""
    if source is None:
        return Const(obj)
    return from_outside(s, obj, source) or LazyConst(s, obj, source)


WRAPPERS |= dict.fromkeys((int, float, complex, str, bytes, range), _wrap_late)
