"""Which calls find out something that no metadata tells: a size, or a number (`ops/fake/symbolic/unbacked.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dovetail.ops.fake.symbolic.unbacked import INTEGERS, MASKS
from dovetail.ops.table import functional_row

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
