"""Which operators of a functional graph do more than return results: random ones, checks, what is not PyTorch's own."""

from __future__ import annotations

import operator
from typing import Any

import torch.fx

from dovetail.ir.aten import Subprogram
from dovetail.ops.calls.discoveries import finds_out
from dovetail.ops.calls.schema import facts
from dovetail.ops.table import row_of

#: Operators of Dovetail's own that do nothing but compute.
_COMPUTING = frozenset(("dovetail::draw",))


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
