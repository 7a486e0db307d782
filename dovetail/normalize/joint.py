"""Torch-level graph in, forward and backward together as one functional ATen graph out.

    y = x.sin(); return y       ->      %sin = aten.sin(%x)
                                        %cos = aten.cos(%x);  %mul = aten.mul(%tangent_0, %cos)
                                        return (%sin, %mul)

PyTorch's own engine differentiates what runs on the fake tensors; its operators are recorded like any others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.fx

from dovetail.errors import Unsupported
from dovetail.ir.aten import AtenGraph, JointGraph, NotDifferentiable, Passed, Returned, ViewStep
from dovetail.normalize.normalize import placeholders, run_graph
from dovetail.normalize.outputs import GraphEnding, Results, flat, recounted
from dovetail.normalize.passes import simplify, simplify_joint
from dovetail.normalize.recording.aliases import Base, Handle
from dovetail.normalize.recording.autograd_history import behind, ways
from dovetail.normalize.recording.control_flow import left_to_engine
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.calls import higher_order
from dovetail.ops.calls.autograd_calls import calls_engine
from dovetail.ops.fake import FakeTensor, to_fake
from dovetail.ops.fake.rules.layout import contiguous, dense_order
from dovetail.options import Options

Node = torch.fx.Node


def normalize_joint(
    graph_module: torch.fx.GraphModule, fakes: Sequence[Any], options: Options
) -> JointGraph | AtenGraph:
    """The joint graph of a captured one, or its forward half alone if nothing that it returns has a history.

    Raises Unsupported like `normalize`, and NotDifferentiable where the backward pass is not
    known yet.
    """
    joint = record_joint(graph_module, fakes, options)
    if isinstance(joint, AtenGraph):
        return simplify(joint, options)
    return simplify_joint(joint, options)


def record_joint(
    graph_module: torch.fx.GraphModule, fakes: Sequence[Any], options: Options | None = None
) -> JointGraph | AtenGraph:
    if left_to_engine(graph_module):
        raise NotDifferentiable("PyTorch's engine goes through branches as they were taken, and runs users' own")
    recorder = AtenRecorder()
    recorder.options = options
    recorder.computed_again = not calls_engine(graph_module.graph)
    with torch.autograd.set_multithreading_enabled(False):
        leaves = placeholders(recorder, graph_module, fakes)
        sources = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]  # a write makes more of them
        with recorder:
            inputs = [enter(recorder, leaf) for leaf in leaves]
            outputs = run_graph(graph_module, inputs, recorder)
        recorder.stack = None
        joint = _Joint(recorder, leaves, sources)
        joint.take(outputs)
        joint.new_values()
        return joint.differentiate()


class _Enter(torch.autograd.Function):
    """The input as the program sees it: what it writes to must not be the leaf itself."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, recorder: AtenRecorder) -> torch.Tensor:
        ctx.set_materialize_grads(False)  # what a user's backward gives no gradient has none
        base = recorder.handles[id(leaf)].base
        made = to_fake(leaf, leaf=False)
        base.tensor = made
        recorder.handles[id(made)] = Handle(made, base, base.node, 0)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def enter(recorder: AtenRecorder, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
        made = _Enter.apply(leaf, recorder)
        recorder.handle(made).base.start = made._version
        return made
    return leaf


class _Joint(Results):
    """Collects what the forward half gives, then records the backward half."""

    def __init__(self, recorder: AtenRecorder, leaves: list, sources: list) -> None:
        super().__init__(recorder)
        self.leaves, self.sources = leaves, sources
        self.rewritten: list[tuple[int, int]] = []
        self.mutated: list[tuple[int, Node]] = []

    # ------------------------------------------------------------ results

    def take(self, outputs: Any) -> None:
        super().take(outputs)
        self.outputs = flat(outputs)

    def result(self, handle: Handle, tensor: Any) -> int:
        if tensor.requires_grad and tensor.grad_fn is None:
            raise NotDifferentiable("a result is a leaf")
        return super().result(handle, tensor)

    def origin(self, handle: Handle, tensor: Any, shared: set[int], outputs: dict[int, int]) -> Returned:
        """A view made by the graph may not be written to afterwards; so its result is none, and made one outside."""
        if not handle.base.fresh or id(handle.base) in shared:
            check_history(handle)
        found = super().origin(handle, tensor, shared, outputs)
        if found.origin == "result" and not found.steps and tensor._is_view():
            return replace(found, steps=(ViewStep(torch.ops.aten.alias.default),))
        return found

    def new_values(self) -> None:
        """Inputs that were written to: gradients flow through the new value where they would in eager."""
        for k, base in enumerate(self.recorder.inputs):
            if not base.version or base.fresh:
                continue
            if _differentiable(base):
                self.rewritten.append((k, self.result(self.recorder.handle(base.tensor), base.tensor)))
            else:
                self.mutated.append((k, self.ending.private(base.node, base)))

    # ------------------------------------------------------------ gradients

    def differentiate(self) -> JointGraph | AtenGraph:
        recorder = self.recorder
        wanted = [k for k, t in enumerate(self.tensors) if t.requires_grad]
        if not wanted:
            recorder.graph.output(tuple(self.nodes))
            return self.graph()
        before = set(recorder.graph.nodes)
        tangents = [self.tangent(k) for k in wanted]
        self.check_leaves([self.tensors[k] for k in wanted])
        self.check_functions([self.tensors[k] for k in wanted])
        given = self.engine([self.tensors[k] for k in wanted], tangents)
        ending = GraphEnding(recorder)
        gradients = [self.gradient(ending, given.get(id(leaf))) for leaf in self.leaves]
        backward = frozenset(n for n in recorder.graph.nodes if n not in before)
        names = [recorder.handles[id(t)].base.first.name for t in tangents]
        recorder.graph.output((*self.nodes, *gradients))
        return JointGraph(
            self.graph(), len(self.leaves), len(self.nodes), tuple(zip(names, wanted, strict=True)),
            tuple(self.rewritten), backward, tuple(self.passed(wanted)),
        )  # fmt: skip

    def passed(self, wanted: list[int]) -> Iterator[Passed]:
        """What the caller may put hooks on, if results other than itself are computed from it."""
        places: list[tuple[Literal["output", "input"], int, Any, int | None]] = []
        for k, (tensor, each) in enumerate(zip(self.outputs, self.returned, strict=False)):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad and (each.steps or each.origin == "result"):
                own = each.value if each.origin == "result" and self.tensors[each.value] is tensor else None
                places.append(("output", k, tensor, own))
        for k, position in self.rewritten:
            places.append(("input", k, self.recorder.inputs[k].tensor, position))
        if all(own in wanted and len(wanted) == 1 for _, _, _, own in places):
            return  # there is no other result
        by = ways({k: self.tensors[k] for k in wanted}, [tensor for _, _, tensor, _ in places])
        for (kind, k, _, own), results in zip(places, by, strict=True):
            later = tuple(sorted(results - {own}))
            if later:
                yield Passed(kind, k, later)

    def graph(self) -> AtenGraph:
        rewritten = [position for _, position in self.rewritten]
        return AtenGraph(
            self.recorder.graph, tuple(self.mutated), dict(self.recorder.constants), tuple(self.returned), frozenset(),
            tuple(c for c in self.counted() if c[0] not in rewritten), recounted(self.recorder),
        )  # fmt: skip

    def check_leaves(self, tensors: list) -> None:
        """A view made without gradients, of a tensor that requires them, is a leaf that gets its own."""
        known = {id(t) for t in (*self.leaves, *self.recorder.unseen)}
        for node in behind(tensors):
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in known:
                raise NotDifferentiable("a view that was made without gradients gets one of its own")

    def check_functions(self, tensors: list) -> None:
        """A user's backward need not give zeros for zeros: it must not run for results that it has no part in."""
        functions = {node for node in behind(tensors) if isinstance(node, _OF_USERS)}
        if functions and any(not functions <= behind([tensor]) for tensor in tensors):
            raise NotDifferentiable("a user's backward does not run for some results")

    def engine(self, tensors: list, tangents: list) -> dict[int, Any]:
        """The gradient of each input that has one, by the id of its leaf."""
        try:
            with self.recorder:
                found = torch.autograd.grad(tensors, self.sources, tangents, allow_unused=True)
        except (RuntimeError, Unsupported) as error:
            raise NotDifferentiable(str(error)) from error
        return dict(zip(map(id, self.sources), found, strict=True))

    def tangent(self, k: int) -> FakeTensor:
        """An input of the backward half."""
        return self.recorder.placeholder(f"tangent_{k}", tangent_of(self.tensors[k]))

    def gradient(self, ending: GraphEnding, tensor: Any) -> Node | None:
        return None if tensor is None else ending.owned(self.recorder.handle(tensor))


def tangent_of(result: torch.Tensor) -> FakeTensor:
    """Laid out as the result is, if that has no gaps."""
    dense = dense_order(result.shape, result.stride()) is not None
    strides = result.stride() if dense else contiguous(result.shape)
    return FakeTensor(result.shape, strides, result.dtype, result.device)


_OF_USERS = higher_order.Recorded._backward_cls


def check_history(handle: Handle | None) -> None:
    """A tensor without history that got one by a write cannot be made outside of what it was detached from."""
    history = False  # its own, or a view's: what a tensor was before it was reshaped in place has none
    while handle is not None and handle.view is not None:
        history = history or handle.tensor.requires_grad
        if history and handle.view.operator is torch.ops.aten.detach.default:
            raise NotDifferentiable("a detached tensor gets a history")
        handle = handle.caller


def _differentiable(base: Base) -> bool:
    """Was the new value computed with gradients (and not under no_grad)?"""
    history = getattr(base.tensor, "grad_fn", None)
    return history is not None and not isinstance(history, _Enter._backward_cls)
