"""`while_loop`, `scan` and `map` as nodes with graphs of their own: see `branches.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.higher_order.bodies import Body, differ, node
from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Kwargs, Session, Value
from dovetail.capture.values.tensor import TensorValue
from dovetail.ops.calls import higher_order
from dovetail.ops.fake import FakeTensor
from dovetail.ops.fake.rules.layout import contiguous

OPERATORS = torch.ops.higher_order


def _fresh(s: Session, region: Region, leaves: list, what: str, rows: int = 0) -> list[TensorValue]:
    """Parameters with the metadata of tensors, or of their rows: row-major, whatever those are."""
    out: list[TensorValue] = []
    for value in leaves:
        if not isinstance(value, TensorValue):
            s.unsupported("loop-over-numbers", f"{what} carries {value.describe()}, which is no tensor")
        fake = value.fake
        shape, strides = tuple(fake.shape)[rows:], fake.stride()[rows:]
        if not rows:
            strides = contiguous(shape)
        grad = torch.is_grad_enabled() and (fake.is_floating_point() or fake.is_complex())
        made: torch.Tensor = FakeTensor(shape, strides, fake.dtype, fake.device)
        around = (n.meta.get("fake") for n in s.root.nodes)
        if grad and (fake.requires_grad or any(isinstance(p, torch.Tensor) and p.requires_grad for p in around)):
            made = made.requires_grad_().view_as(made)
        out.append(region.placeholder(made, f"carried_{len(out)}" if not rows else f"row_{len(out)}"))
    return out


@known(OPERATORS.while_loop)
def _while_loop(s: Session, args: Args, kwargs: Kwargs) -> Value:
    test, step, carried, extra = [*args, *kwargs.values()]
    first, more = list[Any](s.unpack(carried)), list(s.unpack(extra))
    what = "the function of torch.while_loop"

    def call(function: Value) -> Callable[[Region], Value]:
        return lambda region: function.call(s, [*_fresh(s, region, first, what), *more], {})

    check = Body(s, "loop_condition", what, call(test))
    body = Body(s, "loop_body", what, call(step))
    if len(check.leaves) != 1 or not isinstance(check.leaves[0], torch.Tensor) or check.leaves[0].numel() != 1:
        s.unsupported("loop-condition", "the condition of torch.while_loop does not depend on a tensor")
    differ(s, "loop-carries", "the start of torch.while_loop", [v.fake for v in first], "its body", body.leaves)
    body.lay_out(s)
    for made in (check, body):
        made.finish(s)
    arguments = (check.graph, body.graph, [v.node for v in first], check.lifted, body.lifted)
    return node(s, higher_order.while_loop, arguments, body.leaves, body.spec, check, body)


@known(OPERATORS.scan)
def _scan(s: Session, args: Args, kwargs: Kwargs) -> Value:
    step, init, xs, extra = [*args, *kwargs.values()]
    return _scanned(s, step, list(s.unpack(init)), xs, extra, "the function of scan")


def _scanned(s: Session, step: Value, first: list[Any], xs: Value, extra: Value, what: str) -> Value:
    rows, more = list[Any](s.unpack(xs)), list(s.unpack(extra))

    def call(region: Region) -> Value:
        carried, row = _fresh(s, region, first, what), _fresh(s, region, rows, what, rows=1)
        return step.call(s, [*carried, *row, *more], {})

    body = Body(s, "scan_body", what, call)
    count = len(first)
    differ(s, "loop-carries", "the start of scan", [v.fake for v in first], "its body", body.leaves[:count])
    body.lay_out(s)
    body.finish(s)
    length = rows[0].fake.shape[0]
    fakes = [*body.leaves[:count], *(_stacked(t, length) for t in body.leaves[count:])]
    arguments = (body.graph, count, [v.node for v in first], [v.node for v in rows], body.lifted)
    return node(s, higher_order.scan, arguments, fakes, body.spec, body)


def _stacked(fake: Any, length: Any) -> Any:
    return fake.unsqueeze(0).repeat(length, *[1] * fake.dim()) if isinstance(fake, torch.Tensor) else fake


@known(OPERATORS.map_impl)
def _map(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """A scan that carries nothing."""
    function, xs, extra = [*args, *kwargs.values()]
    return _scanned(s, function, [], xs, extra, "the function of map")
