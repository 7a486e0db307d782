"""The two graphs of a `torch.autograd.Function`: its forward, and its backward traced right after it.

    forward(ctx, x): ctx.save_for_backward(x); return x.sin()     ->   forward:  %sin = sin(%x);  return [%sin]
    backward(ctx, g): x, = ctx.saved_tensors; return g * x.cos()       backward: %mul = mul(%g, cos(%x));  return [%mul]

A gradient is traced as a contiguous tensor. What is traced must compute and nothing else: code that keeps count, that
depends on whether its own gradient is wanted, or that steers the engine runs as PyTorch runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.tables.graph_functions import impure
from dovetail.capture.tensors.repeatable import harmless, made_inside, makers_of
from dovetail.capture.values.base import Raised, RestartCapture, Session, Value, is_singleton
from dovetail.capture.values.containers import SequenceValue, TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.errors import Unsupported
from dovetail.ir.nodes import is_collective
from dovetail.ir.records import dataclass
from dovetail.ops.calls.autograd_calls import steers
from dovetail.ops.calls.higher_order import Graphs


class BackwardOpaque(RestartCapture):
    """The backward of `cls` cannot be traced."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


@dataclass(frozen=True)
class FunctionGraphs:
    """The graphs, the nodes around that they take, and the fakes of what backward reads."""

    graphs: Graphs
    around: list[torch.fx.Node]
    read: list

    def gradients(self, given: Sequence[torch.Tensor]) -> Sequence[Any]:
        return self.graphs.backward.forward(*(g.contiguous() for g in given), *self.read)


def trace_backward(
    s: Session, forward: Region, cls: Value, inputs: list[Value], result: Value, context: ObjectValue,
    constant: list[Value],
) -> FunctionGraphs | None:
    """Called inside the region `forward` after that was traced. None where the function is left to PyTorch."""
    given = result.all(s) if isinstance(result, TupleValue) else [result]
    results = [r for r in given if isinstance(r, TensorValue)]
    if len(results) < len(given) or cls.native() in s.gradients.opaque or len(s.open_graphs) > 2:
        return None
    if "materialize_grads" in context.attrs or not _separable(forward, inputs, results):
        return None
    backward = Region(s, "backward")
    try:
        gradients = _traced(s, backward, cls, inputs, results, context)
    except (Unsupported, Raised) as error:
        raise BackwardOpaque(cls.native()) from error
    if not _computes(backward, random=False):
        raise BackwardOpaque(cls.native())
    return _joined(s, forward, backward, gradients, results, context, isinstance(result, TupleValue), constant)


def _joined(
    s: Session, forward: Region, backward: Region, gradients: list[Value], results: list[TensorValue],
    context: ObjectValue, several: bool, constant: list[Value],
) -> FunctionGraphs:  # fmt: skip
    """Both regions closed: what backward reads of forward is kept, and the rest comes from around both."""
    saved = {v.node for v in _saved(s, context) if isinstance(v, TensorValue)}
    ending, read = backward.close([g.node if isinstance(g, TensorValue) else None for g in gradients])
    kept = [n for n in read if n.graph is forward.nodes]
    beginning, taken = forward.close([*(r.node for r in results), *kept])
    around = list(dict.fromkeys([*taken, *(n for n in read if n.graph is not forward.nodes)]))
    places = [("kept", kept.index(n)) if n in kept else ("around", around.index(n)) for n in read]
    made = Graphs(
        beginning, ending, tuple(map(around.index, taken)), tuple(places), tuple(n in saved for n in read),
        len(results), several, tuple(k for k, r in enumerate(results) if r in constant),
    )  # fmt: skip
    return FunctionGraphs(made, around, [n.meta.get("fake") for n in read])


def _separable(forward: Region, inputs: list[Value], results: list[TensorValue]) -> bool:
    """Do the results have no history but the function's, and all the same inputs?"""
    makers = makers_of(forward.nodes.nodes)
    if not _computes(forward, random=True):
        return False
    if not all(made_inside(r.node, makers) for r in results):  # a view of an input has the function's own history
        return False
    same_inputs = len({_computed_from(r.node, inputs) for r in results}) <= 1
    return same_inputs  # a backward gives zeros where a graph gives None


def _computed_from(result: Any, inputs: list[Value]) -> frozenset[Any]:
    """The differentiated inputs that the result depends on."""
    wanted = {v.node for v in inputs if isinstance(v, TensorValue) and v.fake.requires_grad}
    seen, todo = {result}, [result]
    while todo:
        for node in todo.pop().all_input_nodes:
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return frozenset(wanted & seen)


def _traced(
    s: Session, region: Region, cls: Value, inputs: list[Value], results: list, context: ObjectValue
) -> list[Value]:
    """The gradient of each input."""
    context.attrs["saved_tensors"] = TupleValue(_saved(s, context))
    with region:
        given = [region.placeholder(_gradient(r.fake), "gradient") for r in results]
        found = s.get_attr(cls, "backward").call(s, [context, *given], {})
        region.refuse_changes(f"{cls.describe()}.backward")
    gradients = found.all(s) if isinstance(found, TupleValue) else [found]
    gradients, more = gradients[: len(inputs)], gradients[len(inputs) :]
    wrong = [g for g in gradients if not is_singleton(g, None) and not isinstance(g, TensorValue)]
    if wrong or len(gradients) < len(inputs) or not all(is_singleton(g, None) for g in more):
        raise Unsupported("autograd-function", f"{cls.describe()}.backward gives something else than gradients")
    return gradients


def _gradient(result: torch.Tensor) -> torch.Tensor:
    return torch.empty(result.size(), dtype=result.dtype, device=result.device)


def _saved(s: Session, context: ObjectValue) -> list[Value]:
    found = context.attrs.get("to_save")
    return found.all(s) if isinstance(found, SequenceValue) else []


def _computes(region: Region, random: bool) -> bool:
    """Does it change nothing but what it has made itself? `random`: may it draw?"""
    makers = makers_of(region.nodes.nodes)
    calls = [n for n in region.nodes.nodes if n.op.startswith("call")]
    drawing = [n for n in calls if n.meta.get("random")]
    quiet = [n for n in calls if is_collective(n) or n in drawing and not n.meta.get("mutates")]
    changing = [n for n in calls if impure(n) and n not in quiet]
    if any(map(steers, calls)) or drawing and not random:
        return False
    return all(harmless(n, makers) for n in changing)
