"""One-line checks: what lowering makes of a function, evaluated, must be what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import torch

from dovetail.ir.aten import AtenGraph
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import LibraryCall, Program
from dovetail.ir.spec import verify
from dovetail.lower import lower
from dovetail.options import Options
from tests.ops.record import record

#: Relative and absolute differences allowed: a few units in the last place, rounded twice for half types.
TOLERANCES = {
    torch.float64: (1e-12, 1e-12), torch.float32: (4e-6, 4e-6),
    torch.bfloat16: (2e-2, 1e-2), torch.float16: (3e-3, 1e-3),
}


def lowered(fn: Callable[..., Any], *inputs: torch.Tensor) -> Program:
    """The program of `fn`."""
    program = lower(record(fn, inputs)[0], Options())
    verify(program)
    return program


def check(fn: Callable[..., Any], *inputs: torch.Tensor, loops: bool | None = None) -> Program:
    """Compares dtype, sizes, strides and values; with `loops`, demands that no library is called (or that one is)."""
    graph, expected = record(fn, inputs)
    program = lower(graph, Options())
    verify(program)
    calls = [str(item.operator) for item in program.items if isinstance(item, LibraryCall)]
    if loops is not None:
        assert bool(calls) is not loops, f"library calls: {calls}"
    got = evaluate(program, inputs)
    assert len(got) == len(expected)
    for mine, eager in zip(got, expected, strict=True):
        same(mine, eager)
    return program


def check_operator(operator: Any, *args: Any) -> Program:
    """The same for one operator as it is, however eager itself would take it apart."""
    graph = torch.fx.Graph()
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    nodes = {}
    for k, tensor in enumerate(tensors):
        nodes[id(tensor)] = graph.placeholder(f"p{k}")
        nodes[id(tensor)].meta["val"] = tensor
    node = graph.call_function(operator, tuple(nodes.get(id(a), a) for a in args))
    eager = node.meta["val"] = operator(*args)
    results = eager if isinstance(eager, (tuple, list)) else (eager,)
    picked = [graph.call_function(getitem, (node, k)) for k in range(len(results))]
    graph.output(tuple(picked) if results is eager else (node,))
    program = lower(AtenGraph(graph), Options())
    verify(program)
    assert not any(isinstance(item, LibraryCall) for item in program.items)
    for mine, theirs in zip(evaluate(program, tensors), results, strict=True):
        same(mine, theirs)
    return program


def same(mine: torch.Tensor, eager: torch.Tensor) -> None:
    """Equal in everything that a caller can see."""
    assert mine.dtype is eager.dtype and mine.shape == eager.shape
    assert mine.numel() == 0 or mine.stride() == eager.stride(), f"strides {mine.stride()}, eager's {eager.stride()}"
    relative, absolute = TOLERANCES.get(eager.dtype, (0, 0))
    torch.testing.assert_close(mine, eager, rtol=relative, atol=absolute, equal_nan=True)
