"""Exception objects: their methods and attributes, and what tells of the one being handled."""

from __future__ import annotations

import sys
from typing import Any

from dovetail.capture.process import unguarded_facts
from dovetail.capture.protocols.attributes import NATIVE_ATTRIBUTES
from dovetail.capture.tables.known_callables import KNOWN, known
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import ListValue, TupleValue
from dovetail.capture.values.objects import ExceptionValue, TracebackValue
from dovetail.ir import recursion_limit


@known(BaseException.add_note)
def _add_note(s: Session, args: Args, kwargs: Kwargs) -> Value:
    error, note = args
    notes = error.instance_attr(s, "__notes__")
    if notes is None:
        notes = ListValue([])
        error.set_instance_attr(s, "__notes__", notes)
    s.call_method(notes, "append", note)
    return NONE


known(sys.getrecursionlimit)(lambda s, args, kwargs: Const(unguarded_facts.ask(s, recursion_limit.of_program)))


@known(sys.exc_info)
def _exc_info(s: Session, args: Args, kwargs: Kwargs) -> Value:
    error = s.current_exception
    if error is None:
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([s.wrap(error.cls, None), error, TracebackValue()])


KNOWN[sys.exception] = lambda s, args, kwargs: s.current_exception or NONE


def _argument(position: int, count: int = 1) -> Any:
    """The constructor's argument, None where fewer than `count` were given."""

    def read(s: Session, error: Any) -> Value:
        if error.original is not None or not isinstance(error, ExceptionValue):
            return _original(s, error, position)
        return error.args[position] if len(error.args) >= max(count, position + 1) else NONE

    return read


def _original(s: Session, error: Any, position: int) -> Value:
    args = error.original.args
    return s.from_native(args[position]) if position < len(args) else NONE


def _named(name: str) -> Any:
    """What Python fills in itself (`AttributeError.name`) or a keyword argument."""

    def read(s: Session, error: Any) -> Value:
        found = error.attrs.get(name)
        if found is not None:
            return found
        real = getattr(error.original, name, None) if error.original is not None else None
        return s.wrap(real, None)

    return read


NATIVE_ATTRIBUTES.update(
    {
        (StopIteration, "value"): _argument(0),
        (SystemExit, "code"): _argument(0),
        (AttributeError, "name"): _named("name"),
        (AttributeError, "obj"): _named("obj"),
        (NameError, "name"): _named("name"),
        (ImportError, "name"): _named("name"),
        (ImportError, "path"): _named("path"),
        (ImportError, "msg"): _argument(0),
        (OSError, "errno"): _argument(0, 2),
        (OSError, "strerror"): _argument(1, 2),
        (OSError, "filename"): _argument(2, 3),
        (BaseExceptionGroup, "message"): _argument(0),
        (BaseExceptionGroup, "exceptions"): lambda s, error: TupleValue(s.unpack(error.args[1])),
    }
)
