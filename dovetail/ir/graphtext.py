"""A captured graph as Python text, each statement under the line of the user's program that it comes from."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.fx

FAKE = re.compile(r"(?<=\")FakeTensor\(([^\"]*)\)(?=\")")  # the class of the values that stand for tensors


def graph_text(graph: torch.fx.Graph, verbose: bool = True) -> str:
    """Works on a graph that is still growing. The notes that the printer reads are taken off the nodes again."""
    noted: list[tuple[torch.fx.Node, str]] = []

    def note(node: torch.fx.Node, name: str, value: Any) -> None:
        if name not in node.meta:
            node.meta[name] = value
            noted.append((node, name))

    for node in graph.nodes:
        if isinstance(node.meta.get("fake"), torch.Tensor):
            note(node, "example_value", node.meta["fake"])
        if node.meta.get("stack"):
            note(node, "stack_trace", "\n".join(place.entry() for place in node.meta["stack"]))
    try:
        text = graph.python_code("self", verbose=verbose, include_stride=verbose, include_device=verbose).src
        return FAKE.sub(r"\1", text)
    finally:
        for node, name in noted:
            del node.meta[name]
