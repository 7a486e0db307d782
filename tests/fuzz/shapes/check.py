"""One random program, compiled with symbolic sizes and in eager: the same results at each of its sizes, or an error.

Where eager raises, the compiled program must not give a result; which error it is is not compared.
"""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from typing import Any

import torch

import dovetail
from tests.fuzz.python.check import Outcome, TimedOut
from tests.limits import time_limit

SECONDS = 60
TOLERANCE = 2e-3


def check(source: str, backend: str) -> Outcome:
    with time_limit(SECONDS, TimedOut()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _check(source, backend)


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
            outcome.kind, outcome.difference = words.split(":")[0], f"call {number} at {values}: {words}"
            break
    outcome.frames = len(ours._dovetail_dispatcher.entries)
    outcome.whole = outcome.frames == 1
    outcome.codes[f"{outcome.frames} entries"] += 1
    outcome.codes.update(f"break {b.code}" for e in ours._dovetail_dispatcher.entries for b in e.captured.breaks)
    return outcome


def _run(program: Callable[..., Any], make: Callable[..., Any], values: dict[str, int]) -> Any:
    """What a call returns and the gradients of its inputs; the error where it raises."""
    torch.manual_seed(values["seed"])
    args = make(**values)
    torch.manual_seed(1)
    try:
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


def difference(got: Any, wanted: Any) -> str:
    if isinstance(wanted, Exception):
        return "" if isinstance(got, Exception) else f"no error: eager raises {type(wanted).__name__}: {wanted}"
    if isinstance(got, Exception):
        return f"error: {type(got).__name__}: {got}"
    if len(got) != len(wanted):
        return f"length: {len(got)} results, eager gives {len(wanted)}"
    for k, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        if not isinstance(theirs, torch.Tensor):
            if mine != theirs:
                return f"value: result {k} is {mine}, in eager {theirs}"
        elif not isinstance(mine, torch.Tensor) or (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            told = f"{tuple(mine.shape)} {mine.dtype}" if isinstance(mine, torch.Tensor) else repr(mine)
            return f"shape: result {k} is {told}, in eager {tuple(theirs.shape)} {theirs.dtype}"
        elif not _close(mine.detach(), theirs.detach()):
            return f"values: result {k} of shape {tuple(theirs.shape)} differs"
    return ""


def _close(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    if not theirs.is_floating_point():
        return torch.equal(mine, theirs)
    finite = theirs[theirs.isfinite()]
    scale = 1 + (finite.abs().max().item() if finite.numel() else 0)
    return torch.allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)
