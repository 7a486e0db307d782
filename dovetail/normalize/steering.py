"""Graphs that steer PyTorch's autograd engine itself: they run as they were captured.

A call of `backward`, a new leaf or reading `.grad` is no computation on tensors: a functional graph would lose it.
"""

from __future__ import annotations

import torch
import torch.fx

METHODS = frozenset(("backward", "requires_grad_", "retain_grad", "register_hook", "detach_"))


def steers_engine(graph: torch.fx.Graph) -> bool:
    return any(_steers(node) for node in graph.nodes)


def _steers(node: torch.fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in METHODS
    if node.op != "call_function":
        return False
    leaf = node.target in (torch.nn.Parameter, torch.autograd.backward) or node.kwargs.get("requires_grad") is True
    return leaf or node.target is getattr and node.args[1] == "grad"
