"""Branches and loops of a captured graph as operators that run graphs of their own.

    cond(%p, f, g, [%x], [%x, %y])   ->   %c = dovetail.cond(%p, [%x], [%x, %y]);  %r = %c[0]

Their graphs are recorded like any other. What a branch writes to becomes one more result, written back outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.errors import Unsupported
from dovetail.ir.aten import AtenGraph, Subprogram
from dovetail.ir.checks import assumed
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.ops.calls import higher_order
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.symbolic.size_questions import dim_or_node
from dovetail.ops.fake.tensor import run

aten = torch.ops.aten
Record = Callable[[Any, Sequence[Any]], AtenGraph]


def _inner(recorder: AtenRecorder, record: Record, module: Any, tensors: Sequence[Any]) -> AtenGraph:
    """The graph of `module` for such tensors as the nodes of `tensors` give."""
    fakes = [
        recorder.node_of(recorder.handle(t)).meta["val"] if isinstance(t, torch.Tensor) else t for t in tensors
    ]
    with _disable_current_modes():  # else this graph's operators would be recorded outside as well
        return record(module, fakes)


def _outputs(graph: AtenGraph) -> list:
    end = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    return list(end.args[0])


def _vals(graph: AtenGraph) -> list:
    return [n.meta["val"] if isinstance(n, torch.fx.Node) else n for n in _outputs(graph)]


def _call(recorder: AtenRecorder, call: Subprogram, args: tuple, vals: list) -> list:
    """A node for the call; its results as tensors of the program."""

    def node(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return recorder.node_of(recorder.handle(value))
        return [node(v) for v in value] if isinstance(value, (list, tuple)) else dim_or_node(value)

    results = [to_fake(v) if isinstance(v, torch.Tensor) else v for v in vals]
    recorder.bind(recorder.create(call, tuple(map(node, args)), {}, results), results)
    return results


# ---------------------------------------------------------------- cond


def _cond(recorder: AtenRecorder, record: Record, pred: Any, true: Any, false: Any, yes: Any, no: Any) -> list:
    lifted = [list(yes), list(no)]
    graphs = [_inner(recorder, record, m, t) for m, t in zip((true, false), lifted, strict=True)]
    written: dict[int, Any] = {id(t[k]): t[k] for g, t in zip(graphs, lifted, strict=True) for k, _ in g.mutated}
    _check_alone(recorder, list(written.values()), [*lifted[0], *lifted[1]])
    graphs = [_with_written(g, t, list(written.values())) for g, t in zip(graphs, lifted, strict=True)]
    call = Subprogram("cond", tuple(graphs), higher_order.choose)
    results = _call(recorder, call, (pred, *lifted), _vals(graphs[0]))
    count = len(results) - len(written)
    for tensor, value in zip(written.values(), results[count:], strict=True):
        recorder.write(tensor, recorder.node_of(recorder.handle(value)))
    return results[:count]


def _check_alone(recorder: AtenRecorder, written: list, tensors: list) -> None:
    bases = {id(t): recorder.handle(t).base for t in tensors if isinstance(t, torch.Tensor)}
    for target in written:
        if any(base is bases[id(target)] for other, base in bases.items() if other != id(target)):
            raise _refused("a branch writes to a tensor that shares memory with another one that it uses")


def _refused(reason: str) -> Unsupported:
    return Unsupported("mutation-in-subgraph", reason, "Return the new value and write it after the call.")


def _with_written(graph: AtenGraph, tensors: list, written: list) -> AtenGraph:
    """The same graph that writes nothing and gives the values of `written` last; `tensors` grows by what it lacks."""
    if not written:
        return graph
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder" and n.name not in graph.constants]
    values = dict(graph.mutated)
    end = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    results = list(end.args[0])
    for tensor in written:
        position = next((k for k, t in enumerate(tensors) if t is tensor), None)
        if position is None:
            with graph.graph.inserting_after(inputs[-1] if inputs else graph.graph._root):
                inputs.append(graph.graph.placeholder(f"unchanged_{len(tensors)}"))
            inputs[-1].meta["val"] = to_fake(tensor)
            tensors.append(tensor)
            position = len(tensors) - 1
        value = values.get(position, inputs[position])
        with graph.graph.inserting_before(end):
            copy = graph.graph.call_function(aten.clone.default, (value,))
        with _disable_current_modes():
            copy.meta["val"] = run(aten.clone.default, (value.meta["val"],), {})
        results.append(copy)
    end.args = (tuple(results),)
    return AtenGraph(graph.graph, (), graph.constants)


# ---------------------------------------------------------------- loops


def _check_reads_only(graph: AtenGraph, private: int, what: str) -> None:
    """The first `private` inputs are the loop's own."""
    if any(position >= private for position, _ in graph.mutated):
        raise _refused(f"{what} writes to a tensor that exists outside of it")


