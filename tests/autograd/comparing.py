"""One program in eager and compiled, each on its own copies, and what a caller sees of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

import dovetail

#: Every backend that compiles a backward pass.
BACKENDS = ("dovetail", "aot_eager", "aot_eager_decomp_partition")
Call = Callable[..., Any]


def leaf(*sizes: int, **kwargs: Any) -> torch.Tensor:
    return torch.randn(sizes, **kwargs).requires_grad_()


def same(
    program: Callable[[Call], Any], fn: Any, backend: str = "dovetail", fullgraph: bool = True, **tolerance: float
) -> Any:
    """`program(call)` gives what is seen of a call of `fn`, which it makes its own inputs for; or what it raised.

    Functions are compiled, modules copied and compiled. Gives eager's result.
    """
    compiled = dovetail.compile(copy.deepcopy(fn), backend=backend, fullgraph=fullgraph)
    torch.manual_seed(0)
    want = outcome(program, fn)
    torch.manual_seed(0)
    got = outcome(program, compiled)
    alike(got, want, **tolerance)
    return want


def alike(got: Any, want: Any, place: str = "", **tolerance: float) -> None:
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, msg=lambda text: f"{place}: {text}", **tolerance)
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), (place, got, want)
        for k, (a, b) in enumerate(zip(got, want)):
            alike(a, b, f"{place}[{k}]", **tolerance)
    else:
        assert type(got) is type(want) and got == want, (place, got, want)


def outcome(program: Callable[[Call], Any], call: Call) -> Any:
    try:
        return detached(program(call))
    except RuntimeError as error:
        return [type(error).__name__, str(error)]


def detached(value: Any) -> Any:
    """Values, with what else is seen of a tensor beside them; None stands for itself."""
    if isinstance(value, torch.Tensor):
        seen = (str(value.layout), value.requires_grad, value.is_leaf, tuple(value.shape))
        plain = value.detach()
        return [(plain.coalesce().to_dense() if plain.layout is torch.sparse_coo else plain).clone(), str(seen)]
    if isinstance(value, dict):
        return [[str(k), detached(v)] for k, v in value.items()]
    if isinstance(value, (tuple, list)):
        return [detached(v) for v in value]
    return value if isinstance(value, (int, float, bool)) else str(value)


def nodes_of(result: torch.Tensor) -> list[Any]:
    """Of the compiled functions behind it, in the order of the backward pass."""
    found, waiting = list[Any](), [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found += [node] if node.name() in ("CompiledFunctionBackward", "LaterBackward") else []
            waiting += [n for n, _ in node.next_functions]
    return found
