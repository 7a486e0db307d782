"""What a node of a captured graph calls, by its name, and whether that writes."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.devices import HOST

# Nodes with these names change something beside their result, so an unused one stays.
IMPURE_METHODS = frozenset(("__setitem__", "backward", "requires_grad_", "register_hook", "retain_grad"))
IN_PLACE_OPERATORS = frozenset(
    getattr(operator, n)
    for n in "iadd iand ifloordiv ilshift imatmul imul imod ior ipow irshift isub itruediv ixor setitem".split()
)


def add_node(
    graph: torch.fx.Graph, op: str, target: Any, args: tuple, kwargs: Any = None, name: str | None = None
) -> torch.fx.Node:
    """As `graph.create_node`, which walks through all arguments to warn of some: longer than all the rest takes."""
    node = graph.create_node(op, target, name=name)
    node.args = args
    if kwargs:
        node.kwargs = kwargs
    return node


def name_of(node: torch.fx.Node) -> str:
    """Of the method, or of the function; "" if that has none."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def namespace_of(target: Any) -> str:
    """The one of an operator; "" for anything else."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace
    return target._qualified_op_name.partition("::")[0] if isinstance(target, torch._ops.OpOverloadPacket) else ""


#: Operators that processes call together. None may be left out: a peer, which may be in eager mode, waits for it.
COLLECTIVES = frozenset(("_c10d_functional", "_c10d_functional_autograd", "c10d"))
_LOCAL = frozenset(("wait_tensor", "_wrap_tensor_autograd"))


def is_collective(node: torch.fx.Node) -> bool:
    return namespace_of(node.target) in COLLECTIVES and name_of(node).partition(".")[0] not in _LOCAL


FEW = 4  # calls that PyTorch makes before a compiled program would have begun


def tosses(graph: torch.fx.Graph) -> bool:
    """Does it only draw a number, for a branch to look at?

    torch.rand([]) < 0.1
    """
    calls = [n for n in graph.nodes if n.op not in ("placeholder", "output")]
    return 0 < len(calls) <= FEW and all(n.op.startswith("call") and _is_tossed(n) for n in calls)


def _is_tossed(node: torch.fx.Node) -> bool:
    fake = node.meta.get("fake")
    alone = isinstance(fake, torch.Tensor) and fake.dim() == 0 and fake.device == HOST and not fake.requires_grad
    return alone and not any(n.op == "placeholder" for n in node.all_input_nodes)


def writes(node: torch.fx.Node) -> bool:
    """Does it change a tensor that it is given?"""
    if node.meta.get("mutates") or node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True:
        return True
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
        return True
    return node.op == "call_method" and target in IMPURE_METHODS or in_place(node)


def in_place(node: torch.fx.Node) -> bool:
    """Does it change its first argument, by its name? (`operator.and_` has its own from a word of Python's.)"""
    name = name_of(node)
    named = name.endswith("_") and not name.endswith("__") and getattr(node.target, "__module__", "") != "_operator"
    return named or name == "__setitem__" or node.target in IN_PLACE_OPERATORS
