"""Questions about functions, methods and classes."""

from __future__ import annotations

import inspect
import types
from typing import Any

from dovetail.capture.calling.calls import fold
from dovetail.capture.process import unguarded_facts
from dovetail.capture.protocols.class_lookup import stand_in
from dovetail.capture.tables.known_callables import KNOWN, known
from dovetail.capture.values.base import MISSING, Args, Kwargs, Session, Value, boolean
from dovetail.capture.values.callables import FunctionValue, MethodValue
from dovetail.ir import asked


def _is(kind: type) -> Any:
    return lambda s, args, kwargs: boolean(issubclass(args[0].cls, kind))


KNOWN[inspect.isfunction] = _is(types.FunctionType)
KNOWN[inspect.ismethod] = _is(types.MethodType)
KNOWN[inspect.isclass] = _is(type)
KNOWN[inspect.ismodule] = _is(types.ModuleType)
KNOWN[inspect.isgenerator] = _is(types.GeneratorType)
KNOWN[inspect.iscoroutine] = _is(types.CoroutineType)


def _makes(flag: int, native: Any) -> Any:
    """Does the code of a function, also of one made inside, say so?"""

    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        target = args[0].function if isinstance(args[0], MethodValue) else args[0]
        if isinstance(target, FunctionValue):
            return boolean(bool(target.code.co_flags & flag))
        return fold(s, native, args, kwargs)

    return handler


KNOWN[inspect.isgeneratorfunction] = _makes(inspect.CO_GENERATOR, inspect.isgeneratorfunction)
KNOWN[inspect.iscoroutinefunction] = _makes(inspect.CO_COROUTINE, inspect.iscoroutinefunction)


@known(inspect.signature)
def _signature(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """Also of functions made inside, and of methods of objects made inside."""
    target = args[0]
    bound = isinstance(target, MethodValue)
    if bound:
        target = target.function  # type: ignore[attr-defined]
    if not isinstance(target, FunctionValue):
        return fold(s, inspect.signature, args, kwargs)
    if target.real is not MISSING and not kwargs:
        return s.wrap(unguarded_facts.ask(s, asked.signature, target.real, bound), None)
    found = inspect.signature(stand_in(s, target), **{k: v.native() for k, v in kwargs.items()})
    if bound:
        found = found.replace(parameters=list(found.parameters.values())[1:])
    return s.wrap(found, None)
