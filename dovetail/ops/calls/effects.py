"""Which operators of a functional graph do more than return results: random ones, checks, what is not PyTorch's own,
and what finds out a size or a number that no metadata tells (`ops/fake/symbolic/unbacked.py`)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import Subprogram
from dovetail.ir.devices import traits
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.symbolic.unbacked import INTEGERS, MASKS
from dovetail.ops.table import functional_row, row_of

aten = torch.ops.aten


def finds_sizes(func: Any, args: Sequence[Any], kwargs: Any = None) -> bool:
    """Does the operator find out something that no metadata tells? (`args` are tensors or their nodes' values.)"""
    if func is aten.index.Tensor:
        return any(i is not None and i.dtype in MASKS for i in args[1])
    if func is aten._local_scalar_dense.default:
        return args[0].dtype in INTEGERS
    if func is aten.repeat_interleave.Tensor:
        return (kwargs or {}).get("output_size") is None
    return functional_row(func).discovers is not None


def finds_out(node: torch.fx.Node) -> bool:
    """Is this node of an ATen graph such an operator? (Everywhere else it would have no metadata.)"""
    if node.op != "call_function" or functional_row(node.target).discovers is None and node.target != aten.index.Tensor:
        return False
    return finds_sizes(node.target, [_val(a) for a in node.args], node.kwargs)


def _val(argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return [_val(a) for a in argument]
    return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument


#: Operators of Dovetail's own that do nothing but compute.
_COMPUTING = frozenset(("dovetail::draw", "dovetail::template", "dovetail::checking_template"))


def may_raise(operator: Any) -> bool:
    """May the operator raise for what its arguments hold?"""
    if isinstance(operator, Subprogram):
        return True
    row = row_of(operator)
    computes = operator.namespace == "aten" or operator._schema.name in _COMPUTING
    return row.checks or row.may_raise or not computes


def has_effect(node: torch.fx.Node) -> bool:
    """Does the call do anything but return results?"""
    if node.target is operator.getitem:
        return False
    if finds_out(node):
        return True  # others mention the sizes without reading the result
    known = facts(node.target)
    namespace = node.target._schema.name.partition("::")[0]  # type: ignore[union-attr]
    foreign = namespace not in ("aten", "prims") and node.target._schema.name not in _COMPUTING  # type: ignore[union-attr]
    return bool(known.written) or known.random or foreign or not known.returned or row_of(node.target).checks


# ---------------------------------------------------------------- what the CPU computes in a graph for a GPU


def early(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Inputs that are on the CPU, or no tensors, and what can be computed from them there."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        given = node.op in ("placeholder", "get_attr")
        computed = node.op == "call_function" and not has_effect(node) and all(n in found for n in node.all_input_nodes)
        if (given or computed) and stays(node.meta.get("val")):
            found.add(node)
    return found


def stays(value: Any) -> bool:
    """Is it on the CPU, or no tensor?"""
    if isinstance(value, (tuple, list)):
        return all(map(stays, value))
    return not isinstance(value, torch.Tensor) or traits(value.device).host
