"""How library operators are called from the host program: faster spellings of the same call."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ops.table import callee_of

aten = torch.ops.aten

#: Operators with a variant that writes a result of ours, in the memory plan, instead of allocating.
OUT_VARIANTS: dict[Any, Any] = {
    aten.mm.default: torch.mm,
    aten.bmm.default: torch.bmm,
    aten.addmm.default: torch.addmm,
    aten.baddbmm.default: torch.baddbmm,
}

#: Functions of the C extension that do what the operator does with cheaper argument parsing.
DIRECT: dict[Any, Any] = {**OUT_VARIANTS, aten.linear.default: torch._C._nn.linear}

HAS_OUT = frozenset(OUT_VARIANTS)


def callee(operator: Any) -> Any:
    """What to call for `operator`."""
    return DIRECT.get(operator) or callee_of(operator)
