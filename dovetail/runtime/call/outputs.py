"""From a graph's results to what the caller gets: views are made of the real tensors, version counters say what eager's
would.

Before:  results (y,)        After:  (y, y[0], x.detach())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir.aten import AtenGraph, Returned
from dovetail.ir.checks import CheckFailed
from dovetail.runtime.call.program import LEFT
from dovetail.runtime.call.view_replay import compile_output_builder

Call = Callable[..., Any]
_SET = torch._C._autograd._unsafe_set_version_counter
_ADVANCE = torch._C._increment_version


def sync_version_counters(call: Call, graph: AtenGraph, known: bool) -> Call:
    """`call`, after which the version counters of its results and of what it wrote to are eager's.

    `known`: those of its results are 0.
    """
    results, written = [c for c in graph.counted if c[1] or not known], graph.recounted
    if not results and not written:
        return call
    constants = tuple(graph.constants.values())
    fewer = [(k, extra) for k, extra in written if extra < 0]
    rounds = [[k for k, extra in written if extra > n] for n in range(max([0, *(extra for _, extra in written)]))]

    def counting(*inputs: Any) -> Any:
        found = list(call(*inputs))
        given = (*inputs, *constants)
        for places in rounds:
            _ADVANCE([given[k] for k in places])
        for k, extra in fewer:  # one by one: two inputs may share a counter
            advance(given[k], extra)
        for k, version in results:
            found[k] = _at(found[k], version)
        return tuple(found)

    return counting


def _at(tensor: torch.Tensor, version: int) -> torch.Tensor:
    """The tensor, its counter set. A view is made again: when the counter comes to where it was, it misses a write."""
    before = tensor._version
    _SET((tensor,), (version,))
    return torch.ops.aten.alias.default(tensor) if before > version and tensor._is_view() else tensor


def advance(tensor: torch.Tensor, extra: int) -> None:
    _SET((tensor,), (tensor._version + extra,))


def build_outputs(
    call: Call, eager: Call, returned: Sequence[Returned], rewritten: Sequence[tuple[int, int]],
    fakes: Sequence[Any] = (), like: Sequence[Any] = (), watch: Callable[[Any, Any, Any], None] | None = None,
) -> Call:  # fmt: skip
    """A callable of the graph's inputs, which look like `fakes`, that gives its outputs; `call` gives results, which
    look like `like`.

    `rewritten`: see JointGraph. `eager` does the same as the whole, where an index turns out to be out of bounds.
    `watch` is told inputs, results and outputs.
    """
    if not rewritten and as_they_are(returned):
        return first_outputs(call, eager, len(returned), watch)
    outputs = compile_output_builder(returned, fakes, like)

    def finished(*inputs: Any) -> Any:
        try:
            results = call(*inputs)
        except CheckFailed:
            if eager is LEFT:
                raise
            return eager(*inputs)
        for k, position in rewritten:
            inputs[k].copy_(results[position])
        given = outputs(inputs, results)
        if watch is not None:
            watch(inputs, results, given)
        return given

    return finished


def as_they_are(returned: Sequence[Returned]) -> bool:
    """Are the outputs the first results?"""
    return all(r.origin == "result" and r.value == k and not r.steps for k, r in enumerate(returned))


def first_outputs(call: Call, eager: Call, count: int, watch: Callable[[Any, Any, Any], None] | None) -> Call:
    def plain(*inputs: Any) -> Any:
        try:
            results = call(*inputs)
        except CheckFailed:
            if eager is LEFT:
                raise
            return eager(*inputs)
        if watch is not None:
            watch(inputs, results, results)
        return results[:count]

    return plain
