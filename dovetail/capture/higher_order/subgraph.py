"""Trace a call into a graph of its own.

    with Region(s, "true") as region:             nodes go to the new graph
        result = s.call(function, *operands)
        graph, lifted = region.finish(output)     a module, and what it takes from the graphs around it

What the function closes over needs no care while tracing: its tensors are nodes of the graphs around, and `finish`
turns each one that the new graph uses into a parameter of it.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch.fx

from dovetail.capture.process.settings import refuse_operators
from dovetail.capture.tables.graph_functions import impure, remove_dead
from dovetail.capture.values.base import Session, Value, serial
from dovetail.capture.values.tensor import TensorValue, refuse_choice


class Region:
    """A graph inside the session's current one, which is the current one until the block ends.

    `graph` stands for the finished module in arguments of nodes outside.
    """

    def __init__(self, s: Session, name: str) -> None:
        self.s, self.name = s, name
        self.nodes = torch.fx.Graph()
        self.modules: dict[str, Any] = {}
        self.last: torch.fx.Node | None = None
        self.changes: list[Value] = []
        self.hidden: dict[int, TensorValue | None] = {}  # what fakes of parameters stand for outside

    def __enter__(self) -> Region:
        s = self.s
        refuse_operators(s)
        if any(chosen.fake.requires_grad for chosen in s.tensors.chosen):
            refuse_choice(s, "computes gradients through a function beside a tensor")
        self.outer = s.graph, s.subgraphs
        self.grad_mode = torch.is_grad_enabled()
        s.graph, s.subgraphs = self.nodes, self.modules
        s.open_graphs.append(self.nodes)
        s.effects.watchers.append(self)
        self.started = serial()
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        s = self.s
        s.graph, s.subgraphs = self.outer
        s.open_graphs.remove(self.nodes)
        s.effects.watchers.remove(self)
        s.objects.by_fake.update({fake: value for fake, value in self.hidden.items() if value is not None})
        if kind is not None:  # the program may go on without this graph
            self.discard()

    def saw(self, change: Value | None, born: int) -> None:
        """Something has changed that was there before the region: None for a variable, or a call made later."""
        if born < self.started:
            self.changes.append(change)  # type: ignore[arg-type]

    def placeholder(self, fake: torch.Tensor, name: str = "arg") -> TensorValue:
        """A parameter of the graph."""
        node, known = self._placeholder(name, fake), self.s.objects.by_fake
        self.hidden.setdefault(id(fake), known.get(id(fake)))
        value = known[id(fake)] = TensorValue(node, fake)
        return value

    def _placeholder(self, name: str, fake: Any) -> torch.fx.Node:
        with self.nodes.inserting_after(self.last or self.nodes._root):
            self.last = self.nodes.placeholder(name)
        self.last.target = self.last.name  # a parameter's name, and unlike the one asked for it is unique
        self.last.meta["fake"] = fake
        return self.last

    def refuse_changes(self, what: str) -> None:
        """For functions that run any number of times, or not at all."""
        if self.changes:
            change = self.changes[0]
            shown = "a variable or prints" if change is None else change.describe()
            self.s.unsupported("side-effect-in-subgraph", f"{what} changes {shown}, which exists outside of it")
        if torch.is_grad_enabled() != self.grad_mode:
            self.s.unsupported("side-effect-in-subgraph", f"{what} leaves another grad mode behind")

    def finish(self, output: Any) -> tuple[torch.fx.Node, list[torch.fx.Node]]:
        """Close the graph: (the node that stands for its module in the graph around, what that must pass last)."""
        module, lifted = self.close(output)
        outer, modules = self.outer
        name = next(n for n in (f"{self.name}_{k}" for k in itertools.count()) if n not in modules)
        modules[name] = module
        node = outer.create_node("get_attr", name)
        node.meta["stack"] = self.s.stack()
        return node, lifted

    def close(self, output: Any) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
        """The module alone, and what it must be passed last."""
        end = self.nodes.output(output)
        end.meta["stack"] = self.s.stack()
        remove_dead(self.nodes)
        self.impure = self.is_impure()
        lifted = self.lift()
        return torch.fx.GraphModule(self.modules, self.nodes, class_name=self.name), lifted

    def is_impure(self) -> bool:
        """Does the graph do anything but compute its results?"""
        return any(n.op.startswith("call") and impure(n) for n in self.nodes.nodes)

    def discard(self) -> None:
        """The graph will not be used; what it took from graphs around is not used by it."""
        for node in self.nodes.nodes:
            node.args, node.kwargs = (), {}

    def lift(self) -> list[torch.fx.Node]:
        """Parameters for the values of graphs around; gives those values' nodes in the order of the parameters."""
        found: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self.nodes.nodes:
            for used in node.all_input_nodes:
                if used.graph is not self.nodes:
                    if used not in found:
                        found[used] = self._placeholder(used.name, used.meta.get("fake"))
                    node.replace_input_with(used, found[used])
        return list(found)
