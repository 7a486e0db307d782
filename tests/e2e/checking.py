"""How a compiled program is compared with the eager one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import dovetail
from benchmarks.measure import largest_error, reference, tensors


def run(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compile `fn` as one graph and call it; anything that cannot be compiled raises."""
    with torch.no_grad():
        return dovetail.compile(fn, fullgraph=True)(*args, **kwargs)


def same(fn: Callable[..., Any], *args: Any, **tolerance: float) -> Any:
    """The compiled result equals eager's: structure, dtypes, sizes and values. Returns the compiled result."""
    with torch.no_grad():
        want = fn(*copy.deepcopy(args))
    got = run(fn, *args)
    assert type(got) is type(want)
    ours, theirs = pytree.tree_flatten(got), pytree.tree_flatten(want)
    assert ours[1] == theirs[1], f"structure {ours[1]}, eager's {theirs[1]}"
    for a, b in zip(ours[0], theirs[0], strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
        else:
            assert type(a) is type(b) and a == b
    return got


def as_accurate(fn: Callable[..., Any], *args: Any, slack: float = 2.0) -> None:
    """Against float64 the compiled result errs at most `slack` times as much as eager's, rounding of one unit aside."""
    exact = reference(fn, args)
    with torch.no_grad():
        eager = fn(*args)
    got = run(fn, *args)
    ours, theirs = largest_error(got, exact), largest_error(eager, exact)
    unit = max((torch.finfo(t.dtype).eps for t in tensors(eager) if t.is_floating_point()), default=0.0)
    assert ours <= slack * theirs + unit, f"error {ours:.2e}, eager's {theirs:.2e}"
    for a, b in zip(tensors(got), tensors(eager), strict=True):
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device)


def raises_like_eager(fn: Callable[..., Any], *args: Any) -> None:
    """Eager fails on this call, and the compiled program fails with the same type and the same first line."""
    with torch.no_grad(), pytest.raises(Exception) as eager:
        fn(*args)
    with torch.no_grad(), pytest.raises(type(eager.value)) as ours:
        dovetail.compile(fn)(*args)
    assert first_line(ours.value) == first_line(eager.value)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
