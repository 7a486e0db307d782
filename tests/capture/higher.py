"""Programs with functions that take functions: one graph, eager's values and gradients with every backend."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import dovetail

BACKENDS = ("eager", "aot_eager", "dovetail")


def everywhere(fn: Callable[..., Any], *args: Any, backends: tuple[str, ...] = BACKENDS) -> None:
    """One graph that gives eager's values, and changes what eager changes, without gradients."""
    for backend in backends:
        compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        with torch.no_grad():
            for _ in range(2):  # the second call runs what the first compiled
                torch.manual_seed(0)
                want = fn(*theirs)
                torch.manual_seed(0)
                same(compiled(*ours), want)
                same(ours, theirs)


def with_gradients(fn: Callable[..., Any], *args: Any, backends: tuple[str, ...] = BACKENDS) -> None:
    """One graph with eager's values, and eager's gradients of every argument that is a tensor of floats."""
    for backend in backends:
        compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
        for _ in range(2):
            torch.manual_seed(0)
            want = derivatives(fn, args)
            torch.manual_seed(0)
            same(derivatives(compiled, args), want)


def derivatives(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    mine = copy.deepcopy(args)
    tensors = [t for t in pytree.tree_leaves(mine) if isinstance(t, torch.Tensor)]
    inputs = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    result = fn(*mine)
    leaves = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    assert leaves, "nothing to differentiate"
    torch.autograd.backward([(t * t).sum() for t in leaves])
    return result, [t.grad for t in inputs]


def noise(wanted: torch.Tensor) -> dict[str, float]:
    """What sums may differ by: of large terms that cancel, as much as of their result."""
    if not wanted.is_floating_point() or not wanted.numel():
        return {}
    return {"rtol": 1e-5, "atol": 1e-5 + 1e-6 * float(wanted.detach().abs().max())}


def same(got: Any, want: Any) -> None:
    left, spec = pytree.tree_flatten(got)
    right, other = pytree.tree_flatten(want)
    assert spec == other, (spec, other)
    for a, b in zip(left, right, strict=True):
        assert type(a) is type(b), (a, b)
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, **noise(b))
            assert a.requires_grad == b.requires_grad
        else:
            assert a == b


def refused(fn: Callable[..., Any], *args: Any) -> str:
    """The code of the break that makes `fullgraph=True` impossible."""
    try:
        dovetail.compile(fn, backend="eager", fullgraph=True)(*args)
    except dovetail.GraphBreakError as error:
        return error.code
    raise AssertionError("captured as one graph")
