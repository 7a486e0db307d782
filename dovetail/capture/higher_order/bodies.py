"""Functions that structured control flow may run any number of times, traced into graphs of their own.

Every graph's results own their memory, so that whoever runs it may do so in any way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail.capture.higher_order import pytrees
from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.values.base import Session, Value


class Body:
    """A function that may run any number of times, traced: `graph` and `lifted` go into the node."""

    def __init__(self, s: Session, name: str, what: str, call: Callable[[Region], Value]) -> None:
        self.region = Region(s, name)
        with self.region as region:
            output, _ = pytrees.pair(s, call(region))
            region.refuse_changes(what)
            leaves, self.spec = pytree.tree_flatten(output)
            self.output = [_private(s, n, region, leaves) for n in leaves]

    def finish(self, s: Session) -> None:
        pytrees.outside(s, self.leaves)
        self.graph, self.lifted = self.region.finish(self.output)

    @property
    def leaves(self) -> list:
        return [n.meta["fake"] if isinstance(n, torch.fx.Node) else n for n in self.output]

    def lay_out(self, s: Session, positions: list[int] | None = None) -> None:
        """Give some of the results row-major strides; by default those tensors that have others."""
        scattered = [k for k, t in enumerate(self.leaves) if isinstance(t, torch.Tensor) and not t.is_contiguous()]
        with self.region:
            for k in scattered if positions is None else positions:
                self.output[k] = _copy(s, self.output[k], memory_format=torch.contiguous_format)


def _private(s: Session, leaf: Any, region: Region, leaves: list) -> Any:
    """A result that is a parameter, a view, or returned twice is returned as a copy."""
    if not isinstance(leaf, torch.fx.Node):
        return leaf
    fake = leaf.meta["fake"]
    mine = leaf.graph is region.nodes and leaf.op != "placeholder"
    if mine and not fake._is_view() and leaves.count(leaf) == 1:
        return leaf
    return _copy(s, leaf)


def _copy(s: Session, node: torch.fx.Node, **layout: Any) -> torch.fx.Node:
    made = s.graph.create_node("call_method", "clone", (node,), layout)
    made.meta.update(stack=s.stack(), fake=node.meta["fake"].clone(**layout))
    return made


def node(s: Session, target: Any, args: tuple, flat: list, spec: Any, *bodies: Body) -> Value:
    """A node that gives a list of results, and the value that has them in their places."""
    node = s.graph.create_node("call_function", target, args)
    node.meta.update(stack=s.stack(), mutates=any(b.region.impure for b in bodies))
    results: Any = pytrees.result(s, node, flat)
    return pytrees.nest(s, pytree.tree_unflatten(results.all(s), spec))


def _facts(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else leaf


def _shown(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    return f"a tensor of {leaf.dtype} {list(leaf.shape)} on {leaf.device}"


def differ(s: Session, code: str, first: str, one: list, second: str, other: list) -> None:
    """Refuse results that do not have the same structure and metadata."""
    if len(one) != len(other):
        s.unsupported(code, f"{first} gives {len(one)} values and {second} {len(other)}", "Return as many from both.")
    for a, b in zip(one, other):
        if _facts(a) != _facts(b):
            words = f"{first} gives {_shown(a)} where {second} gives {_shown(b)}"
            s.unsupported(code, words, "Give both the same shape, dtype and device.")
