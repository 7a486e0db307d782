"""Structured control flow: cond, while_loop, scan and map as nodes with graphs of their own.

PyTorch's functions are traced down to the operator that they call with flat operands; the handlers here are those
operators'. Every graph's results own their memory, so that whoever runs it may do so in any way:

    torch.cond(p, f, g, (x,))   ->   cond(p, f_0, g_0, f's tensors, g's tensors)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail.capture.higher_order import pytrees
from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import Args, Const, Kwargs, Session, Value
from dovetail.capture.values.tensor import TensorValue
from dovetail.ops.calls import higher_order
from dovetail.ops.fake import FakeTensor

OPERATORS = torch.ops.higher_order


class Body:
    """A function that may run any number of times, traced: `graph` and `lifted` go into the node."""

    def __init__(self, s: Session, name: str, what: str, call: Callable[[Region], Value]) -> None:
        self.region = Region(s, name)
        with self.region as region:
            output, _ = pytrees.pair(s, call(region))
            region.refuse_changes(what)
            leaves, self.spec = pytree.tree_flatten(output)
            self.output = [_private(s, n, region, leaves) for n in leaves]

    def finish(self, s: Session) -> None:
        pytrees.outside(s, self.leaves)
        self.graph, self.lifted = self.region.finish(self.output)

    @property
    def leaves(self) -> list:
        return [_fake(n) for n in self.output]

    def lay_out(self, s: Session, positions: list[int] | None = None) -> None:
        """Give some of the results row-major strides; by default those tensors that have others."""
        scattered = [k for k, t in enumerate(self.leaves) if isinstance(t, torch.Tensor) and not t.is_contiguous()]
        with self.region:
            for k in scattered if positions is None else positions:
                self.output[k] = _copy(s, self.output[k], memory_format=torch.contiguous_format)


def _fake(leaf: Any) -> Any:
    return leaf.meta["fake"] if isinstance(leaf, torch.fx.Node) else leaf


def _private(s: Session, leaf: Any, region: Region, leaves: list) -> Any:
    """A result that is a parameter, a view, or returned twice is returned as a copy."""
    if not isinstance(leaf, torch.fx.Node):
        return leaf
    fake = leaf.meta["fake"]
    mine = leaf.graph is region.nodes and leaf.op != "placeholder"
    if mine and not fake._is_view() and leaves.count(leaf) == 1:
        return leaf
    return _copy(s, leaf)


def _copy(s: Session, node: torch.fx.Node, **layout: Any) -> torch.fx.Node:
    made = s.graph.create_node("call_method", "clone", (node,), layout)
    made.meta.update(stack=s.stack(), fake=node.meta["fake"].clone(**layout))
    return made


def _node(s: Session, target: Any, args: tuple, flat: list, spec: Any, *bodies: Body) -> Value:
    """A node that gives a list of results, and the value that has them in their places."""
    node = s.graph.create_node("call_function", target, args)
    node.meta.update(stack=s.stack(), mutates=any(b.region.impure for b in bodies))
    results: Any = pytrees.result(s, node, flat)
    return pytrees.nest(s, pytree.tree_unflatten(results.all(s), spec))


def _facts(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else leaf


def _shown(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    return f"a tensor of {leaf.dtype} {list(leaf.shape)} on {leaf.device}"


def _differ(s: Session, code: str, first: str, one: list, second: str, other: list) -> None:
    """Refuse results that do not have the same structure and metadata."""
    if len(one) != len(other):
        s.unsupported(code, f"{first} gives {len(one)} values and {second} {len(other)}", "Return as many from both.")
    for a, b in zip(one, other):
        if _facts(a) != _facts(b):
            words = f"{first} gives {_shown(a)} where {second} gives {_shown(b)}"
            s.unsupported(code, words, "Give both the same shape, dtype and device.")


# ---------------------------------------------------------------- cond


@known(OPERATORS.cond)
def _cond(s: Session, args: Args, kwargs: Kwargs) -> Value:
    pred, true, false, operands = [*args, *kwargs.values()]
    if isinstance(pred, Const):
        return (true if pred.native() else false).call(s, s.unpack(operands), {})
    if not isinstance(pred, TensorValue) or pred.fake.numel() != 1:
        return s.throw(RuntimeError, f"Expected pred to be bool or single-element tensor, but got {pred.describe()}.")
    given = s.unpack(operands)
    yes = Body(s, "true_branch", "a branch of torch.cond", lambda region: true.call(s, list(given), {}))
    no = Body(s, "false_branch", "a branch of torch.cond", lambda region: false.call(s, list(given), {}))
    if yes.spec != no.spec:
        s.unsupported("cond-branches-differ", "the branches of torch.cond return different structures")
    _differ(s, "cond-branches-differ", "the true branch of torch.cond", yes.leaves, "the false one", no.leaves)
    other = [k for k, (a, b) in enumerate(zip(yes.leaves, no.leaves)) if _strides(a) != _strides(b)]
    for body in (yes, no):
        body.lay_out(s, other)
        body.finish(s)
    chosen = [b if _needs_grad(b) else a for a, b in zip(yes.leaves, no.leaves)]
    parts = (pred.node, yes.graph, no.graph, yes.lifted, no.lifted)
    return _node(s, higher_order.cond, parts, chosen, yes.spec, yes, no)


def _strides(leaf: Any) -> Any:
    return leaf.stride() if isinstance(leaf, torch.Tensor) else None


def _needs_grad(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


# ---------------------------------------------------------------- loops


def _fresh(s: Session, region: Region, leaves: list, what: str, rows: int = 0) -> list[TensorValue]:
    """Parameters with the metadata of tensors, or of their rows: row-major, whatever those are."""
    out: list[TensorValue] = []
    for value in leaves:
        if not isinstance(value, TensorValue):
            s.unsupported("loop-over-numbers", f"{what} carries {value.describe()}, which is no tensor")
        fake = value.fake
        shape, strides = tuple(fake.shape)[rows:], fake.stride()[rows:]
        if not rows:
            strides = _row_major(shape)
        grad = torch.is_grad_enabled() and (fake.is_floating_point() or fake.is_complex())
        made: torch.Tensor = FakeTensor(shape, strides, fake.dtype, fake.device)
        if grad and (fake.requires_grad or any(p.requires_grad for p, _ in _live(s))):
            made = made.requires_grad_().view_as(made)
        out.append(region.placeholder(made, f"carried_{len(out)}" if not rows else f"row_{len(out)}"))
    return out


def _live(s: Session) -> list:
    return [(n.meta["fake"], n) for n in s.root.nodes if isinstance(n.meta.get("fake"), torch.Tensor)]


def _row_major(shape: Any) -> tuple:
    strides: list = []
    step: Any = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step = step * max(n, 1)
    return tuple(strides)


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
    _differ(s, "loop-carries", "the start of torch.while_loop", [v.fake for v in first], "its body", body.leaves)
    body.lay_out(s)
    for made in (check, body):
        made.finish(s)
    arguments = (check.graph, body.graph, [v.node for v in first], check.lifted, body.lifted)
    return _node(s, higher_order.while_loop, arguments, body.leaves, body.spec, check, body)


@known(OPERATORS.scan)
def _scan(s: Session, args: Args, kwargs: Kwargs) -> Value:
    step, init, xs, extra = [*args, *kwargs.values()]
    first, rows, more = list[Any](s.unpack(init)), list[Any](s.unpack(xs)), list(s.unpack(extra))
    what = "the function of scan"

    def call(region: Region) -> Value:
        carried, row = _fresh(s, region, first, what), _fresh(s, region, rows, what, rows=1)
        return step.call(s, [*carried, *row, *more], {})

    body = Body(s, "scan_body", what, call)
    count = len(first)
    _differ(s, "loop-carries", "the start of scan", [v.fake for v in first], "its body", body.leaves[:count])
    body.lay_out(s)
    body.finish(s)
    length = rows[0].fake.shape[0]
    fakes = [*body.leaves[:count], *(_stacked(t, length) for t in body.leaves[count:])]
    arguments = (body.graph, count, [v.node for v in first], [v.node for v in rows], body.lifted)
    return _node(s, higher_order.scan, arguments, fakes, body.spec, body)


def _stacked(fake: Any, length: Any) -> Any:
    return fake.unsqueeze(0).repeat(length, *[1] * fake.dim()) if isinstance(fake, torch.Tensor) else fake


@known(OPERATORS.map_impl)
def _map(s: Session, args: Args, kwargs: Kwargs) -> Value:
    function, xs, extra = [*args, *kwargs.values()]
    rows, more = list[Any](s.unpack(xs)), list(s.unpack(extra))
    what = "the function of map"

    def call(region: Region) -> Value:
        return function.call(s, [*_fresh(s, region, rows, what, rows=1), *more], {})

    body = Body(s, "map_body", what, call)
    body.lay_out(s)
    body.finish(s)
    length = rows[0].fake.shape[0]
    fakes = [_stacked(t, length) for t in body.leaves]
    return _node(s, higher_order.map_rows, (body.graph, [v.node for v in rows], body.lifted), fakes, body.spec, body)