def _while_loop(
    recorder: AtenRecorder, record: Record, test: Any, body: Any, carried: Any, test_lifted: Any, body_lifted: Any
) -> list:
    start = [t.clone(memory_format=torch.contiguous_format) for t in carried]
    graphs = (
        _inner(recorder, record, test, [*start, *test_lifted]), _inner(recorder, record, body, [*start, *body_lifted])
    )  # fmt: skip
    _check_reads_only(graphs[0], 0, "the condition of torch.while_loop")
    _check_reads_only(graphs[1], len(start), "the body of torch.while_loop")
    loop = Subprogram("while_loop", graphs, higher_order.loop)
    return _call(recorder, loop, (start, test_lifted, body_lifted), _vals(graphs[1]))


def _scan(recorder: AtenRecorder, record: Record, body: Any, count: int, init: Any, xs: Any, lifted: Any) -> list:
    start = [t.clone(memory_format=torch.contiguous_format) for t in init]
    rows = [x.select(0, 0) for x in xs]
    graph = _inner(recorder, record, body, [*start, *rows, *lifted])
    _check_reads_only(graph, len(start), "the function of scan")
    vals, length = _vals(graph), xs[0].shape[0]
    vals = [*vals[:count], *(_stacked(v, length) for v in vals[count:])]
    steps = Subprogram("scan", (graph,), functools.partial(higher_order.steps, count))
    return _call(recorder, steps, (start, xs, lifted), vals)


def _stacked(val: Any, length: Any) -> Any:
    if not isinstance(val, torch.Tensor):
        return val
    with _disable_current_modes():
        return val.unsqueeze(0).repeat(length, *[1] * val.dim())


def _map(recorder: AtenRecorder, record: Record, body: Any, xs: Any, lifted: Any) -> list:
    return _scan(recorder, record, body, 0, (), xs, lifted)


#: How nodes with these targets are recorded: (recorder, record, *arguments) -> results.
def _check(recorder: AtenRecorder, record: Record, condition: Any, *_: Any) -> None:
    """`torch._check`: what follows relies on it, and the compiled graph checks it."""
    holds = condition.node.expect_true("", 0) if isinstance(condition, torch.SymBool) else condition
    if not holds:
        raise Unsupported("data-dependent-size", "torch._check states what cannot be")


CONTROL: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch._check, assumed), _check),
    higher_order.cond: _cond, higher_order.while_loop: _while_loop, higher_order.scan: _scan,
    higher_order.map_rows: _map,
}  # fmt: skip


def left_to_engine(module: torch.fx.GraphModule) -> bool:
    """Does a backward pass through the graph depend on which way it went, or run code of the user's own?"""
    return any(
        node.target in CONTROL and CONTROL[node.target] is not _check
        or isinstance(node.target, higher_order.Checkpoint)
        or isinstance(node.target, higher_order.Apply) and node.target.graphs is None
        or node.op == "get_attr" and isinstance(inner := getattr(module, node.target, None), torch.fx.GraphModule)
        and left_to_engine(inner)
        for node in module.graph.nodes
    )  # fmt: skip
