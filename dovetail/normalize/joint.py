"""Torch-level graph in, forward and backward together as one functional ATen graph out.

    y = x.sin(); return y       ->      %sin = aten.sin(%x)
                                        %cos = aten.cos(%x);  %mul = aten.mul(%tangent_0, %cos)
                                        return (%sin, %mul)

PyTorch's own engine differentiates what runs on the fake tensors; its operators are recorded like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dovetail.errors import Unsupported
from dovetail.ir.aten import AtenGraph
from dovetail.ir.joint import JointGraph, NotDifferentiable, Returned, ViewStep
from dovetail.normalize.alias import Base, Handle, dense_order
from dovetail.normalize.control import left_to_engine
from dovetail.normalize.normalize import placeholders, run_graph
from dovetail.normalize.outputs import Ending, flat
from dovetail.normalize.passes import simplify_joint
from dovetail.normalize.record import Recorder
from dovetail.ops.fake import FakeTensor, to_fake
from dovetail.ops.fake.layout import contiguous
from dovetail.options import Options

Node = torch.fx.Node


def normalize_joint(graph_module: torch.fx.GraphModule, fakes: Sequence[Any], options: Options) -> JointGraph | None:
    """The joint graph of a captured one; None if nothing that it returns has a history.

    Raises Unsupported like `normalize`, and NotDifferentiable where the backward pass is not
    known yet.
    """
    joint = record_joint(graph_module, fakes)
    if joint is not None:
        simplify_joint(joint.aten, options)
    return joint


def record_joint(graph_module: torch.fx.GraphModule, fakes: Sequence[Any]) -> JointGraph | None:
    if left_to_engine(graph_module):
        raise NotDifferentiable("PyTorch's engine goes through branches as they were taken, and runs users' own")
    recorder = Recorder()
    with torch.autograd.set_multithreading_enabled(False):
        leaves = placeholders(recorder, graph_module, fakes)
        with recorder:
            inputs = [enter(recorder, leaf) for leaf in leaves]
            outputs = run_graph(graph_module, inputs, recorder)
        recorder.stack = None
        joint = _Joint(recorder, leaves)
        joint.returns(outputs)
        joint.new_values()
        return joint.differentiate()


class _Enter(torch.autograd.Function):
    """The input as the program sees it: what it writes to must not be the leaf itself."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, recorder: Recorder) -> torch.Tensor:
        base = recorder.handles[id(leaf)].base
        made = to_fake(leaf, leaf=False)
        base.tensor = made
        recorder.handles[id(made)] = Handle(made, base, base.node, 0)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def enter(recorder: Recorder, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
        return _Enter.apply(leaf, recorder)
    return leaf


class _Joint:
    """Collects what the forward half gives, then records the backward half."""

    def __init__(self, recorder: Recorder, leaves: list[Any]) -> None:
        self.recorder, self.leaves = recorder, leaves
        self.ending = Ending(recorder)
        self.results: list[Node] = []
        self.tensors: list[Any] = []  # the fake tensor of each result, where gradients start
        self.returned: list[Returned] = []
        self.rewritten: list[tuple[int, int]] = []
        self.mutated: list[tuple[int, Node]] = []
        self.bases: dict[int, int] = {}  # id of a Base -> position of the result that has its memory

    # ------------------------------------------------------------ results

    def returns(self, outputs: Any) -> None:
        """Decide for each output whether it is a result, a view of one or of an input."""
        values = flat(outputs)
        shared = self.shared([self.recorder.handle(v) for v in values if isinstance(v, torch.Tensor)])
        seen: dict[int, int] = {}
        for k, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                self.returned.append(Returned("object", value))
            elif id(value) in seen:
                self.returned.append(Returned("output", seen[id(value)]))
            else:
                seen[id(value)] = k
                self.returned.append(self.origin(self.recorder.handle(value), value, shared))

    def shared(self, handles: list[Handle]) -> set[int]:
        """Memory of which the caller gets more than one tensor."""
        tensors: dict[int, set[int]] = {}
        for handle in handles:
            tensors.setdefault(id(handle.base), set()).add(id(handle.tensor))
        return {base for base, found in tensors.items() if len(found) > 1}

    def origin(self, handle: Handle, tensor: Any, shared: set[int]) -> Returned:
        base = handle.base
        if not base.fresh:
            name = base.first.name
            if name in self.recorder.constants:
                return Returned("object", self.recorder.constants[name], steps(handle))
            return Returned("input", base.position, steps(handle))
        if id(base) not in shared:
            return Returned("result", self.result(self.ending.owned(handle), tensor))
        if id(base) not in self.bases:
            root = self.recorder.root(handle)
            self.bases[id(base)] = self.result(self.ending.owned(root), root.tensor)
        return Returned("result", self.bases[id(base)], steps(handle))

    def result(self, node: Node, tensor: Any) -> int:
        if tensor.requires_grad and tensor.grad_fn is None:
            raise Unsupported(
                "metadata-mutation", "a tensor whose shape was changed in place is returned with its views",
                "use the variant that returns a new tensor",
            )
        self.results.append(node)
        self.tensors.append(tensor)
        return len(self.results) - 1

    def new_values(self) -> None:
        """Inputs that were written to: gradients flow through the new value where they would in eager."""
        for k, base in enumerate(self.recorder.inputs):
            if not base.version or base.fresh:
                continue
            node = self.ending.private(base.node, base)
            if _differentiable(base):
                self.rewritten.append((k, self.result(node, base.tensor)))
            else:
                self.mutated.append((k, node))

    # ------------------------------------------------------------ gradients

    def differentiate(self) -> JointGraph | None:
        recorder = self.recorder
        wanted = [k for k, t in enumerate(self.tensors) if t.requires_grad]
        if not wanted and not any(r.origin == "input" and r.steps for r in self.returned):
            return None
        before = set(recorder.graph.nodes)
        tangents = [self.tangent(k) for k in wanted]
        given = self.engine([self.tensors[k] for k in wanted], tangents) if wanted else {}
        ending = Ending(recorder)
        gradients = [self.gradient(ending, given.get(id(leaf))) for leaf in self.leaves]
        backward = frozenset(n for n in recorder.graph.nodes if n not in before)
        names = [recorder.handles[id(t)].base.first.name for t in tangents]
        recorder.graph.output((*self.results, *gradients))
        aten = AtenGraph(recorder.graph, tuple(self.mutated), {}, dict(recorder.constants))
        return JointGraph(
            aten, len(self.leaves), len(self.results), tuple(zip(names, wanted, strict=True)), tuple(self.returned),
            tuple(self.rewritten), backward,
        )  # fmt: skip

    def engine(self, tensors: list[Any], tangents: list[Any]) -> dict[int, Any]:
        """The gradient of each input that has one, by the id of its leaf."""
        leaves = [t for t in self.leaves if isinstance(t, torch.Tensor) and t.requires_grad]
        try:
            with self.recorder:
                found = torch.autograd.grad(tensors, leaves, tangents, allow_unused=True)
        except (RuntimeError, Unsupported) as error:
            raise NotDifferentiable(str(error)) from error
        return dict(zip(map(id, leaves), found, strict=True))

    def tangent(self, k: int) -> FakeTensor:
        """An input of the backward half, laid out as the result is."""
        like = self.tensors[k]
        dense = dense_order(like.shape, like.stride()) is not None
        strides = like.stride() if dense else contiguous(like.shape)
        return self.recorder.placeholder(f"tangent_{k}", FakeTensor(like.shape, strides, like.dtype, like.device))

    def gradient(self, ending: Ending, tensor: Any) -> Node | None:
        return None if tensor is None else ending.owned(self.recorder.handle(tensor))


def _differentiable(base: Base) -> bool:
    """Was the new value computed with gradients (and not under no_grad)?"""
    history = getattr(base.tensor, "grad_fn", None)
    return history is not None and not isinstance(history, _Enter._backward_cls)  # type: ignore[attr-defined]


def steps(handle: Handle) -> tuple[ViewStep, ...]:
    """The view operators that lead from the memory's own tensor to this one."""
    found = []
    while handle.parent is not None:
        view = handle.view
        assert view is not None
        found.append(ViewStep(view.operator, view.args, view.kwargs, view.index))
        handle = handle.parent
    return tuple(reversed(found))
