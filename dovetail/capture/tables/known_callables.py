"""The tables that calls are looked up in; the other files of this folder fill them.

    KNOWN      a callable → a function of (session, args, kwargs) that gives the result
    CLOSURES   a code object's address → a function of (session, function, args, kwargs): what a decorator returned
    STANDINS   a callable → a Python function traced in its place
    ITERATORS  the code of a stand-in that is a generator → the class whose instance it stands for
    FOLDED     pure native callables, called while capturing when every argument is known
    BY_TYPE    those of them that look at the type of what they get, or at a definition, and at nothing else
    FOLDED_METHOD_TYPES   types whose native methods are all pure
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

from dovetail.capture.process.trusted_code import foreign
from dovetail.capture.values.base import NONE, Args, Kwargs, Session, Value
from dovetail.capture.values.callables import FunctionValue
from dovetail.ir.source import BUILTINS

Handler = Callable[["Session", Args, Kwargs], Value]
Function = TypeVar("Function", bound=Callable[..., Any])

GENERATOR = 0x20  # among a code's flags

# A handler of a Python function returns this to have the call inlined after all.
INLINE = Value()

# Under this key lies the handler of functions that the user lets run after the graph.
CALL_LATER = "call later"

KNOWN: dict[Any, Handler] = {}
CLOSURES: dict[int, Callable[[Session, FunctionValue, Args, Kwargs], Value]] = {}
STANDINS: dict = {}
ITERATORS: dict[CodeType, type] = {}
FOLDED: set[Any] = set()
BY_TYPE: set[Any] = set()
FOLDED_METHOD_TYPES = {int, float, bool, complex, str, bytes, range, type(None)}


def known(*targets: Any) -> Callable[[Handler], Handler]:
    """Register a handler for callables."""

    def register(handler: Handler) -> Handler:
        KNOWN.update(dict.fromkeys(filter(None, map(genuine, targets)), handler))
        return handler

    return register


def genuine(target: Any) -> Any:
    """Python's own function where the program has put one in its place before capture was imported; else None."""
    if not foreign(target):
        return target
    return next((BUILTINS[name] for name, found in vars(builtins).items() if found is target), None)


def standin(*targets: Any) -> Callable[[Function], Function]:
    """Register a Python function to be traced instead of the callables."""

    def register(function: Function) -> Function:
        for target in targets:
            if not foreign(target):
                STANDINS[target] = function
            made = target if isinstance(target, type) else getattr(target, "__self__", None)
            if function.__code__.co_flags & GENERATOR and isinstance(made, type):
                ITERATORS[function.__code__] = made
        return function

    return register


#: What Python says of arguments that a function of ours does not take.
REFUSALS = ("positional argument", "unexpected keyword", "multiple values")


def methods(classes: type | tuple[type, ...], *names: str) -> Callable[[Function], Function]:
    """Register `function(s, receiver, *args, **kwargs)`; a result of None is Python's None."""
    owners = classes if isinstance(classes, tuple) else (classes,)

    def register(function: Function) -> Function:
        def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
            try:
                result = function(s, *args, **kwargs)
            except TypeError as error:
                if not any(words in str(error) for words in REFUSALS):
                    raise
                return s.throw(TypeError, str(error))
            return NONE if result is None else result

        known(*(cls.__dict__[name] for cls in owners for name in names))(handler)
        return function

    return register
