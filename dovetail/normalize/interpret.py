"""Run an AtenGraph operator by operator: the `aot_eager` backend and the tests' reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph


def interpreter(aten: AtenGraph) -> Callable[..., tuple[Any, ...]]:
    """A callable of the graph's inputs; applies mutations and returns real views of inputs."""

    def call(*inputs: Any) -> tuple[Any, ...]:
        env: dict[torch.fx.Node, Any] = {}
        supply = iter((*inputs, *aten.constants.values()))
        results: Any = ()
        for node in aten.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(supply)
            elif node.op == "output":
                results = torch.fx.node.map_arg(node.args[0], env.__getitem__)
                output = node
            else:
                args = torch.fx.node.map_arg(node.args, env.__getitem__)
                env[node] = node.target(*args, **torch.fx.node.map_arg(node.kwargs, env.__getitem__))
        for position, node in aten.mutated:
            inputs[position].copy_(env[node])
        return tuple(_result(aten, k, r, output.args[0][k], inputs) for k, r in enumerate(results))

    return call


def _result(aten: AtenGraph, k: int, result: Any, node: Any, inputs: tuple[Any, ...]) -> Any:
    if k not in aten.aliases:
        return result
    base, meta = inputs[aten.aliases[k]], node.meta["val"]
    same = meta.size() == base.size() and meta.stride() == base.stride()
    if same and meta.storage_offset() == base.storage_offset() and meta.dtype == base.dtype:
        return base
    return base.as_strided(meta.size(), meta.stride(), meta.storage_offset())
