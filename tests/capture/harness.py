"""Run a function through capture and its residual, and compare with eager."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import torch.utils._pytree as pytree

from dovetail.capture.driver import capture
from dovetail.guards import build, snapshot
from dovetail.ir.captured import Captured
from dovetail.ir.guard import MISS
from dovetail.options import Options

OPTIONS = Options()


def enter(captured: Captured, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Check the guards and execute the residual, as a compiled entry does."""
    entry = build(captured, fn, captured.graph, snapshot())
    result = entry.call(*args, **kwargs)
    assert result is not MISS, [str(f) for f in entry.failures(args, kwargs)]
    return result


def run(captured: Captured, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Execute the residual with the graph itself as the compiled code."""
    space = {"graph": captured.graph, "K": captured.bound, "M": sys.modules, **captured.names}
    exec(captured.residual, space)
    return space["residual"](*args, **kwargs)


def traced(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Capture one call and run what was captured."""
    return run(capture(fn, args, kwargs, OPTIONS), args, kwargs)


def compare(actual: Any, expected: Any, tolerance: float = 0) -> None:
    """Equal structure, types and values."""
    assert type(actual) is type(expected), (type(actual), type(expected))
    left, spec = pytree.tree_flatten(actual)
    right, other = pytree.tree_flatten(expected)
    assert spec == other, (spec, other)
    for a, b in zip(left, right):
        assert type(a) is type(b), (type(a), type(b))
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        elif type(a).__eq__ is not object.__eq__:
            assert a == b, (a, b)


def check(fn: Any, *args: Any, **kwargs: Any) -> Captured:
    """`fn(*args, **kwargs)` captured gives what eager gives, and changes what eager changes."""
    ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    before = torch.is_grad_enabled()
    captured = capture(fn, ours[0], ours[1], OPTIONS)
    assert torch.is_grad_enabled() == before
    compare(ours, theirs)
    actual = enter(captured, fn, *ours)
    expected = fn(*theirs[0], **theirs[1])
    compare(actual, expected)
    compare(ours, theirs)
    return captured


