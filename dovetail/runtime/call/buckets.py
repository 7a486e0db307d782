"""A backward pass whose gradients leave it in buckets: a node of PyTorch's graph for each.

    forward     token = Later(None, p3);  token = Later(token, p2);  y = First(token, p1)
    backward    First: the program's first part, gradient of p1    hooks of p1
                Later: its next part, gradient of p2               hooks of p2
                Later: its last part, gradient of p3               hooks of p3

PyTorch's engine accumulates gradients before it runs any other node that is ready: so what listens to a parameter, as
`DistributedDataParallel` does, hears of its gradient before the next part is computed. The pass that is under way goes
along with the gradient of the token. Where that goes nowhere, since nobody has asked for later gradients or a hook has
raised, the pass ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dovetail.ir.aten import JointGraph, Pair
from dovetail.ir.kernel import Buckets
from dovetail.runtime.call.autograd import (
    Call,
    CompiledPair,
    EagerPass,
    Layouts,
    Passing,
    backward_of,
    forward_of,
    started,
    without_autocast,
)
from dovetail.runtime.call.double_backward import is_batched, one_by_one

Steps = Callable[[list], Iterator[list]]


def differentiable(joint: JointGraph, pair: Pair, compiled: CompiledPair, buckets: Buckets) -> Call:
    """Like `autograd.differentiable`, in nodes. Backward programs give an iterator over lists, one for each bucket."""
    layouts, proven = Layouts(joint, pair), set[int]()
    steps, device = stepper(compiled, layouts.every, buckets, len(pair.depends)), layouts.all[0][0][-1]
    given = {k for bucket in buckets for k in bucket}
    needed = [k in given for k in range(len(pair.depends))]

    def computed(ctx: Any, box: list, given: list, there: int, kept: EagerPass | None) -> BackwardPass:
        instead = None if kept is None else lambda failure: kept.instead(failure, compiled.failed)
        depends = None if there == layouts.every else [bool(bits & there) for bits in pair.depends]
        return BackwardPass(steps(ctx, box, given, there), buckets, depends, instead, lambda: proven.add(there))

    forward = forward_of(joint, pair, compiled, layouts)
    backward = backward_of(pair, compiled, layouts, proven, computed, needed)

    class CompiledFunction(Passing):
        @staticmethod
        def forward(ctx: Any, inputs: Sequence[Any], token: Any, *own: Any) -> Any:
            return forward(ctx, *inputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            found = backward(ctx, *gradients)
            started = found if isinstance(found, BackwardPass) else BackwardPass(by_bucket(found, buckets), buckets)
            return _given(ctx, started, device)

    first, *later = buckets

    def call(*inputs: Any) -> Any:
        token = None
        for bucket in reversed(later):
            token = Later.apply(device, token, *[inputs[k] for k in bucket])
        return CompiledFunction.apply(inputs, token, *[inputs[k] for k in first])

    return call


class Later(Passing):
    """The node of a bucket that is not the first."""

    @staticmethod
    def forward(ctx: Any, device: torch.device, token: Any, *own: Any) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return torch.empty(0, device=device)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if gradient is None:
            return (None,) * len(ctx.needs_input_grad)
        return _given(ctx, gradient.under_way, gradient.device)


def _given(ctx: Any, under_way: BackwardPass, device: torch.device) -> tuple:
    """What a node gives: the gradients of its bucket, and the pass to the next node, if the engine will run that."""
    found = under_way.next()
    token = None
    if ctx.needs_input_grad[1]:
        token = torch.empty(0, device=device)
        token.under_way = under_way  # type: ignore[attr-defined]
    return None, token, *found


class BackwardPass:
    """One that is under way. `depends`: which inputs have a gradient, if not all. Where a step fails, `instead` gives
    the gradients of all inputs; it may be unknown. `over` is called when no step has failed."""

    def __init__(
        self, steps: Iterator[list], buckets: Buckets, depends: Sequence[bool] | None = None,
        instead: Callable[[Exception], Sequence[Any]] | None = None, over: Callable[[], Any] = bool,
    ) -> None:  # fmt: skip
        self.steps, self.left, self.depends, self.instead, self.over = steps, [*buckets], depends, instead, over

    def next(self) -> list:
        """The gradients of the next bucket."""
        found = self.step()
        bucket = self.left.pop(0)
        if not self.left:
            self.over()
        if self.depends is None:
            return found
        return [g if self.depends[k] else None for g, k in zip(found, bucket, strict=True)]

    def step(self) -> list:
        try:
            with without_autocast():
                return next(self.steps)
        except Exception as error:
            if self.instead is None:
                raise
            failure = error
        self.steps, self.over = by_bucket(self.instead(failure), self.left), bool
        self.instead = None
        return next(self.steps)


def stepper(compiled: CompiledPair, every: int, buckets: Buckets, count: int) -> Callable[..., Iterator[list]]:
    """Runs the backward program of `count` inputs for some tangents, bucket by bucket."""
    run = started(compiled, every)

    def steps(ctx: Any, box: list, given: list, there: int) -> Iterator[list]:
        if any(map(is_batched, given)):
            whole = lambda each: _whole(run(ctx, list(box), each, there), buckets, count)
            yield from by_bucket(one_by_one(whole, given), buckets)
        else:
            yield from run(ctx, box, given, there)

    return steps


def in_steps(call: Callable[[list], Sequence[Any]], buckets: Buckets) -> Steps:
    """A program that gives all gradients at its end as one that gives them in buckets."""

    def steps(box: list) -> Iterator[list]:
        yield from by_bucket(call(box), buckets)

    return steps


def by_bucket(found: Sequence[Any], buckets: Sequence[tuple[int, ...]]) -> Iterator[list]:
    """The gradients of each bucket. Nothing that has been given is kept: whoever is the only one to have a gradient may
    take it as it is."""
    waiting = [[found[k] for k in bucket] for bucket in reversed(buckets)]
    del found
    while waiting:
        yield waiting.pop()


def _whole(steps: Iterator[list], buckets: Buckets, count: int) -> tuple:
    """The gradients of all inputs."""
    found: list[Any] = [None] * count
    for bucket, gradients in zip(buckets, steps, strict=True):
        for k, gradient in zip(bucket, gradients, strict=True):
            found[k] = gradient
    return tuple(found)
