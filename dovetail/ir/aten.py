"""What normalize hands on: a functional graph of ATen operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.fx


@dataclass(frozen=True)
class AtenGraph:
    """`graph` has placeholders, `call_function` nodes whose targets are `OpOverload`s, and one output.

    Every node that yields tensors has `meta["val"]`: a fake tensor, or a tuple/list of them (then
    `operator.getitem` nodes pick). No node mutates or returns an alias that matters: views are
    nodes like any other. The output's argument is a flat tuple.

    `mutated` pairs a placeholder's position with the node holding its value after the call.
    `aliases[k]` is the position of the placeholder that output k is a view of in eager, with
    output k's own meta giving sizes, strides and offset; absent when it owns its memory.
    `constants` names placeholders, after the caller's inputs, that are tensors known already.
    """

    graph: torch.fx.Graph
    mutated: tuple[tuple[int, torch.fx.Node], ...] = ()
    aliases: Mapping[int, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
