"""What nodes with graphs of their own call: the captured graph runs these in eager.

A graph comes as a GraphModule. `given` says which leaves of the arguments its first parameters are; the others
are `lifted`: tensors that the captured function closed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.func
import torch.utils._pytree as pytree

# ---------------------------------------------------------------- transforms


def closed(graph: Any, given: Sequence[int], lifted: Sequence[Any]) -> Callable[..., Any]:
    """The captured function, as a callable of its own arguments."""

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        return graph.forward(*(leaves[k] for k in given), *lifted)

    return function


def _transform(transform: Callable[..., Any]) -> Callable[..., Any]:
    def run(graph: Any, given: Any, settings: dict[str, Any], args: Any, kwargs: Any, lifted: Any) -> Any:
        return transform(closed(graph, given, lifted), **settings)(*args, **kwargs)

    run.__name__ = run.__qualname__ = transform.__name__
    return run


def _immediate(transform: Callable[..., Any]) -> Callable[..., Any]:
    def run(graph: Any, given: Any, settings: dict[str, Any], args: Any, kwargs: Any, lifted: Any) -> Any:
        return transform(closed(graph, given, lifted), *args, **settings)

    run.__name__ = run.__qualname__ = transform.__name__
    return run


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call what an earlier node gave."""
    return function(*args, **kwargs)


#: torch.func's transforms of a function: what a node that calls the transformed function calls.
TRANSFORMS: dict[Any, Callable[..., Any]] = {
    transform: _transform(transform)
    for transform in (
        torch.func.grad, torch.func.grad_and_value, torch.func.vmap, torch.func.jacrev, torch.func.jacfwd,
        torch._functorch.apis.chunk_vmap,
    )
}  # fmt: skip

#: Those that are called with the function and its arguments at once.
IMMEDIATE: dict[Any, Callable[..., Any]] = {
    transform: _immediate(transform) for transform in (torch.func.vjp, torch.func.jvp)
}
