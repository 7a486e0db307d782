"""What of the growing graph touches a tensor's memory, without a walk through all nodes for each question.

An optimizer asks for each of its parameters.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch.fx

from dovetail.capture.tables.graph_functions import storage_of
from dovetail.capture.values.base import Session

Node = torch.fx.Node


class GraphMemory:
    """By memory: the first input that it belongs to, the first call that has it, and the calls that write to it.

    What is no tensor has none of these."""

    def __init__(self, s: Session) -> None:
        self.s = s
        self.inputs: dict[int, tuple[Node, Any]] = {}
        self.makers: dict[int, Node] = {}
        self.writers: dict[int, list[Node]] = defaultdict(list)
        self.places: dict[Node, int] = {}
        self.taken, self.last = 0, s.root._root

    def input(self, node: Node) -> tuple[Node, Any] | None:
        """The input whose memory the node's tensor has: its placeholder, and what is known of it."""
        self._catch_up()
        return self.inputs.get(storage_of(node))

    def maker(self, node: Node) -> Node | None:
        """The call that made the memory of the node's tensor."""
        self._catch_up()
        return self.makers.get(storage_of(node))

    def written(self, node: Node, before: Node | None) -> list[Node]:
        """The calls that write to the memory of the node's tensor; `before`: those ahead of this one."""
        self._catch_up()
        end = len(self.places) if before is None else self.places.get(before, len(self.places))
        return [each for each in self.writers.get(storage_of(node), ()) if self.places[each] < end]

    def _catch_up(self) -> None:
        """With the nodes that have come since; calls come at the end, inputs before them."""
        for placeholder, given in self.s.taken.inputs[self.taken :]:
            if storage := storage_of(placeholder):
                self.inputs.setdefault(storage, (placeholder, given))
        self.taken = len(self.s.taken.inputs)
        while (node := self.last.next) is not self.s.root._root:
            self.last = node
            if node.op == "placeholder":
                continue
            self.places[node] = len(self.places)
            if storage := storage_of(node):
                self.makers.setdefault(storage, node)
            if node.meta.get("mutates"):
                for storage in {storage_of(given) for given in node.all_input_nodes} - {0}:
                    self.writers[storage].append(node)


def graph_memory(s: Session) -> GraphMemory:
    """Of the session's root graph."""
    s.taken.memory = s.taken.memory or GraphMemory(s)
    found: GraphMemory = s.taken.memory
    return found
