"""One random program, compiled with symbolic sizes and in eager: the same results at each of its sizes, or an error.

Where eager raises, the compiled program must not give a result; which error it is is not compared. Nor are results that
rounding decides (`noise.py`).
"""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

import dovetail
from tests.fuzz.python.check import Outcome, TimedOut
from tests.fuzz.shapes.noise import RUNS, Shaken
from tests.limits import time_limit

SECONDS = 60
TOLERANCE = 2e-3


def check(source: str, backend: str) -> Outcome:
    with time_limit(SECONDS, TimedOut()), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", message=".*Please report it")
        outcome = _check(source, backend)
    if told and not outcome.difference:  # the results are right, but no size is symbolic
        outcome.kind, outcome.difference = "mistake", f"mistake: {told[0].message}"
    return outcome


def _check(source: str, backend: str) -> Outcome:
    name = "<fuzzed>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)
    program, sizes = space["program"], space["SIZES"]
    ours = dovetail.compile(program, backend=backend, dynamic=True)
    outcome = Outcome()
    for number, values in enumerate(sizes):
        wanted = _run(program, space["make_inputs"], values)
        got = _run(ours, space["make_inputs"], values)
        outcome.raised += isinstance(wanted, Exception)
        words = difference(got, wanted)
        if words:
            words = difference(got, wanted, unsure(program, space["make_inputs"], values, wanted))
        if words:
            outcome.kind, outcome.difference = words.split(":")[0], f"call {number} at {values}: {words}"
            break
    outcome.frames = len(ours._dovetail_dispatcher.entries)
    outcome.whole = outcome.frames == 1
    outcome.codes[f"{outcome.frames} entries"] += 1
    outcome.codes.update(f"break {b.code}" for e in ours._dovetail_dispatcher.entries for b in e.captured.breaks)
    return outcome


def _run(
    program: Callable[..., Any], make: Callable[..., Any], values: dict[str, int],
    mode: AbstractContextManager[Any] = nullcontext(),
) -> Any:  # fmt: skip
    """What a call returns and the gradients of its inputs; the error where it raises."""
    torch.manual_seed(values["seed"])
    args = make(**values)
    torch.manual_seed(1)
    try:
        with mode:
            results = program(*args)
            leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            wanted = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
            if wanted and leaves:
                gradients = torch.autograd.grad([r.sum() for r in wanted], leaves, allow_unused=True)
                return (*results, *args, *gradients)
            return (*results, *args)
    except TimedOut:
        raise
    except Exception as error:
        return error


def unsure(program: Callable[..., Any], make: Callable[..., Any], values: dict[str, int], wanted: Any) -> set[int]:
    """The results that eager gives differently when its operators round differently; -1 if it raises or not."""
    found: set[int] = set()
    for seed in range(RUNS):
        other = _run(program, make, values, Shaken(seed))
        found |= {k for k, _ in _differences(other, wanted)}
    return found


def difference(got: Any, wanted: Any, unsure: Collection[int] = ()) -> str:
    """The first difference in words, but in a result that is unsure."""
    return next((words for k, words in _differences(got, wanted) if k not in unsure), "")


def _differences(got: Any, wanted: Any) -> Iterator[tuple[int, str]]:
    if isinstance(wanted, Exception):
        if not isinstance(got, Exception):
            yield -1, f"no error: eager raises {type(wanted).__name__}: {wanted}"
        return
    if isinstance(got, Exception):
        yield -1, f"error: {type(got).__name__}: {got}"
        return
    if len(got) != len(wanted):
        yield -1, f"length: {len(got)} results, eager gives {len(wanted)}"
        return
    for k, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        if not isinstance(theirs, torch.Tensor):
            if mine != theirs:
                yield k, f"value: result {k} is {mine}, in eager {theirs}"
        elif not isinstance(mine, torch.Tensor) or (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            told = f"{tuple(mine.shape)} {mine.dtype}" if isinstance(mine, torch.Tensor) else repr(mine)
            yield k, f"shape: result {k} is {told}, in eager {tuple(theirs.shape)} {theirs.dtype}"
        elif not _close(mine.detach(), theirs.detach()):
            yield k, f"values: result {k} of shape {tuple(theirs.shape)} differs"


def _close(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    if not theirs.is_floating_point():
        return torch.equal(mine, theirs)
    finite = theirs[theirs.isfinite()]
    scale = 1 + (finite.abs().max().item() if finite.numel() else 0)
    return torch.allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)
