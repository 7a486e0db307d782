"""From a graph's results to what the caller gets: views are made of the real tensors, version counters say what eager's
would.

Before:  results (y,)        After:  (y, y[0], x.detach())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir.aten import AtenGraph, Returned, ViewStep
from dovetail.ir.checks import CheckFailed
from dovetail.runtime.program import LEFT
from dovetail.runtime.sizes import at_call

Call = Callable[..., Any]
_SET = torch._C._autograd._unsafe_set_version_counter
_ADVANCE = torch._C._increment_version


def recounted(call: Call, graph: AtenGraph, known: bool) -> Call:
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


def handed_out(
    call: Call, eager: Call, returned: Sequence[Returned], rewritten: Sequence[tuple[int, int]],
    fakes: Sequence[Any] = (), like: Sequence[Any] = (),
) -> Call:  # fmt: skip
    """A callable of the graph's inputs, which look like `fakes`, that gives its outputs; `call` gives results, which
    look like `like`.

    `rewritten`: see JointGraph. `eager` does the same as the whole, where an index turns out to be out of bounds.
    """
    if not rewritten and as_they_are(returned):
        return _cut(call, eager, len(returned))
    order = _order(returned)
    plans = [(k, _origin(returned[k], fakes), returned[k], _made(returned[k], fakes, like)) for k in order]
    count, given = len(plans), sum(each.given for each in returned)

    def finished(*inputs: Any) -> Any:
        try:
            results = call(*inputs)
        except CheckFailed:
            if eager is LEFT:
                raise
            return eager(*inputs)
        for k, position in rewritten:
            inputs[k].copy_(results[position])
        outputs: list[Any] = [None] * count
        for k, origin, each, replay in plans:
            made = origin(each.value, inputs, results, outputs)
            outputs[k] = made = made if replay is None else replay(made, inputs, results)
            if each.version is not None:
                _SET((made,), (each.version,))
        return tuple(outputs[:given])

    return finished


def as_they_are(returned: Sequence[Returned]) -> bool:
    """Are the outputs the first results?"""
    return all(r.origin == "result" and r.value == k and not r.steps for k, r in enumerate(returned))


def _cut(call: Call, eager: Call, count: int) -> Call:
    def plain(*inputs: Any) -> Any:
        try:
            return call(*inputs)[:count]
        except CheckFailed:
            if eager is LEFT:
                raise
            return eager(*inputs)

    return plain


def _order(returned: Sequence[Returned]) -> list[int]:
    """Positions of outputs, each after the one that it is made of."""
    order: list[int] = []

    def place(k: int) -> None:
        if k not in order:
            if returned[k].origin == "output":
                place(returned[k].value)
            order.append(k)

    for k in range(len(returned)):
        place(k)
    return order


_ORIGINS: dict[str, Call] = {
    "result": lambda value, inputs, results, outputs: results[value],
    "input": lambda value, inputs, results, outputs: inputs[value],
    "output": lambda value, inputs, results, outputs: outputs[value],
    "object": lambda value, inputs, results, outputs: value,
}


def _origin(each: Returned, fakes: Sequence[Any]) -> Call:
    now = at_call(each.value, fakes) if each.origin == "object" else None
    return _ORIGINS[each.origin] if now is None else lambda value, inputs, results, outputs: now(inputs, results)


def _made(each: Returned, fakes: Sequence[Any], like: Sequence[Any]) -> Call | None:
    """The output, made of its origin. PyTorch gives a view another history when it is older than the last write."""
    replay, late = _replay(each.steps, fakes, like), each.late
    if replay is None or not late:
        return replay

    def earlier(value: Any, inputs: Any, results: Any) -> Any:
        version = value._version
        _SET((value,), (max(version - late, 0),))
        try:
            return replay(value, inputs, results)
        finally:
            _SET((value,), (version,))

    return earlier


def _replay(steps: Sequence[ViewStep], fakes: Sequence[Any], like: Sequence[Any]) -> Call | None:
    """The view operators, one after the other, in the grad mode that each was made in."""
    if not steps:
        return None
    now = at_call([(step.args, dict(step.kwargs)) for step in steps], fakes, like)
    if now is not None:
        return _replay_at(steps, now)
    ambient = torch.is_grad_enabled()
    plain = all(step.grad == ambient for step in steps)

    def replay(value: Any, inputs: Any, results: Any) -> Any:
        for step in steps:
            value = step.operator(value, *step.args, **step.kwargs)
            if step.index is not None:
                value = value[step.index]
        return value

    def in_modes(value: Any, inputs: Any, results: Any) -> Any:
        for step in steps:
            with torch.set_grad_enabled(step.grad):
                value = step.operator(value, *step.args, **step.kwargs)
            if step.index is not None:
                value = value[step.index]
        return value

    return replay if plain else in_modes


def _replay_at(steps: Sequence[ViewStep], now: Callable[[Any, Any], Any]) -> Call:
    """The same with arguments that depend on sizes."""

    def replay(value: Any, inputs: Any, results: Any) -> Any:
        for step, (args, kwargs) in zip(steps, now(inputs, results), strict=True):
            with torch.set_grad_enabled(step.grad):
                value = step.operator(value, *args, **kwargs)
            if step.index is not None:
                value = value[step.index]
        return value

    return replay
