"""`python -m tests.fuzz.values --count 2000 --seed 0 [--jobs 2] [--backend eager] [--reduce] [--one SEED]`"""

from __future__ import annotations

from typing import Any

import torch

import dovetail
from dovetail.request import Request
from dovetail.runtime.dispatch.dispatcher import wrap_function
from tests.fuzz.command import Command
from tests.fuzz.python.check import SECONDS, Outcome, TimedOut, counted
from tests.fuzz.python.observe import Walk, difference
from tests.fuzz.values.generate import generate
from tests.limits import time_limit


def check(source: str, backend: str = "eager") -> Outcome:
    """All calls of the operation, compiled once and plain; what is raised is compared by its type."""
    dovetail.reset()
    space: dict[str, Any] = {}
    exec(source, space)
    records: list[Any] = []
    compiled = wrap_function(space["operation"], Request(False, None, backend, "default", {}, records))
    outcome = Outcome()
    for number, (mine, other) in enumerate(zip(space["calls"](), space["calls"]())):
        with time_limit(SECONDS, TimedOut()):
            theirs, ours = _seen(space["operation"], other), _seen(compiled, mine)
        found = difference(ours, theirs)
        if found is not None:
            outcome.kind, outcome.difference = "value", f"call {number}: {found}"
            break
    counted(outcome, records)
    return outcome


def _seen(function: Any, given: list[Any]) -> Walk:
    walk = Walk()
    try:
        walk.root("result", function(torch.ones(2), *given))
    except Exception as error:
        walk.add("raises", type(error).__name__)
    walk.root("values", given)
    return walk


COMMAND = Command("tests.fuzz.values", generate, check, lambda seed: "eager", "\ndef operation")

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())
