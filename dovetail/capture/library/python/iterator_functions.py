"""Built-in functions that make iterators or use them up, and the methods of iterators and generators."""

from __future__ import annotations

import itertools
import types
from collections import OrderedDict, deque
from typing import Any

from dovetail.capture.containers.iteration import each
from dovetail.capture.interpreter.frame import GeneratorValue
from dovetail.capture.interpreter.tail_calls import OPERATOR, of_next, protocol
from dovetail.capture.library.python.builtins import is_callable, unless
from dovetail.capture.numbers import dispatch
from dovetail.capture.numbers.input_numbers import is_number
from dovetail.capture.polyfills.protocols import advance_or
from dovetail.capture.protocols.attributes import NATIVE_ATTRIBUTES
from dovetail.capture.protocols.subscripts import NO_INTEGER, as_index, backwards
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.callables import ClassValue
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.derived_iterators import Enumerating, Filtering, Mapping, Zipping
from dovetail.capture.values.iterators import Calling, IteratorValue
from dovetail.capture.values.objects import ObjectValue


@known(iter)
def _iter(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return s.iterate(args[0])
    if not s.truth(is_callable(s, args[:1], {})):
        s.throw(TypeError, "iter(v, w): v must be callable")
    return Calling(args[0], args[1])


@known(next)
def _next(s: Session, args: Args, kwargs: Kwargs) -> Value:
    iterator = args[0]
    awaited = of_next(s, iterator) if s.awaited() is OPERATOR else None
    if len(args) == 1:
        s.frames[-1].awaits = awaited
        return _advanced(s, iterator)
    if awaited is not None:
        return protocol(s, advance_or, [iterator, args[1]], True)
    return unless(StopIteration, lambda: _advanced(s, iterator)) or args[1]


def _advanced(s: Session, iterator: Value) -> Value:
    if not isinstance(iterator, IteratorValue):
        return s.step_or_raise(iterator)
    found = iterator.step(s)
    return _exhausted(s, iterator) if found is None else found


def _exhausted(s: Session, iterator: Value) -> Any:
    """StopIteration, with what a generator returned."""
    result = getattr(iterator, "result", NONE)
    return s.throw(StopIteration, *([] if isinstance(result, Const) and result.value is None else [result]))


@known(enumerate)
def _enumerate(s: Session, args: Args, kwargs: Kwargs) -> Value:
    iterator = s.iterate(args[0])
    start = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    return Enumerating(iterator, as_index(s, start, NO_INTEGER), TupleValue)


@known(zip)
def _zip(s: Session, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and s.truth(kwargs["strict"])
    return Zipping([s.iterate(a) for a in args], TupleValue, strict)


known(map)(lambda s, args, kwargs: Mapping(args[0], [s.iterate(a) for a in args[1:]]))
known(filter)(lambda s, args, kwargs: Filtering(args[0], s.iterate(args[1])))


@known(reversed)
def _reversed(s: Session, args: Args, kwargs: Kwargs) -> Value:
    method = s.find_special(args[0], "__reversed__")
    if method is not None and type(s.static(args[0].cls, "__reversed__")) is type(_reversed):
        return s.call(method)
    return backwards(s, args[0])


known(any)(lambda s, args, kwargs: boolean(any(s.truth(value) for value in each(s, args[0]))))
known(all)(lambda s, args, kwargs: boolean(all(s.truth(value) for value in each(s, args[0]))))


@known(sum)
def _sum(s: Session, args: Args, kwargs: Kwargs) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    numbers: Args | None = [] if is_number(total) else None
    for value in each(s, args[0]):
        if numbers is not None and is_number(value):
            numbers.append(value)
            continue
        total = dispatch.added(s, numbers, total) if numbers else total
        numbers, total = None, s.binary("add", total, value)
    return dispatch.added(s, numbers, total) if numbers else total


def _sent(s: Session, generator: GeneratorValue, found: Value | None) -> Value:
    return found if found is not None else _exhausted(s, generator)


GENERATOR = types.GeneratorType
COROUTINE = types.CoroutineType


@known(GENERATOR.send, COROUTINE.send)
def _generator_send(s: Session, args: Args, kwargs: Kwargs) -> Value:
    generator = args[0]
    return _sent(s, generator, generator.send(s, args[1]))  # type: ignore[arg-type, attr-defined]


known(GENERATOR.__next__)(lambda s, args, kwargs: _sent(s, args[0], s.step(args[0])))  # type: ignore[arg-type]


ITERATORS = (
    type(iter([])), type(iter(())), type(iter(range(0))), type(iter({})), type(iter({}.values())),
    type(iter({}.items())), type(iter(set())), type(iter("")), type(iter(b"")), enumerate, zip, map, filter, reversed,
    type(reversed([])), type(iter(int, 0)), type(iter(deque())), type(reversed(deque())), type(iter(OrderedDict())),
    *(type(reversed(getattr({}, kind)())) for kind in ("keys", "values", "items")), type(itertools.tee(())[0]),
    *(cls for cls in vars(itertools).values() if isinstance(cls, type) and hasattr(cls, "__next__")),
)  # fmt: skip


@known(*(cls.__next__ for cls in ITERATORS))  # type: ignore[attr-defined]
def _iterator_next(s: Session, args: Args, kwargs: Kwargs) -> Value:
    found = s.step(args[0])
    return found if found is not None else s.throw(StopIteration)


known(*(cls.__iter__ for cls in (*ITERATORS, GENERATOR)))(lambda s, args, kwargs: args[0])  # type: ignore[attr-defined]


known(range.__iter__, str.__iter__, bytes.__iter__)(lambda s, args, kwargs: s.iterate(args[0]))


@known(GENERATOR.throw, COROUTINE.throw)
def _generator_throw(s: Session, args: Args, kwargs: Kwargs) -> Value:
    generator, error = args[0], args[-1] if not isinstance(args[-1], ClassValue) else s.call(args[-1])
    if len(args) > 2 and isinstance(args[2], ObjectValue):
        error = args[2]
    return _sent(s, generator, generator.throw(s, error))  # type: ignore[arg-type, attr-defined]


for _kind in (GENERATOR, COROUTINE):
    NATIVE_ATTRIBUTES[(_kind, "__name__")] = lambda s, v: Const(v.frame.code.code.co_name)
    NATIVE_ATTRIBUTES[(_kind, "__qualname__")] = lambda s, v: Const(v.frame.code.code.co_qualname)


@known(GENERATOR.close, COROUTINE.close)
def _generator_close(s: Session, args: Args, kwargs: Kwargs) -> Value:
    found = args[0].close(s)  # type: ignore[attr-defined]
    return NONE if found is None else s.throw(RuntimeError, "generator ignored GeneratorExit")
