"""One random program, compiled and in eager: two calls on equal inputs, and what the caller does after each."""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import dovetail
from dovetail.request import Request
from dovetail.runtime.dispatch.dispatcher import wrap_function
from tests.fuzz.aliasing.observe import Universe, difference
from tests.fuzz.python.check import Outcome, TimedOut, counted
from tests.limits import time_limit

SECONDS = 20
#: Of a saved tensor that was written to: eager may have saved what the compiled program has not, or the other way round
#: where only some gradients are wanted. Of a graph that was freed or written to: a compiled program is one node of it.
#: Of operands that overlap: a graph computes, then writes. Of one of several views: a compiled program's result may be
#: no view.
MODIFIED = "needed for gradient computation has been modified by an inplace operation"
REFUSED = re.compile(
    f"{MODIFIED}|through the graph a second time"
    "|refer to a single memory location|cannot be differentiated twice|function that returns multiple views"
    "|has a hook or retains its gradient"
)
#: A write that changes no version counter: see docs/numerics.md on what a backward pass computes again. To a tensor
#: that is the `.data` of another, any write is one.
UNNOTICED = re.compile(r"^ +see\(lambda: .*(\.data\.|\.numpy\().*\n", re.MULTILINE)
UNCOUNTED = re.compile(r"= \w+\.data$", re.MULTILINE)
#: So is one of the program's own, if a graph ends before it.
BETWEEN = re.compile(r"^( +)[\w.]+\.data(\.\w+_\(|\[.*\] = | [-+]?= ).*\n", re.MULTILINE)
GRADIENTS = re.compile(r"\.backward\(|autograd\.grad\(")


class Side:
    """The program as one side runs it. `events` tell what was seen after the call and after each line that follows."""

    def __init__(self, source: str, name: str, compiler: Callable[[Any], Any] | None) -> None:
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        self.space: dict[str, Any] = {}
        exec(compile(source, name, "exec"), self.space)
        program = self.space["program"]
        self.program = compiler(program) if compiler else program
        self.universe = Universe()
        self.events: list[tuple[str, list[dict[str, Any]]]] = []
        self.refused, self.strict = "", False
        self.inputs: Any = None

    def call(self, seed: int, again: bool) -> bool:
        """Does it leave gradients on? `again`: with the arguments of the call before, as that has left them."""
        with torch.set_grad_enabled(True):
            self.observed(seed, again)
            return torch.is_grad_enabled()

    def observed(self, seed: int, again: bool) -> None:
        self.events.clear()
        torch.manual_seed(seed)
        self.inputs = self.inputs if again else self.space["make_inputs"]()
        args, kept = self.inputs
        self.universe.seen((args, kept))
        torch.manual_seed(seed)
        out: list[Any] = []
        self.see((args, kept), out, lambda: self.program(*args), True)
        made = list(out)
        results = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        torch.manual_seed(seed + 1)
        later: list[Any] = []

        def see(line: Callable[[], Any]) -> None:
            self.see((args, kept, results), later, line)

        self.space["afterwards"](see, args, kept, results, *args)

    def see(self, reach: Any, into: list[Any], line: Any, program: bool = False) -> None:
        if self.refused:
            return
        raised = ""
        try:
            into.append(line())
        except TimedOut:
            raise
        except Exception as error:
            raised = type(error).__name__
            self.refused = "".join(REFUSED.findall(str(error))[:1])
            self.strict = self.refused == MODIFIED and "grad" not in line.__code__.co_names  # of all that was computed
        seen = self.universe.seen((reach, into)) if program else self.universe.seen(reach, into)
        self.events.append((raised, seen))
        if any(each["values"] is None for each in seen):
            self.refused = "longer than its memory"  # writing to it is fatal


def compare(ours: Side, theirs: Side) -> tuple[str, str, int] | None:
    """(kind, words, line of the caller's) of the first difference of a call.

    Where a side refuses something (REFUSED) there is no more to compare.
    """
    for k, (mine, other) in enumerate(zip(ours.events, theirs.events)):
        place = "the call" if k == 0 else f"line {k} afterwards"
        last = k == min(len(ours.events), len(theirs.events)) - 1
        alone = ours.strict and not theirs.refused
        if last and not alone and (ours.refused or theirs.refused) and (mine[0] or other[0]):
            return None
        if mine[0] != other[0]:
            return f"raises {mine[0] or 'nothing'}", f"{place} raises {mine[0] or 'nothing'}, eager {other[0]}", k
        found = difference(mine[1], other[1])
        if found is not None:
            return found[0], f"after {place}: {found[1]}", k
    return None


def check(source: str, backend: str = "dovetail") -> Outcome:
    """Run the program both ways; the outcome names the first difference."""
    outcome = Outcome()
    dovetail.reset()
    records: list[Any] = []

    def compiler(program: Any) -> Any:
        return wrap_function(program, Request(False, None, backend, "default", {}, records))

    eager, compiled = Side(source, "<fuzz>", None), Side(source, "<fuzz>", compiler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, again in enumerate((False, False, True)):
            with time_limit(SECONDS, TimedOut()):
                modes = [side.call(number, again) for side in (eager, compiled)]
            outcome.raised += bool(eager.events[0][0])
            found = compare(compiled, eager)
            if found is None and modes[0] != modes[1]:
                found = "grad mode", f"the call leaves gradients {'on' if modes[1] else 'off'}", 0
            ended = any(record.captured is not None and record.captured.breaks for record in records)
            rest = "" if found is None else without_unnoticed(source, found[0], found[2], ended)
            if rest:
                return check(rest, backend)
            if found is not None:
                outcome.kind, outcome.difference = found[0], f"call {number}: {found[1]}"
                break
            if eager.refused or compiled.refused:
                break
    counted(outcome, records)
    return outcome


def without_unnoticed(source: str, kind: str, line: int, ended: bool) -> str:
    """The program without writes that PyTorch does not notice, if its gradients may differ for their sake.

    `ended`: is it several graphs?
    """
    lines = re.findall(r"^ +see\(.*\n", source, re.MULTILINE)
    if line == 0 or kind not in ("grad", "values") or not GRADIENTS.search(lines[line - 1]):
        return ""
    every = UNCOUNTED.search(source) is not None
    rest = BETWEEN.sub(r"\1pass\n", source) if ended else source
    for each in lines:
        if UNNOTICED.match(each) or every and not GRADIENTS.search(each):
            rest = rest.replace(each, "", 1)
    return rest if rest != source else ""
