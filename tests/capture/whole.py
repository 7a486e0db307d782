"""One call of a program compiled as one graph, and of the same program in eager: everything must be equal.

A program is (function, arguments made anew for each side). Compared are results, gradients, arguments and modules
afterwards, the random state, and what is raised; over two calls, so that the second runs what the first compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError
from tests.capture.harness import compare

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def whole(fn: Callable[..., Any], *make: Callable[[], Any], calls: int = 2, backend: str = "eager") -> None:
    """`fn(*made)` is one graph and does what eager does; kernels may round otherwise."""
    _agree(fn, make, calls, _compiled(fn, True, backend), 0 if backend != "dovetail" else 1e-5)


def breaks(code: str, fn: Callable[..., Any], *make: Callable[[], Any], calls: int = 2) -> None:
    """`fn(*made)` is no single graph, for this reason, and still does what eager does."""
    with pytest.raises(GraphBreakError) as caught:
        _compiled(fn, True)(*_made(make))
    assert caught.value.code == code
    _agree(fn, make, calls, _compiled(fn, False))


def _agree(
    fn: Callable[..., Any], make: tuple[Callable[[], Any], ...], calls: int, compiled: Any, tolerance: float = 0
) -> None:
    theirs, ours = _made(make), _made(make)
    for seed in range(calls):
        expected, actual = _outcome(fn, theirs, seed), _outcome(compiled, ours, seed)
        compare(actual, expected, tolerance)
    assert compiled._dovetail_dispatcher.entries or not compiled._dovetail_dispatcher.compiler.fullgraph, "ran in eager"


def _compiled(fn: Callable[..., Any], fullgraph: bool, backend: str = "eager") -> Any:
    dovetail.reset()
    return dovetail.compile(fn, fullgraph=fullgraph, backend=backend)


def _made(make: tuple[Callable[[], Any], ...]) -> list[Any]:
    torch.manual_seed(1)
    return [m() for m in make]


def _outcome(fn: Callable[..., Any], args: list[Any], seed: int) -> Any:
    """Everything that can be seen of one call."""
    torch.manual_seed(seed)
    try:
        result = fn(*args)
    except (RuntimeError, ValueError, TypeError) as error:
        return type(error), str(error)
    random = torch.get_rng_state()
    kept = pytree.tree_map_only(torch.Tensor, _plain, result)
    _differentiate(result)
    return kept, [_state(a) for a in pytree.tree_leaves(args)], random


def _differentiate(result: Any) -> None:
    tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    if torch.is_grad_enabled() and tensors:
        weighted = [(torch.view_as_real(t) if t.is_complex() else t) for t in tensors]
        sum((t * torch.arange(t.numel()).view(t.shape).cos()).sum() for t in weighted).backward()


def _plain(tensor: torch.Tensor, counted: bool = True) -> Any:
    """What is compared of a tensor: class, flags, and a copy that later calls leave alone, or what it is made of."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = tensor.__tensor_flatten__()
        flags = type(tensor), tensor.requires_grad, tensor.is_leaf, tensor.shape, tensor.stride()
        return flags, tensor._version * counted, context, [_plain(getattr(tensor, name)) for name in names]
    copied = tensor.detach().as_subclass(torch.Tensor).clone()
    return type(tensor), tensor.requires_grad, tensor.is_leaf, tensor.stride(), copied


def _state(value: Any) -> Any:
    if isinstance(value, nn.Module):
        tensors = value.state_dict(keep_vars=True)
        return {n: _state(t) for n, t in tensors.items()}, [m.training for m in value.modules()]
    if isinstance(value, torch.Tensor):
        return _plain(value), None if value.grad is None else _plain(value.grad, counted=False)
    return None
