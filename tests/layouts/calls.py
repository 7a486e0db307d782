"""Calls of ATen operators, as normalized graphs make them: of the operator database and of convolutional networks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from dovetail.errors import DovetailError
from dovetail.ir.aten import NotDifferentiable
from dovetail.normalize.joint import record_joint
from dovetail.normalize.normalize import record
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake import to_fake
from dovetail.ops.table import callee_of
from tests.fuzz.images import network
from tests.opdb.entries import Case, Entry, samples
from tests.opdb.gradients import differentiable
from tests.opdb.stages import one_call

#: What eager raises for arguments that it does not take.
REFUSED = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AssertionError)


IMAGE = torch.Size((2, 3, 4, 5))


@dataclass(frozen=True)
class Call:
    """`operator(*args, **kwargs)` on real tensors."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return self.operator._name.removeprefix("aten::")

    def tensors(self) -> list[torch.Tensor]:
        return [t for t in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(t, torch.Tensor)]

    def key(self) -> Any:
        """Equal for calls that differ in the elements of tensors only."""

        def part(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return tuple(value.shape), value.stride(), value.dtype
            return repr(value)

        return self.operator, tuple(map(part, pytree.tree_leaves((self.args, self.kwargs))))

    def as_images(self) -> Call | None:
        """Of an element-wise operator on tensors of one shape the same on images; the database has vectors alone."""
        shapes = {tuple(t.shape) for t in self.tensors() if t.dim()}
        if torch.Tag.pointwise not in self.operator.tags or len(shapes) != 1 or 0 in (shape := shapes.pop()):
            return None
        wide = lambda t: t.reshape(-1).repeat(IMAGE.numel())[: IMAGE.numel()].view(IMAGE) if t.dim() else t
        return Call(self.operator, *pytree.tree_map_only(torch.Tensor, wide, (self.args, self.kwargs)))

    def run(self) -> Any:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if facts(self.operator).random:
                torch.manual_seed(0)
            return callee_of(self.operator)(*self.args, **self.kwargs)


def of_entry(entry: Entry, most: int) -> Iterator[Call]:
    """The calls that `most` of its samples make, forward and, where the operator is differentiable, backward."""
    try:
        cases = [case for case in samples(entry, most) if "in place" not in case.label]
    except (RuntimeError, NotImplementedError):
        return  # no samples of this type
    learns = entry.dtype in differentiable(entry.op)
    for case in cases:
        yield from of_case(case, learns)


def of_case(case: Case, learns: bool) -> Iterator[Call]:
    module, tensors = one_call(case)
    for t in tensors:
        t.requires_grad_(learns and (t.is_floating_point() or t.is_complex()))
    yield from of_graph(module, tensors)


def of_network(seed: int) -> Iterator[Call]:
    """A training step of a random convolutional network."""
    model, x = network(seed)
    x = x.requires_grad_()
    named = dict(model.named_parameters()) | dict(model.named_buffers())

    def step(x: torch.Tensor, *values: torch.Tensor) -> Any:
        return torch.func.functional_call(model, dict(zip(named, values, strict=True)), (x,))

    tensors, graph = [x, *named.values()], torch.fx.Graph()
    graph.output(graph.call_function(step, tuple(graph.placeholder(f"p{k}") for k in range(len(tensors)))))
    yield from of_graph(torch.fx.GraphModule({}, graph), tensors)


def of_graph(graph: torch.fx.GraphModule, tensors: list[torch.Tensor]) -> Iterator[Call]:
    """What its normalized form calls, in order, on these tensors; nothing where it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = _recorded(graph, tensors)
    if made is None:
        return
    aten = getattr(made, "aten", made)
    yield from _interpreted(aten.graph, dict(aten.constants), [t.detach() for t in tensors])


def _recorded(graph: torch.fx.GraphModule, tensors: list[torch.Tensor]) -> Any:
    """Forward and backward, or forward alone; None for what eager refuses or is no graph."""
    for learns in (True, False) if any(t.requires_grad for t in tensors) else (False,):
        try:
            with torch.set_grad_enabled(learns):
                return (record_joint if learns else record)(graph, [to_fake(t) for t in tensors])
        except NotDifferentiable:
            continue
        except (DovetailError, *REFUSED):
            return None
    return None


def _interpreted(graph: torch.fx.Graph, constants: dict[str, Any], given: list[torch.Tensor]) -> Iterator[Call]:
    env: dict[torch.fx.Node, Any] = {}
    feed = iter(given)
    for node in graph.nodes:
        if node.op == "placeholder":
            value = constants.get(node.name, constants.get(node.target))  # type: ignore[arg-type]
            env[node] = next(feed, None) if value is None else value
            if env[node] is None:  # a tangent
                env[node] = _random(node.meta["val"])
        elif node.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), env.__getitem__)
            if not isinstance(node.target, torch._ops.OpOverload):
                if getattr(node.target, "__name__", "") != "getitem":
                    return  # a branch or a loop
                env[node] = node.target(*args)
                continue
            call = Call(node.target, args, kwargs)
            yield call
            try:
                env[node] = call.run()
            except REFUSED:
                return


def _random(like: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    return made.copy_(torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like.dtype))
