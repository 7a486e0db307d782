"""Why did an entry not fit? Each guard is evaluated on its own, by the very text that the entry runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch

from dovetail.guards import state, tensor
from dovetail.guards.conditions import Writer, write
from dovetail.guards.signature import ResidualText
from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.literals import error_in_words, in_words
from dovetail.ir.outside import outside_reason
from dovetail.ir.records import dataclass
from dovetail.ir.settings import SETTINGS
from dovetail.ir.sizesource import shown
from dovetail.ir.source import Source


@dataclass(frozen=True, slots=True)
class Failure:
    """A guard that does not hold: `text` says so in the user's terms."""

    guard: Guard | None
    text: str
    user_line: str = ""
    changed: tuple[str, ...] = ()  # the sizes and numbers without whose constancy it would hold, by their paths
    other_kind: bool = False  # about a tensor's dtype, device or rank, the mode of a module, or a state

    def __str__(self) -> str:
        return f"{self.text}  # {self.user_line}" if self.user_line else self.text


#: Of an entry without guards, after the call that it was made for.
SPENT = Failure(None, "it was made for one call")


def failures(
    guards: Iterable[Guard],
    residual: ResidualText,
    namespace: Mapping[str, Any],
    args: tuple,
    kwargs: Mapping[str, Any],
) -> list[Failure]:
    """The guards that fail for this call, in their own order.

    What lies inside another object than the expected one is not read: that may warn, or run code of its class.
    """
    found: list[Failure] = []
    others: set[Any] = set()
    every = list(guards)
    for some in (every[k : k + TOGETHER] for k in range(0, len(every), TOGETHER)):
        asked = len(every) > TOGETHER and not any(_within(others, guard) for guard in some)
        if asked and _all_hold(some, residual, namespace, args, kwargs):
            continue
        checks = _checks(some, residual, namespace)(*args, **kwargs)
        next(checks)
        for guard in some:
            if checks.send(_within(others, guard)):
                continue
            found.append(_failure(guard, lambda s: _value(s, residual, namespace, args, kwargs)))
            if guard.kind in KINDS_OF_OBJECT or isinstance(guard.payload, (set, frozenset)):
                others.add(guard.source)
    return found


TOGETHER = 256  # guards in one generated function


def _all_hold(
    guards: Sequence[Guard],
    residual: ResidualText,
    namespace: Mapping[str, Any],
    args: tuple,
    kwargs: Mapping[str, Any],
) -> bool:
    """Of many most do, and one answer for all is compiled sooner than one for each."""
    writer = Writer(residual.names, "return False")
    for guard in guards:
        write(guard, writer)
    body = [*writer.take(), "return True"]
    try:
        return bool(residual.function(body, "all_hold", {**namespace, **writer.names})[0](*args, **kwargs))
    except Exception:
        return False


def _checks(guards: Sequence[Guard], residual: ResidualText, namespace: Mapping[str, Any]) -> Callable[..., Any]:
    """A generator function. What it yields says whether a guard holds; it is told which ones to leave out.

    def checks(x):
        _left_out = yield
        _holds = True
        if not _left_out:
            try:
                if not (x.shape == (3,)): raise _Fails
            except Exception:
                _holds = False
        _left_out = yield _holds
    """
    writer, body = Writer(residual.names, "raise _Fails"), ["_left_out = yield"]
    for guard in guards:
        write(guard, writer)
        body += ["_holds = True", "if not _left_out:", "    try:", *(f"        {line}" for line in writer.take()),
                 "    except Exception:", "        _holds = False", "_left_out = yield _holds"]  # fmt: skip
    return residual.function(body, "checks", {**namespace, **writer.names, "_Fails": Exception})[0]


KINDS_OF_OBJECT = (GuardKind.TYPE, GuardKind.ID, GuardKind.TENSOR)
KINDS_THAT_WALK = (GuardKind.KEYS, GuardKind.CONTAINS, GuardKind.HAS_KEY)  # which would use up an iterator


def _within(others: set[Any], guard: Guard) -> bool:
    """Does the guard look into an object that is another than the expected one?"""
    walked = guard.source if guard.kind in KINDS_THAT_WALK else None
    return bool(others) and any(outer in others for outer in (walked, *_around(guard.source)))


def _around(source: Any) -> Iterator[Any]:
    """The objects on the path to what a guard looks at."""
    while (source := getattr(source, "base", None)) is not None:
        yield source


def state_failures(taken: state.Snapshot) -> list[Failure]:
    now = state.snapshot().values
    changed = [n for n, value in taken.values.items() if now[n] != value]
    found = [
        Failure(None, f"{n} changed. expected {taken.values[n]}, actual {now[n]}", other_kind=True) for n in changed
    ]
    outside = outside_reason()
    return found + ([Failure(None, outside)] if outside else [])


