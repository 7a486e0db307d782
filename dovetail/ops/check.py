"""`dovetail::check`: an operator that raises ValueError where the program does, for a condition known at run time only.

It stands in a graph for `if not condition: raise ValueError(text)`. The text may show tensors: it is a format string
with a field for each tensor in `shown`.
"""

from __future__ import annotations

from typing import Any

import torch

LIBRARY = torch.library.Library("dovetail", "FRAGMENT")
LIBRARY.define("check(Tensor condition, Tensor[] shown, str text) -> ()")


def _check(condition: torch.Tensor, shown: list[torch.Tensor], text: str) -> None:
    if not condition:
        raise ValueError(text.format(*shown))


def _check_nothing(condition: torch.Tensor, shown: list[torch.Tensor], text: str) -> None:
    """Tensors without values pass."""


LIBRARY.impl("check", _check, "CompositeExplicitAutograd")
LIBRARY.impl("check", _check_nothing, "Meta")

check: Any = torch.ops.dovetail.check.default
