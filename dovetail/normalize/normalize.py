"""Phase 3: a functional graph of ATen operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.common import merge_common
from dovetail.normalize.dead import remove_dead
from dovetail.normalize.record import record
from dovetail.options import Options


def normalize(module: torch.fx.GraphModule, fakes: Sequence[Any], options: Options) -> AtenGraph:
    """Record `module` on `fakes` and clean the result up."""
    aten = record(module, fakes)
    return remove_dead(merge_common(aten))
