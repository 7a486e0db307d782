"""Comparisons of `torch.rand` with what no number of [0, 1) is beyond: their outcome is known, drawn as they may be.

    if torch.rand([]) < self.layerdrop:      never, where layerdrop is 0.0
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from dovetail.capture.numbers.unit_interval import TURNED, decided
from dovetail.capture.tables.operator_names import COMPARISONS
from dovetail.capture.values.tensor import TensorValue


def outcome(tensor: TensorValue) -> bool | None:
    """`bool(tensor)`; None where it is no such comparison, or depends on the number."""
    node = tensor.node
    sign = COMPARISONS.get(node.target) if node.op == "call_function" else None
    if sign not in TURNED or len(node.args) != 2:
        return None
    drawn, limit = node.args
    if type(drawn) in (int, float):
        drawn, limit, sign = limit, drawn, TURNED[sign]
    return decided(sign, limit) if type(limit) in (int, float) and _drawn(drawn) else None


def _drawn(value: Any) -> bool:
    """Is it a number from `torch.rand` that nothing has changed?"""
    if not isinstance(value, Node) or value.target is not torch.rand:
        return False
    if not all(user.target in COMPARISONS for user in value.users):  # what else reads it may lead to a write
        return False
    fake: torch.Tensor = value.meta["fake"]
    return fake.dim() == 0 and fake.dtype in (torch.float32, torch.float64)
