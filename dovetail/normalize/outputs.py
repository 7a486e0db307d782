"""The end of the graph: results with eager's strides, what the caller is given, inputs' new values.

    y = x * 2; return y, y[0], x[1]     ->    return (%mul,)
                                              outputs: result 0;  result 0, then select;  input 0, then select

Memory that several outputs share, or an input's, is one tensor of the graph at most: the caller's views are made of
the real tensor by eager's own operators, so that all its relations are PyTorch's.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from dovetail.ir import dims
from dovetail.ir.aten import DATA, AtenGraph, Returned, ViewStep
from dovetail.ir.devices import HOST
from dovetail.normalize.recording.aliases import Base, Handle, TakenView, same_steps
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.normalize.recording.view_inverses import laid_out
from dovetail.ops.calls.schema import IDENTITY, facts
from dovetail.ops.fake.rules.layout import is_one, overlaps_itself
from dovetail.ops.fake.symbolic.size_questions import all_same, dim_or_node, is_unbacked, same
from dovetail.ops.fake.symbolic.symbols_in_graph import sizes_in
from dovetail.ops.fake.symbolic.symint import dim_of, symint

aten = torch.ops.aten
Node = torch.fx.Node
_SET = torch._C._autograd._unsafe_set_version_counter


NO_TENSOR = torch.empty(0, device=HOST)  # in the place of a result that is none


def strided_from(tensor: torch.Tensor, sizes: Any, strides: Any, begin: int) -> torch.Tensor:
    """as_strided that counts from the tensor's first element: where that lies in its storage differs between calls."""
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + begin)


def finish(recorder: AtenRecorder, outputs: Any) -> AtenGraph:
    """Close the recorded graph."""
    recorder.stack = None
    end = Results(recorder)
    end.take(outputs)
    mutated = end.ending.mutated()
    recorder.graph.output(tuple(end.nodes))
    return AtenGraph(
        recorder.graph, mutated, dict(recorder.constants), tuple(end.returned), end.viewed(), end.counted(),
        recounted(recorder),
    )  # fmt: skip


def finish_values(recorder: AtenRecorder, outputs: Any) -> AtenGraph:
    """Close a graph inside another one: every output is a result with memory of its own."""
    recorder.stack = None
    ending = GraphEnding(recorder)
    results = [
        ending.owned(recorder.handle(value)) if isinstance(value, torch.Tensor) else value for value in flat(outputs)
    ]
    recorder.copies.returned(())
    mutated = ending.mutated()
    recorder.graph.output(tuple(results))
    return AtenGraph(recorder.graph, mutated, dict(recorder.constants))


def recounted(recorder: AtenRecorder) -> tuple[tuple[int, int], ...]:
    """How much further the version counter of an input goes than by one write if it is written to."""
    found = []
    for k, base in enumerate(recorder.inputs):
        if recorder.counts and isinstance(base.tensor, torch.Tensor) and not base.fresh:
            extra = base.tensor._version - base.start - (base.version > 0)
            found += [(k, extra)] if extra else []
    return tuple(found)


def flat(outputs: Any) -> list:
    if isinstance(outputs, (tuple, list)) and not isinstance(outputs, torch.Size):
        return [leaf for item in outputs for leaf in flat(item)]
    if isinstance(outputs, dict):
        return [leaf for item in outputs.values() for leaf in flat(item)]
    return [outputs]


def _detached_above(handle: Handle) -> Iterator[Handle]:
    """Those that this is a view of and that were detached from others, the nearest first."""
    above = handle.caller
    while above is not None and above.view is not None:
        if above.view.operator is aten.detach.default:
            now = above
            while now.became is not None:
                now = now.became
            yield now
        above = above.caller


def _above(handle: Handle) -> Iterator[Handle]:
    """The handle, what it is a view of, and so on; what has another shape by now is a view of what it became."""
    below = None
    while handle.caller is not None:
        if handle.became is None or handle.became is below:
            yield handle
            below, handle = handle, handle.caller
        else:
            was = handle.tensor
            layout = was.size(), was.stride(), was.storage_offset()
            view = TakenView(aten.as_strided.default, layout, {}, None, grad=True)
            yield Handle(was, handle.base, handle.node, handle.version, handle.became, view, asked=handle.became)
            below, handle = None, handle.became
    yield handle


def _way(handle: Handle) -> int:
    """Which view of the memory's own tensor leads to this one? (Its id; that tensor's for itself.)"""
    while handle.caller is not None and handle.caller.caller is not None:
        handle = handle.caller
    return id(handle.tensor)


def _unrecorded(handle: Handle) -> bool:
    """Is it a view that was made without gradients? PyTorch refuses to give it a history by a write."""
    while handle.caller is not None and handle.view is not None and handle.view.operator is not aten.detach.default:
        if not handle.view.grad:
            return True
        handle = handle.caller
    return False


