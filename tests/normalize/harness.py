"""Compare a normalized program with eager: values, writes to inputs, strides and shared memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph, results_of
from dovetail.normalize import normalize
from dovetail.normalize.interpret import interpreter
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake import to_fake
from dovetail.options import Options
from dovetail.runtime.call.plan import CallPlan
from dovetail.runtime.call.plan import load as load_call


def graph_of(fn: Callable[..., Any], count: int) -> torch.fx.GraphModule:
    """A graph with one node that calls `fn` on its inputs."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{k}") for k in range(count)]
    graph.output(graph.call_function(fn, tuple(inputs)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def functional(fn: Callable[..., Any], *args: torch.Tensor, options: Options | None = None) -> AtenGraph:
    with torch.no_grad():
        return normalize(graph_of(fn, len(args)), [to_fake(a) for a in args], options or Options())


def flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [leaf for item in result for leaf in flat(item)]
    return [result]


def outputs(aten: AtenGraph) -> Callable[..., Any]:
    """The graph, run operator by operator, with what is made of its results."""
    plan = CallPlan(returned=aten.returned, results=len(results_of(aten)), checks=True, grad=torch.is_grad_enabled())
    return load_call(plan, interpreter(aten), interpreter(aten))[0]


def clones(args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Copies with the same strides and offset, in memory of their own."""
    return [copy.deepcopy(a) for a in args]


def check(fn: Callable[..., Any], *args: torch.Tensor, exact: bool = True) -> AtenGraph:
    """Run both and compare everything that a caller could see; gives the graph."""
    aten = functional(fn, *args)
    for node in aten.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            assert not facts(node.target).written, f"{node.target} mutates"
    theirs, ours = clones(args), clones(args)
    with torch.no_grad():
        torch.manual_seed(0)
        expected = flat(fn(*theirs))
        after = torch.randint(1 << 30, (1,))
        torch.manual_seed(0)
        found = flat(outputs(aten)(*ours))
        assert torch.equal(after, torch.randint(1 << 30, (1,))), "the random generator ended elsewhere"
    assert len(expected) == len(found)
    for e, f in zip([*expected, *theirs], [*found, *ours], strict=True):
        same(e, f, exact)
    assert sharing(expected, theirs) == sharing(found, ours)
    return aten


def same(expected: Any, found: Any, exact: bool) -> None:
    if not isinstance(expected, torch.Tensor):
        assert expected == found
        return
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found, expected, equal_nan=True, check_stride=True, **tolerance)


def sharing(outputs: list[Any], inputs: list[torch.Tensor]) -> list[Any]:
    """For each output: which earlier tensor it is, which it shares memory with and how far apart."""
    found: list[Any] = []
    earlier: list[torch.Tensor] = list(inputs)
    for out in outputs:
        if not isinstance(out, torch.Tensor):
            continue
        identical = next((k for k, t in enumerate(earlier) if t is out), None)
        overlapping = None
        if out.numel():
            for k, t in enumerate(earlier):
                if t.numel() and t.untyped_storage().data_ptr() == out.untyped_storage().data_ptr():
                    overlapping = (k, out.data_ptr() - t.data_ptr())
                    break
        found.append((identical, overlapping))
        earlier.append(out)
    return found
