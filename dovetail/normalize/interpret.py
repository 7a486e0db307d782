"""Run an AtenGraph operator by operator on real tensors: the reference for every later stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph, subprograms
from dovetail.ops.calls import CALLEES

Node = torch.fx.Node


def interpreter(aten: AtenGraph) -> Callable[..., tuple[Any, ...]]:
    """A callable of the graph's inputs, constants left out. Writes to mutated inputs; returns the results."""
    for inner in subprograms(aten):
        inner.callables = tuple(map(interpreter, inner.graphs))
    nodes = list(aten.graph.nodes)
    last = _last_uses(aten, nodes)
    count = sum(n.op == "placeholder" for n in nodes) - len(aten.constants)

    def call(*inputs: Any) -> tuple[Any, ...]:
        if len(inputs) != count:
            raise TypeError(f"the graph takes {count} inputs, {len(inputs)} given")
        given = [*inputs, *aten.constants.values()]
        env: dict[Node, Any] = {}
        feed = iter(given)
        for node in nodes:
            if node.op == "placeholder":
                env[node] = next(feed)
            elif node.op == "call_function":
                env[node] = CALLEES.get(node.target, node.target)(*_load(node.args, env), **_load(node.kwargs, env))
            else:
                return _end(aten, node, given, env)
            for dead in last.get(node, ()):
                del env[dead]
        raise AssertionError("a graph ends with its output")

    return call


def _last_uses(aten: AtenGraph, nodes: list[Node]) -> dict[Node, list[Node]]:
    """What may be forgotten after each node."""
    kept = {node for _, node in aten.mutated}
    user: dict[Node, Node] = {}
    for node in nodes:
        if node.op == "call_function":
            user[node] = node
        for used in node.all_input_nodes:
            user[used] = node
    found: dict[Node, list[Node]] = {}
    for used, node in user.items():
        if used not in kept and node.op == "call_function":
            found.setdefault(node, []).append(used)
    return found


def _load(value: Any, env: dict[Node, Any]) -> Any:
    if isinstance(value, Node):
        return env[value]
    if isinstance(value, (tuple, list)):
        return [_load(v, env) for v in value]
    if isinstance(value, dict):
        return {k: _load(v, env) for k, v in value.items()}
    return value


def _end(aten: AtenGraph, output: Node, given: list[Any], env: dict[Node, Any]) -> tuple[Any, ...]:
    """Every new value is computed by now, so writing to inputs disturbs none."""
    with torch.no_grad():
        for position, node in aten.mutated:
            given[position].copy_(env[node])
    results = [env[value] if isinstance(value, Node) else value for value in output.args[0]]  # type: ignore[union-attr]
    viewed = aten.viewed
    if viewed is not None:
        results = [_related(v, k in viewed) if isinstance(v, torch.Tensor) else v for k, v in enumerate(results)]
    return tuple(results)


def _related(tensor: torch.Tensor, view: bool) -> torch.Tensor:
    if tensor._is_view() == view:
        return tensor
    return torch.ops.aten.alias.default(tensor) if view else tensor.detach()
