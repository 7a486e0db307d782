"""What capture hands to the pipeline: one graph, and how to call it and rebuild the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from dovetail.ir.guard import Guard
from dovetail.ir.source import Source


@dataclass(frozen=True, slots=True)
class GraphInput:
    """A placeholder of the graph. `fake` has the metadata of the value and no memory.

    `static` inputs (parameters, buffers) are the same object on every call while the guards hold.
    """

    source: Source
    fake: Any
    static: bool = False


@dataclass(frozen=True)
class Captured:
    """One traced region.

    `residual` is the Python text of `def residual(<the callable's own parameters>)`: it loads
    the graph's inputs from their sources, calls `graph(...)`, replays side effects in order
    and returns the rebuilt result. `names` are the globals it needs beyond `graph`, G, F, K, M.
    """

    graph: torch.fx.GraphModule
    inputs: tuple[GraphInput, ...]
    guards: tuple[Guard, ...]
    residual: str
    names: Mapping[str, Any]
    bound: tuple[Any, ...] = ()  # the objects behind Bound sources: K
    breaks: tuple[Any, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
