"""One random program, compiled and in eager: the same calls on equal inputs, and all that a caller can see compared."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import re
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import dovetail
from dovetail.request import Request
from dovetail.runtime.dispatch.dispatcher import wrap_function
from tests.fuzz.python.observe import Walk, difference, shown
from tests.limits import time_limit

CALLS = (0, 0, 1, 2, 1)  # the case of each call: the same entry again, others, and back
STATE = ("G_COUNT", "G_LIST", "G_DICT", "G_TENSOR", "G_SEEN", "G_NODE")
CLASS_STATE = (("Node", "made"), ("Node", "LIMIT"), ("Leaf", "made"), ("Leaf", "LIMIT"))
SECONDS = 20
CODE = re.compile(r"\[([a-z0-9-]+)\]")


class TimedOut(BaseException):
    """A program ran longer than SECONDS."""


@dataclass
class Seen:
    """Everything that one call shows."""

    walk: Walk
    output: str
    warned: list[tuple[str, str]]
    logged: list[str]
    grad: bool
    raised: str = ""


@dataclass
class Outcome:
    """What became of one program: a difference in words (or None), and how much of it was compiled."""

    difference: str | None = None
    kind: str = ""
    codes: Counter[str] = field(default_factory=Counter)  # breaks, and "fallback CODE"
    frames: int = 0
    whole: bool = False  # one graph without a break, every call
    raised: int = 0


class Side:
    """One copy of the program with globals of its own."""

    def __init__(self, source: str, name: str, compiler: Callable[[Any], Any] | None, tolerance: float) -> None:
        module = sys.modules["fuzzed"] = types.ModuleType("fuzzed")  # dataclasses look for it
        self.space = module.__dict__
        self.tolerance = tolerance
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), self.space)
        program = self.space["program"]
        self.program = compiler(program) if compiler else program
        self.records: list[str] = []

    def call(self, case: int) -> Seen:
        torch.manual_seed(0)
        torch.set_grad_enabled(True)
        args: tuple[Any, ...] = ()
        walk, output = Walk(self.tolerance), io.StringIO()
        handler = _Lines()
        logger = logging.getLogger("fuzzed")
        logger.addHandler(handler)
        logger.propagate = False
        error: BaseException | None = None
        try:
            with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(output):
                warnings.simplefilter("always")
                try:
                    args = self.space["make_inputs"](case)
                    result = self.program(*args)
                except TimedOut:
                    raise
                except BaseException as raised:
                    error, result = raised, None
        finally:
            logger.removeHandler(handler)
        grad = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        ours = [str(w.message) for w in caught if str(w.message).startswith("dovetail")]
        self.records += ours
        warned = [(w.category.__name__, str(w.message)) for w in caught if not str(w.message).startswith("dovetail")]
        if error is not None:
            walk.root("exception", error)
        walk.root("result", result)
        walk.root("args", args)
        walk.root("closure", self.space["peek"]())
        for name in STATE:
            walk.root(name, self.space[name])
        for owner, name in CLASS_STATE:
            walk.root(f"{owner}.{name}", self.space[owner].__dict__.get(name))
        note = self.space["note"]
        walk.root("note's cache", note.__kwdefaults__)
        return Seen(walk, shown(output.getvalue()), warned, handler.lines, grad, type(error).__name__ if error else "")


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def compare(ours: Seen, theirs: Seen) -> tuple[str, str] | None:
    """(kind, words) of the first difference between two calls. How deep Python goes before it gives up is no one's."""
    if "RecursionError" in (ours.raised, theirs.raised):
        return None
    if ours.raised != theirs.raised:
        return f"raises {ours.raised or 'nothing'}", f"raises {_error(ours)}, eager {_error(theirs)}"
    found = difference(ours.walk, theirs.walk)
    if found is not None:
        place = re.split(r"[^a-zA-Z_]", found, maxsplit=1)[0]
        return f"{'state' if theirs.raised else 'value'} of {place}", found
    for name in ("output", "warned", "logged", "grad"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other:
            return name, f"{name}: {mine!r}, eager {other!r}"
    return None


def _error(seen: Seen) -> str:
    return str(seen.walk.lines[0][1]) if seen.raised else "nothing"


def check(source: str, backend: str = "eager", calls: tuple[int, ...] = CALLS) -> Outcome:
    """Run the program both ways; the outcome names the first difference."""
    outcome = Outcome()
    torch.set_warn_always(True)  # else the side that runs first has the warning alone
    dovetail.reset()
    records: list[Any] = []
    tolerance = 0.0 if backend == "eager" else 1e-4

    def compiler(program: Any) -> Any:
        request = Request(False, None, backend, "default", {}, records)
        return wrap_function(program, request)

    eager = Side(source, "<fuzz>", None, tolerance)
    compiled = Side(source, "<fuzz>", compiler, tolerance)
    for number, case in enumerate(calls):
        with time_limit(SECONDS, TimedOut()):
            theirs = eager.call(case)
            ours = compiled.call(case)
        outcome.raised += bool(theirs.raised)
        found = compare(ours, theirs)
        if found is not None:
            outcome.kind, outcome.difference = found[0], f"call {number} (case {case}): {found[1]}"
            break
    counted(outcome, records)
    return outcome


def counted(outcome: Outcome, records: list[Any]) -> None:
    for record in records:
        captured = getattr(record, "captured", None)
        if captured is not None:
            outcome.frames += 1
            outcome.codes.update(f"break {b.code}" for b in captured.breaks)
    outcome.codes.update(f"fallback {record.failure.code}" for record in records if record.failure is not None)
    outcome.whole = not outcome.codes and outcome.frames > 0
