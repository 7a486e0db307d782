"""The end of the graph: outputs with eager's strides and aliasing, inputs' new values."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.alias import Base, Handle
from dovetail.normalize.record import Recorder
from dovetail.ops.fake import FakeTensor
from dovetail.ops.schema import facts

aten = torch.ops.aten
Node = torch.fx.Node


def finish(recorder: Recorder, outputs: Any) -> AtenGraph:
    """Close the recorded graph with a flat tuple of outputs."""
    recorder.stack = None
    results: list[Any] = []
    aliases: dict[int, int] = {}
    ending = Ending(recorder)
    for k, value in enumerate(flat(outputs)):
        if not isinstance(value, torch.Tensor):
            results.append(value)
            continue
        handle = recorder.handle(value)
        if handle.base.fresh:
            results.append(ending.owned(handle))
        else:
            aliases[k] = handle.base.position  # type: ignore[assignment]
            results.append(ending.view_of_input(handle))
    written = [(k, base) for k, base in enumerate(recorder.inputs) if base.version and not base.fresh]
    mutated = tuple((k, ending.private(base.node, base)) for k, base in written)
    recorder.graph.output(tuple(results))
    return AtenGraph(recorder.graph, mutated, aliases, dict(recorder.constants))


def flat(outputs: Any) -> list[Any]:
    if isinstance(outputs, (tuple, list)) and not isinstance(outputs, torch.Size):
        return [leaf for item in outputs for leaf in flat(item)]
    if isinstance(outputs, dict):
        return [leaf for item in outputs.values() for leaf in flat(item)]
    return [outputs]


class Ending:
    """One node for each returned tensor object: the same object twice is the same node twice."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.done: dict[int, Node] = {}
        self.taken: set[Node] = set()
        self.owners: dict[Node, Base] = {}

    def once(self, handle: Handle, make: Any) -> Node:
        found = self.done.get(id(handle.tensor))
        if found is None:
            found = make(handle)
            if found in self.taken:
                found = self.recorder.emit(aten.alias.default, found)
            self.taken.add(found)
            self.done[id(handle.tensor)] = found
        return found

    def owned(self, handle: Handle) -> Node:
        """Memory of its own; tensors that share memory in eager share it here."""
        return self.once(handle, self._owned)

    def _owned(self, handle: Handle) -> Node:
        node = self.private(self.recorder.node_of(handle), handle.base)
        val, like = node.meta["val"], handle.tensor
        if val.stride() != like.stride():
            node = self.recorder.laid_out(node, like)
            if node.meta["val"].stride() != like.stride() and _only_units_differ(node.meta["val"], like):
                node = self.recorder.emit(aten.as_strided.default, node, list(like.shape), list(like.stride()))
        return node

    def private(self, node: Node, base: Base) -> Node:
        """A copy if the memory belongs to an input or constant, or to another returned tensor."""
        origin = memory_of(node)
        if origin.op == "placeholder" or self.owners.setdefault(origin, base) is not base:
            return self.recorder.emit(aten.clone.default, node)
        return node

    def view_of_input(self, handle: Handle) -> Node:
        if handle.parent is None:
            return handle.base.first
        return self.once(handle, self._view_of_input)

    def _view_of_input(self, handle: Handle) -> Node:
        """The view's value now; taken of the input itself when only that has eager's layout."""
        node = self.recorder.node_of(handle)
        exact = _same_place(node.meta["val"], handle.tensor) and memory_of(node).op != "placeholder"
        if exact or not handle.base.version:
            return self.recorder.emit(aten.alias.default, node) if node is handle.base.first else node
        chain = []
        while handle.parent is not None:
            chain.append(handle.view)
            handle = handle.parent
        node = handle.base.first
        for view in reversed(chain):
            assert view is not None
            made = self.recorder.emit(view.operator, node, *view.args, **view.kwargs)
            node = made if view.index is None else self.recorder.picked(made, view.index)
        return node


def memory_of(node: Node) -> Node:
    """The node whose memory this one is a view of; each of several results has its own."""
    while node.op == "call_function":
        source: Any = node.args[0] if node.args else None
        if node.target is operator.getitem:
            if not facts(source.target).view:
                break
        elif not facts(node.target).view:
            break
        node = source
    return node


def _only_units_differ(a: FakeTensor, b: FakeTensor) -> bool:
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def _same_place(a: FakeTensor, b: FakeTensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
