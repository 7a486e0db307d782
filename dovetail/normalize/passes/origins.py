"""Compute on a GPU what is wanted there, and what nothing from outside goes into.

before:  %n = arange(8);  %m = _to_copy(%n, device=gpu);  %y = add(%x, %m)
after:   %n = arange(8, device=gpu);  %y = add(%x, %n)

Models make masks and positions on the CPU, and bring them along. Numbers that a program lists become a tensor of the
device's once. A program that the CPU takes part in has no CUDA graph.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.ir.aten import AtenGraph
from dovetail.ir.devices import on_host
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.effects import has_effect, stays
from dovetail.ops.fake import on_fakes, to_fake

aten = torch.ops.aten
Node = torch.fx.Node
#: Operators that take tensors from the CPU along with others: what they are called with is copied, or tells places.
_TAKE = frozenset((aten._to_copy.default, aten.index.Tensor, aten.index_put.default))


def compute_where_wanted(graph: AtenGraph) -> None:
    """In place on the graph."""
    users = [n for n in graph.graph.nodes if n.target in _TAKE and not stays(n.meta.get("val"))]
    if not users:
        return
    origins = _Origins(graph)
    for node in graph.graph.nodes:
        origins.look_at(node)
    with on_fakes():
        for user in users:
            for given in user.all_input_nodes:
                moved = origins.moved(given, user, user.meta["val"].device)
                if moved is not None:
                    user.replace_input_with(given, moved)
    if origins.made:
        remove_dead(graph)
        origins.forget_unused()


class _Origins:
    """`of_nothing`: what the CPU computes of no tensors but those that the program lists."""

    def __init__(self, graph: AtenGraph) -> None:
        self.graph = graph.graph
        self.constants: MutableMapping[str, torch.Tensor] = graph.constants  # type: ignore[assignment]
        self.of_nothing: set[Node] = set()
        self.made: dict[tuple[Node, torch.device], Node | None] = {}

    def look_at(self, node: Node) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not on_host(value):
            return
        found = node.meta.get("fresh", False)
        if node.op == "call_function":
            found = self.of_nothing.issuperset(node.all_input_nodes) and not has_effect(node)
        if found:
            self.of_nothing.add(node)

    def moved(self, node: Node, user: Node, device: torch.device) -> Node | None:
        """The same on the device, before the user; None where that is not possible."""
        if node not in self.of_nothing:
            return None
        if (node, device) not in self.made:
            listed = node.op == "placeholder"
            self.made[node, device] = self.listed(node, device) if listed else self.again(node, user, device)
        return self.made[node, device]

    def again(self, node: Node, user: Node, device: torch.device) -> Node | None:
        given = {n: self.moved(n, user, device) for n in node.all_input_nodes}
        if None in given.values():
            return None
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), given.__getitem__)
        there: Any = {"device": device} if not given or "device" in kwargs else {}
        return GraphWriter(self.graph, user).call(node.target, *args, **{**kwargs, **there})

    def listed(self, node: Node, device: torch.device) -> Node | None:
        try:
            with _disable_current_modes():
                real = self.constants[node.name].to(device)
        except (RuntimeError, AssertionError):  # there is no such device here
            return None
        last = [n for n in self.graph.nodes if n.op == "placeholder"][-1]
        with self.graph.inserting_after(last):
            made = self.graph.placeholder(f"{node.name}_there")
        made.meta.update(val=to_fake(real), fresh=True)
        self.constants[made.name] = real
        return made

    def forget_unused(self) -> None:
        for node in {node for node, _ in self.made if node.op == "placeholder" and not node.users}:
            del self.constants[node.name]
            self.graph.erase_node(node)
