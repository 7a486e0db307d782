"""Nodes that steer PyTorch's autograd engine itself: graphs with them run as they were captured.

A call of `backward`, a new leaf or reading `.grad` is no computation on tensors: a functional graph would lose it.
`torch.autograd.grad` is one: it takes tensors and gives tensors.
"""

from __future__ import annotations

import torch
import torch.fx

METHODS = frozenset(("backward", "requires_grad_", "retain_grad", "register_hook", "detach_"))


def steers_engine(graph: torch.fx.Graph) -> bool:
    return any(map(steers, graph.nodes))


def steers(node: torch.fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in METHODS
    if node.op != "call_function":
        return False
    leaf = node.target in (torch.nn.Parameter, torch.autograd.backward) or node.kwargs.get("requires_grad") is True
    return leaf or node.target is getattr and node.args[1] == "grad"


def calls_engine(graph: torch.fx.Graph) -> bool:
    """Does it compute gradients, after which what led to them cannot be differentiated again?"""
    return any(node.target is torch.autograd.grad for node in graph.nodes)


def leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors whose gradients a backward pass from this one accumulates."""
    found: dict[int, torch.Tensor] = {}
    if tensor.grad_fn is None and tensor.requires_grad:
        return [tensor]
    stack, seen = [tensor.grad_fn], set()
    while stack:
        function = stack.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        variable = getattr(function, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        stack += [following for following, _ in function.next_functions]
    return list(found.values())


def used_up(fake: torch.Tensor) -> bool:
    """Does PyTorch's engine refuse to go through the history of a fake tensor, which is as the real one's will be?"""
    try:
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.grad(fake, leaves_of(fake), torch.ones_like(fake), retain_graph=True)
    except RuntimeError as error:
        return "second time" in str(error)
    return False