def uncounted(handle: Handle) -> bool:
    """Has the view a version counter of its own, as `.data` gives it?"""
    if handle.view is None or handle.parent is None or handle.view.operator._schema.name not in IDENTITY:
        return False
    above, below = handle.parent.counter, handle.counter
    before, version = below._version, above._version
    _SET((above,), (version + 1,))
    shared = below._version != before
    _SET((above,), (version,))
    return not shared


class Results:
    """What the graph gives (`nodes`), and how the caller's outputs are made of that."""

    def __init__(self, recorder: AtenRecorder) -> None:
        self.recorder = recorder
        self.ending = GraphEnding(recorder)
        self.nodes: list[Node] = []
        self.tensors: list = []  # the fake tensor of each result
        self.counters: list = []  # the fake tensor with its version counter
        self.returned: list[Returned] = []
        self.bases: dict[int, tuple[int, Handle]] = {}  # id of a Base -> the result that has its memory
        self.ways: dict[int, set[int]] = {}  # id of a Base -> the views of its tensor that lead to outputs, or itself

    def take(self, outputs: Any) -> None:
        """Decide for each output whether it is a result, a view of one, of an input or of another output."""
        visible = flat(outputs)
        values = [*visible, *self.between(visible)]
        first: dict[int, int] = {}
        for k, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                first.setdefault(id(value), k)
        handles = [self.recorder.handle(values[k]) for k in first.values()]
        self.recorder.copies.returned(handle.base for handle in handles)
        shared = self.shared(handles)
        for handle in handles:
            self.ways.setdefault(id(handle.base), set()).add(_way(handle))
        for k, value in enumerate(values):
            if is_unbacked(value):
                self.returned.append(Returned("result", self.number(value)))
            elif not isinstance(value, torch.Tensor):
                self.returned.append(Returned("object", value))
            elif first[id(value)] != k:
                self.returned.append(Returned("output", first[id(value)]))
            else:
                self.returned.append(self.origin(self.recorder.handle(value), value, shared, first))
        self.tell_sizes()
        count = len(visible)
        self.returned[count:] = [replace(each, given=False) for each in self.returned[count:]]

    def between(self, values: list) -> list:
        """Detached tensors that several outputs are views of, though the caller does not get them."""
        found = {id(v): self.recorder.handle(v) for v in values if isinstance(v, torch.Tensor)}
        below: dict[int, tuple[Handle, set[int]]] = {}
        for key, handle in found.items():
            for above in _detached_above(handle):
                below.setdefault(id(above.tensor), (above, set()))[1].add(key)
                key = id(above.tensor)
        return [h.tensor for key, (h, users) in below.items() if len(users) > 1 and key not in found]

    def shared(self, handles: list[Handle]) -> set[int]:
        """Memory of which the caller gets more than one tensor."""
        found = [id(handle.base) for handle in handles]
        return {base for base in found if found.count(base) > 1}

    def origin(self, handle: Handle, tensor: Any, shared: set[int], outputs: dict[int, int]) -> Returned:
        base = handle.base
        apart = overlaps_itself(tensor) or tensor._is_view() and _unrecorded(handle) is torch.is_grad_enabled()
        if base.fresh and id(base) not in shared and not apart:
            return Returned("result", self.result(handle, tensor))
        above: list[Handle] = []
        for last in _above(handle):
            if above and id(last.tensor) in outputs and last.parent is not None:
                return Returned("output", outputs[id(last.tensor)], *self.steps(above))
            above.append(last)
        last = above.pop()
        steps = self.steps(above)
        if not base.fresh:
            name = base.first.name
            if name in self.recorder.constants:
                return Returned("object", self.recorder.constants[name], *steps)
            return Returned("input", base.position, *steps)
        if above and len(self.ways[id(base)]) == 1 and uncounted(above[-1]):
            return self.from_data(above)
        if id(base) not in self.bases:
            self.bases[id(base)] = (self.result(last, last.tensor), last)
        return Returned("result", self.bases[id(base)][0], *steps)

    def from_data(self, handles: list[Handle]) -> Returned:
        """The memory's own tensor is out of reach: `.data` of it is, as what `torch.zeros` gives under a recorder."""
        start = handles.pop()
        position, first = self.bases.get(id(start.base), (None, start))
        if position is None:
            position = self.result(start, start.tensor)
            self.bases[id(start.base)] = position, start
        return Returned("result", position, *self.steps(handles if first is start else [*handles, start]))

    def steps(self, handles: list[Handle]) -> tuple[tuple[ViewStep, ...], int | None, int]:
        """The view operators that lead to the first of these from the parent of the last; its own version counter, or
        by how many writes it is older than what is in its memory."""
        made, own = [], False
        for handle in reversed(handles):
            view = handle.view
            assert view is not None
            if uncounted(handle):
                own = True
                made.append(ViewStep(DATA))
            elif view.operator is aten.as_strided.default:
                sizes, strides, offset = view.args
                begin = offset - (handle.asked or handle.base).tensor.storage_offset()
                made.append(ViewStep(strided_from, (sizes, strides, begin), grad=view.grad))
            else:
                made.append(ViewStep(view.operator, view.args, view.kwargs, view.index, view.grad))
                identity = view.operator._schema.name in IDENTITY
                if not (identity or handle.counter._is_view() or handle.tensor.requires_grad):
                    made.append(ViewStep(aten.detach.default))  # a tensor that was reshaped in place is no view
        if not handles or not self.recorder.counts:
            return tuple(made), None, 0
        version = handles[0].counter._version
        return tuple(made), version if own and version else None, 0 if own else version - handles[0].since

    def result(self, handle: Handle, tensor: Any) -> int:
        self.nodes.append(self.ending.owned(handle))
        self.tensors.append(tensor)
        self.counters.append(handle.counter)
        return len(self.nodes) - 1

    def number(self, value: Any) -> int:
        """A size that the graph finds out."""
        self.nodes.append(dim_or_node(value))
        self.tensors.append(NO_TENSOR)
        self.counters.append(NO_TENSOR)
        return len(self.nodes) - 1

    def tell_sizes(self) -> None:
        """Views that are made outside may need sizes that the graph finds out."""
        found: dict[Any, Any] = {}
        for size in sizes_in([(step.args, dict(step.kwargs)) for each in self.returned for step in each.steps]):
            node = size.node if isinstance(size, torch.SymInt) else size
            for symbol in sorted(dims.symbols(dim_of(size)) & node.sizes.unbacked.keys()):
                found.setdefault(symbol, symint(node.sizes, dims.of_atom(symbol)))
        for size in found.values():
            self.number(size)

    def counted(self) -> tuple[tuple[int, int], ...]:
        if not self.recorder.counts:
            return ()
        return tuple((k, tensor._version) for k, tensor in enumerate(self.counters))

    def viewed(self) -> frozenset[int]:
        return frozenset(k for k, tensor in enumerate(self.tensors) if tensor._is_view())