def _value(source: Source, residual: ResidualText, namespace: Mapping[str, Any], args: Any, kwargs: Any) -> Any:
    """What a path leads to; raises what reaching it raises."""
    return residual.function([f"return {source.expr()}"], "get", dict(namespace))[0](*args, **kwargs)


def _failure(guard: Guard, value: Callable[[Source], Any]) -> Failure:
    """`value` reads what a path leads to in the call."""
    if guard.source is None:
        name, expected = guard.payload
        return Failure(guard, f"{name} changed. expected {expected}, actual {(state.PIECES | SETTINGS)[name]()}",
                       other_kind=True)  # fmt: skip
    name, changed, other = guard.source.name(), _numbers(guard), False
    try:
        found = value(guard.source)
        if guard.kind is GuardKind.SIZE:
            text, changed = _size_words(guard.payload, value), tuple(part.name() for part in guard.payload.operands)
        elif guard.kind is GuardKind.TENSOR:
            sizes = tuple(value(n) if isinstance(n, Source) else n for n in guard.payload.sizes)
            facts = replace(guard.payload, sizes=sizes)
            text = tensor.mismatch(name, found, facts)
            changed = tuple(f"{name}.{part}" for part in tensor.resized(found, facts))
            other = tensor.other_kind(found, facts)
        else:
            text = WORDS[guard.kind](name, guard.payload, found)
            other = type(guard.payload) is bool and name.endswith(".training")
    except Exception as error:  # reading the user's own data: whatever it raises is the answer
        text = f"{name} cannot be read: {error_in_words(error)}"
    return Failure(guard, text, guard.user_line, changed, other)


def _size_words(condition: Any, value: Callable[[Source], Any]) -> str:
    actual = ", ".join(f"{s.name()} is {value(s)}" for s in dict.fromkeys(condition.operands))
    return f"{shown(condition)} (actual: {actual})"


#: Types of what an EQUAL guard may be relieved of.
NUMBERS = (int, float, str, tuple, torch.Size, numpy.float16, numpy.float32, numpy.float64)


def _numbers(guard: Guard) -> tuple[str, ...]:
    """The paths to the numbers in what an EQUAL guard expects."""
    name: str = guard.source.name()  # type: ignore[union-attr]
    if guard.kind is not GuardKind.EQUAL or type(guard.payload) not in NUMBERS:
        return ()
    items = range(len(guard.payload)) if isinstance(guard.payload, tuple) else ()
    return name, *(f"{name}[{k}]" for k in items)


def _short(value: Any) -> str:
    if type(value) is tuple and any(isinstance(v, torch.Tensor) for v in value):
        return f"{len(value)} tensors"
    return in_words(value)


def _other_object(name: str, payload: Any, value: Any) -> str:
    plain = payload is None or isinstance(payload, bool)
    return f"{name} is {_short(payload)} ({'actual' if plain else 'now another object:'} {_short(value)})"


def _names(sources: Iterable[Any]) -> str:
    return ", ".join(s.name() for s in sources)


WORDS: dict[GuardKind, Callable[[str, Any, Any], str]] = {
    GuardKind.TYPE: lambda n, p, v: f"type({n}) is {p.__qualname__} (actual {type(v).__qualname__})",
    GuardKind.ID: lambda n, p, v: _other_object(n, p, v),
    GuardKind.EQUAL: lambda n, p, v: f"{n} == {_short(p)} (actual {_short(v)})",
    GuardKind.LENGTH: lambda n, p, v: f"len({n}) == {p} (actual {len(v)})",
    GuardKind.KEYS: lambda n, p, v: f"keys of {n} are {_short(p)} (actual {_short(tuple(v))})",
    GuardKind.HAS_ATTR: lambda n, p, v: f"hasattr({n}, {p[0]!r}) is {p[1]} (actual {not p[1]})",
    GuardKind.CONTAINS: lambda n, p, v: f"({_short(p[0])} in {n}) is {p[1]} (actual {not p[1]})",
    GuardKind.HAS_KEY: lambda n, p, v: f"({p[0].name()} in {n}) is {p[1]} (actual {not p[1]})",
    GuardKind.ALIAS: lambda n, p, v: f"{n} is {p.name()} (now different objects)",
    GuardKind.DISTINCT: lambda n, p, v: f"{n} and {_names(p)} are different objects (now some are the same)",
    GuardKind.DEFINITION: lambda n, p, v: f"{n} was given other code or other default values",
    GuardKind.CLASS_DICT: lambda n, p, v: f"{n}.{p[0]} was replaced in the class",
    GuardKind.OWN_LACKS: lambda n, p, v: f"{n}.{p} was set on the object, which hides the class's",
}
