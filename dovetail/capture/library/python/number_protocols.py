"""Built-in functions of numbers, which ask an object for a special method: `__index__`, `__divmod__`, `__round__`."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch

from dovetail.capture.calling.calls import fold
from dovetail.capture.numbers import input_numbers
from dovetail.capture.numbers.size_values import as_dim, is_open_size, size_value
from dovetail.capture.numbers.unbacked_sizes import UnbackedSize
from dovetail.capture.protocols.subscripts import indexed_by
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Const, Kwargs, LazyConst, Session, Value
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.iterators import WALKS, ConstIterator, _from
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL


@known(range)
def _range(s: Session, args: Args, kwargs: Kwargs) -> Value:
    for arg in args:
        if isinstance(arg, TensorValue):
            s.torch_method("item", [arg], {})
    args = [indexed_by(s, a) if isinstance(a, ObjectValue) else a for a in args]
    return between(s, args) or fold(s, range, args, kwargs)


@known(operator.index)
def _index(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and args[0].cls is int:
        return args[0]  # whatever it is
    if isinstance(args[0], (ObjectValue, TensorValue)):
        return indexed_by(s, args[0])
    return fold(s, operator.index, args, kwargs)


@known(divmod)
def _divmod(s: Session, args: Args, kwargs: Kwargs) -> Value:
    left, right = args
    for value, other, name in ((left, right, "__divmod__"), (right, left, "__rdivmod__")):
        if type(s.static(value.cls, name)) is type(_divmod) and not isinstance(value, TensorValue):
            result = s.call_special(value, name, other)
            if not (isinstance(result, Const) and result.value is NotImplemented):
                return result
    if any(isinstance(a, TensorValue) for a in args):
        names = " and ".join(repr(a.cls.__name__) for a in args)
        s.throw(TypeError, f"unsupported operand type(s) for divmod(): {names}")
    return TupleValue([s.binary("floordiv", *args), s.binary("mod", *args)])


@known(pow)
def _pow(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.binary("pow", *args) if len(args) == 2 else _special_or_fold(s, pow, "__pow__", args)


@known(abs, operator.abs)
def _abs(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue):
        return s.torch_call(operator.abs, args, {})
    return _special_or_fold(s, abs, "__abs__", args)


@known(round)
def _round(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue) and not hasattr(torch.Tensor, "__round__"):
        s.throw(TypeError, f"type {args[0].cls.__name__} doesn't define __round__ method")
    return _special_or_fold(s, round, "__round__", args)


def _special_or_fold(s: Session, function: Any, special: str, args: Args) -> Value:
    method = s.find_special(args[0], special) if isinstance(args[0], ObjectValue) else None
    return s.call(method, *args[1:]) if method is not None else fold(s, function, args, {})


# ---------------------------------------------------------------- ranges between sizes that vary

# A loop relies on how often it runs, and its items are sizes again.
#
#     for start in range(0, n, 128):      ->      relies on 128*(k - 1) < n <= 128*k, where it runs k times


class SizeRange(LazyConst):
    """A range; who asks for it relies on its bounds."""

    __slots__ = ("bounds", "step")

    def __init__(self, s: Session, bounds: list, step: int) -> None:
        self.s, self.bounds, self.step, self.seen = s, bounds, step, False
        first, last = bounds
        self.real = range(input_numbers.number_of(first), input_numbers.number_of(last), step)
        self.source = input_numbers.source_of(s, "{}({}, {}, {})", [s.bind(range), *bounds, Const(step)])

    @property
    def value(self) -> range:
        if not self.seen:
            self.seen = True
            for bound in self.bounds:
                bound.value  # noqa: B018 it is relied on from now on
        return self.real


def between(s: Session, args: list) -> Value | None:
    """`range(*args)` where a bound is a size that varies; None where only constants will do."""
    if not 1 <= len(args) <= 3:
        return None
    first, last, step = (Const(0), *args, Const(1)) if len(args) == 1 else (*args, Const(1))[:3]
    if not any(map(is_open_size, (first, last))) or any(isinstance(v, UnbackedSize) for v in (first, last)):
        return None
    if not isinstance(step, Const) or is_open_size(step) or step.cls is not int or step.value <= 0:
        return None
    known = None not in (as_dim(s, first), as_dim(s, last))
    return SizeRange(s, [first, last], step.value) if known else None


class RangeIterator(ConstIterator):
    """Walks such a range."""

    __slots__ = ()

    def __init__(self, s: Session, base: SizeRange) -> None:
        super().__init__(s, base.real)
        self.base = base
        self.walk = self.items(s)

    def items(self, s: Session) -> Iterator[Value]:
        base: Any = self.base
        bounds: list = [as_dim(s, bound) for bound in base.bounds]
        first, last = bounds
        times, table = len(base.real), s.table.sizes
        if base.step == 1 and times:
            table.holds(EQUAL, last - first - times)
        else:
            table.holds(AT_LEAST, first + times * base.step - last)
            if times:
                table.holds(AT_LEAST, last - first - (times - 1) * base.step - 1)
        return (size_value(s, first + k * base.step) for k in range(times))

    def parts(self, s: Session) -> Any:
        base: Any = self.base
        return _from, [base, Const(min(self.index, len(base.real)))]


WALKS[SizeRange] = lambda s, value: None if value.seen else RangeIterator(s, value)