class GraphEnding:
    """One node for each tensor object: the same object twice is the same node twice."""

    def __init__(self, recorder: AtenRecorder) -> None:
        self.recorder = recorder
        self.done: dict[int, Node] = {}
        self.taken: set[Node] = set()
        self.owners: dict[Node, Base] = {}

    def owned(self, handle: Handle) -> Node:
        """Memory of its own."""
        found = self.done.get(id(handle.tensor))
        if found is None:
            found = self._owned(handle)
            if found in self.taken:
                found = self.recorder.emit(aten.alias.default, found)
            self.taken.add(found)
            self.done[id(handle.tensor)] = found
        return found

    def _owned(self, handle: Handle) -> Node:
        node = self.private(self.recorder.node_of(handle), handle.base)
        val, like = node.meta["val"], handle.tensor
        if not all_same(val.stride(), like.stride()):
            node = laid_out(self.recorder.emit, node, like)
            if not all_same(node.meta["val"].stride(), like.stride()) and same_steps(node.meta["val"], like):
                node = self.recorder.emit(aten.as_strided.default, node, list(like.shape), list(like.stride()))
        return node

    def mutated(self) -> tuple[tuple[int, Node], ...]:
        """The new values of inputs that were written to."""
        written = [(k, base) for k, base in enumerate(self.recorder.inputs) if base.version and not base.fresh]
        return tuple((k, self.private(base.node, base)) for k, base in written)

    def private(self, node: Node, base: Base) -> Node:
        """A copy if the memory belongs to an input or constant, or to another returned tensor."""
        origin = memory_of(node)
        if origin.op == "placeholder" or self.owners.setdefault(origin, base) is not base:
            return self._copied(node)
        return node

    def _copied(self, node: Node) -> Node:
        """A copy, in which one element is still seen in many places where it was."""
        val = node.meta["val"]
        sizes = tuple(val.shape)
        repeated = [d for d, step in enumerate(val.stride()) if same(step, 0) and not is_one(sizes[d])]
        for d in repeated:
            node = self.recorder.emit(aten.slice.Tensor, node, d, 0, 1)
        node = self.recorder.emit(aten.clone.default, node)
        return self.recorder.emit(aten.expand.default, node, list(sizes)) if repeated else node


def memory_of(node: Node) -> Node:
    """The node whose memory this one is a view of; each of several results has its own."""
    while node.op == "call_function":
        made = node
        while made.target is operator.getitem:  # lists of results too
            made = made.args[0]  # type: ignore[assignment]
        if not facts(made.target).view:
            break
        node = made.args[0]  # type: ignore[assignment]
    return node
