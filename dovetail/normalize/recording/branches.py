"""A branch of a captured graph. What it writes to becomes one more result, written back outside.

    cond(%p, f, g, [%x], [%x, %y])   ->   %c = dovetail.cond(%p, [%x], [%x, %y]);  %r = %c[0]
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.ir.aten import AtenGraph, Subprogram, output_of, results_of
from dovetail.normalize.recording.recorder import AtenRecorder
from dovetail.normalize.recording.subgraphs import Record, call_node, inner, refused
from dovetail.ops.calls import higher_order
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.tensor import run

aten = torch.ops.aten


def cond(recorder: AtenRecorder, record: Record, pred: Any, true: Any, false: Any, yes: Any, no: Any) -> list:
    lifted = [list(yes), list(no)]
    graphs = [inner(recorder, record, m, t) for m, t in zip((true, false), lifted, strict=True)]
    written: dict[int, Any] = {id(t[k]): t[k] for g, t in zip(graphs, lifted, strict=True) for k, _ in g.mutated}
    _check_alone(recorder, list(written.values()), [*lifted[0], *lifted[1]])
    graphs = [_with_written(g, t, list(written.values())) for g, t in zip(graphs, lifted, strict=True)]
    call = Subprogram("cond", tuple(graphs), higher_order.choose)
    results = call_node(recorder, call, (pred, *lifted), results_of(graphs[0]))
    count = len(results) - len(written)
    for tensor, value in zip(written.values(), results[count:], strict=True):
        recorder.write(tensor, recorder.node_of(recorder.handle(value)))
    return results[:count]


def _check_alone(recorder: AtenRecorder, written: list, tensors: list) -> None:
    bases = {id(t): recorder.handle(t).base for t in tensors if isinstance(t, torch.Tensor)}
    for target in written:
        if any(base is bases[id(target)] for other, base in bases.items() if other != id(target)):
            raise refused(recorder, "a branch writes to a tensor that shares memory with another one that it uses")


def _with_written(graph: AtenGraph, tensors: list, written: list) -> AtenGraph:
    """The same graph that writes nothing and gives the values of `written` last; `tensors` grows by what it lacks."""
    if not written:
        return graph
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder" and n.name not in graph.constants]
    values = dict(graph.mutated)
    end = output_of(graph.graph)
    results = list(end.args[0])  # type: ignore[arg-type]
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
