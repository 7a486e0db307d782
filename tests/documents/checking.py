"""What the documents' examples share."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx


class Graphs:
    """A backend that keeps each graph and runs it as it is."""

    def __init__(self) -> None:
        self.seen: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        self.seen.append(gm)
        return gm.forward

    @property
    def operators(self) -> list[list[str]]:
        """The operators of each graph that has any, by the names of their nodes."""
        found = [[n.name for n in gm.graph.nodes if n.op.startswith("call")] for gm in self.seen]
        return [names for names in found if names]
