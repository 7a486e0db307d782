"""Records what a function does to real tensors as an AtenGraph, for tests of lowering by itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail.ir.aten import AtenGraph


class NotFunctional(Exception):
    """The function mutates a tensor; normalizing would be needed."""


class Recorder(TorchDispatchMode):
    """Every ATen call becomes a node; tensors that no call made are constants."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.known: dict[int, torch.fx.Node] = {}
        self.alive: list[Any] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.last: torch.fx.Node | None = None

    def placeholder(self, tensor: torch.Tensor) -> torch.fx.Node:
        with self.graph.inserting_after(self.last) if self.last else self.graph.inserting_before():
            node = self.graph.placeholder(f"p{len(self.alive)}")
        self.last = node
        node.meta["val"] = tensor
        self.known[id(tensor)] = node
        self.alive.append(tensor)
        return node

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.known:
                node = self.placeholder(value)
                self.constants[node.name] = value
            return self.known[id(value)]
        if isinstance(value, (tuple, list)):
            return type(value)(self.argument(v) for v in value)
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            raise NotFunctional(str(func))
        result = func(*args, **kwargs)
        names = {k: self.argument(v) for k, v in kwargs.items()}
        node = self.graph.call_function(func, tuple(self.argument(a) for a in args), names)
        node.meta["val"] = result
        self.results(node, result)
        return result

    def results(self, node: torch.fx.Node, result: Any) -> None:
        self.alive.append(result)
        if isinstance(result, torch.Tensor):
            self.known[id(result)] = node
        elif isinstance(result, (tuple, list)):
            for k, inner in enumerate(result):
                if isinstance(inner, (torch.Tensor, tuple, list)):
                    picked = self.graph.call_function(operator.getitem, (node, k))
                    picked.meta["val"] = inner
                    self.results(picked, inner)


def record(fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[AtenGraph, list[torch.Tensor]]:
    """The graph of `fn(*inputs)` and the tensors that eager returns, flattened.

    Raises NotFunctional where the function writes to a tensor.
    """
    recorder = Recorder()
    for tensor in inputs:
        recorder.placeholder(tensor)
    with torch.no_grad(), recorder:
        result = fn(*inputs)
    flat = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    recorder.graph.output(tuple(recorder.argument(t) for t in flat))
    return AtenGraph(recorder.graph, constants=recorder.constants), flat
