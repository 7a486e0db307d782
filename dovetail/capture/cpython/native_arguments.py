"""Do arguments fit a native callable that capture stands in for? It is asked itself, with objects that are nothing.

    len([3], [4])                 TypeError: len() takes exactly one argument (2 given)
    {3: 4}.get(key=3)             TypeError: dict.get() takes no keyword arguments
    enumerate(iterable=v)     →   enumerate(v)
"""

from __future__ import annotations

import inspect
import re
from itertools import takewhile
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any

from dovetail.capture.values.base import Args, Kwargs, Session
from dovetail.ir.stores import remembered

#: Whose functions and classes look at how many arguments there are before they do anything.
MODULES = frozenset("builtins collections _collections itertools functools _functools _operator _bisect _heapq".split())
#: The one would print what is nothing; what the other takes follows from the class that it is called for.
EFFECTIVE = frozenset((print, object.__init__))
NATIVE = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, type)
#: Parameters that a native callable takes by name too and has no signature to say so.
NAMED = {str: ("object", "encoding", "errors")}
#: A parameter as a native callable's text has it, where its default is a word; `*` and `/` are no parameters.
PLAIN = re.compile(r"\$?(\w+)(=([-\w.']+|\(\)))?|[*/]")
#: What its text has where it does not say exactly what it takes.
VAGUE = re.compile(r"\*\w|<unrepresentable>")
HEAP_TYPE = 1 << 9  # of a class's flags: made by a program, or like it
REFUSED = re.compile(r"(takes|expected|needs) .*argument|keyword|missing|positional|have at least|specify a default")


class Hollow:
    """An argument that is nothing, and holds nothing."""

    def __iter__(self) -> Any:
        return iter(())


def fitted(s: Session, real: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments, those in order that may be; raises in the traced program what the callable would."""
    owner = None if isinstance(real, ClassMethodDescriptorType) else getattr(real, "__objclass__", None)
    if owner is not None and args and not issubclass(args[0].cls, owner) and _asked(real):
        stranger = type(args[0].cls.__name__, (), {})()
        _refuse(s, real, (stranger, *[Hollow()] * (len(args) - 1)), tuple(kwargs))
    if kwargs and not _asked(real):
        return led(real, args, kwargs)
    found = _look_at(real, len(args), tuple(kwargs))
    if isinstance(found, TypeError):
        return s.throw(TypeError, str(found))
    if not found:
        return args, kwargs
    rest = {name: value for name, value in kwargs.items() if name not in found}
    return [*args, *(kwargs[name] for name in found)], rest


def led(real: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of one of torch's functions; what it cannot do without is positional: `numel(input=x)`."""
    names = _required(real)[len(args) :] if isinstance(real, FunctionType) else _first(args, kwargs)
    found = list(takewhile(kwargs.__contains__, names))
    return [*args, *map(kwargs.__getitem__, found)], {n: v for n, v in kwargs.items() if n not in found}


def _first(args: Args, kwargs: Kwargs) -> list[str]:
    """Native functions of torch have no signature to ask; `input` is what their first parameter is called."""
    return [] if args else ["input"] if "input" in kwargs else list(kwargs) if len(kwargs) == 1 else []


def _required(real: FunctionType) -> list[str]:
    parameters = inspect.signature(real, follow_wrapped=False).parameters.values()
    return [p.name for p in takewhile(lambda p: p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD, parameters)]


def _asked(real: Any) -> bool:
    module = getattr(real, "__module__", None) or getattr(getattr(real, "__objclass__", None), "__module__", None)
    return isinstance(real, NATIVE) and module in MODULES and real not in EFFECTIVE


@remembered(4096)
def _look_at(real: Any, count: int, names: tuple[str, ...]) -> TypeError | tuple[str, ...]:
    """The error, or the names of arguments that follow the positional ones in order."""
    if not _asked(real):
        return ()  # of torch, NumPy or the program
    parameters = _parameters(real)
    if parameters is not None:
        try:
            inspect.Signature(parameters).bind(*[None] * count, **dict.fromkeys(names))
        except TypeError as error:
            return _refusal(real, count, names) or error
        ordered = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    else:
        refusal = _refusal(real, count, names)
        if refusal is not None:
            return refusal
        ordered = list(NAMED.get(real, ()))
    taken = []
    for name in ordered[count:]:
        if name not in names:
            break
        taken.append(name)
    return tuple(taken)


def _parameters(real: Any) -> list[inspect.Parameter] | None:
    """None where the callable does not say exactly what it takes."""
    text = real.__text_signature__ if not isinstance(real, type) or not real.__flags__ & HEAP_TYPE else None
    if text and VAGUE.search(text):
        return None
    parts = text[1:-1].split(", ") if text else []
    if parts and all(map(PLAIN.fullmatch, parts)):
        return _written(parts, getattr(real, "__self__", None) is not None)
    try:
        found = list(inspect.signature(real).parameters.values())
    except (ValueError, TypeError):
        return None
    return None if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found) else found


def _written(parts: list[str], bound: bool) -> list[inspect.Parameter]:
    """What `inspect` finds, which copies the table of modules and compiles the text to know the defaults' values."""
    found: list[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for part in parts:
        name, default, _ = part.partition("=")
        if name == "/":
            found = [p.replace(kind=p.POSITIONAL_ONLY) for p in found]
        elif name == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif not (bound and name[0] == "$"):
            only = inspect.Parameter.POSITIONAL_ONLY if name[0] == "$" else kind
            found.append(inspect.Parameter(name.lstrip("$"), only, default=default or inspect.Parameter.empty))
    return found


def _refusal(real: Any, count: int, names: tuple[str, ...]) -> TypeError | None:
    """What the callable says of so many arguments with these names; None where it would take them."""
    given: list = [Hollow() for _ in range(count)]
    owner = getattr(real, "__objclass__", None)
    if owner is not None and count:
        try:
            given[0] = owner if isinstance(real, ClassMethodDescriptorType) else owner()
        except TypeError:
            return None
    try:
        real(*given, **{name: Hollow() for name in names})
    except TypeError as error:
        return error if REFUSED.search(str(error)) else None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, ValueError):  # at its work
        return None
    return None


def _refuse(s: Session, real: Any, given: tuple, names: tuple[str, ...]) -> None:
    try:
        real(*given, **{name: Hollow() for name in names})
    except TypeError as error:
        s.throw(TypeError, str(error))
