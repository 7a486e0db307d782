"""torch.func inside the region.

The function is traced while PyTorch's own transform runs on fakes, so that it sees the shapes that it would see
(without the dimension that vmap maps over, for one); the node runs the transform again, on the graph.

    torch.vmap(f, in_dims=1)(x)    ->    vmap(f_0, [0], {"in_dims": 1, ...}, (x,), {}, lifted)
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail.capture.higher_order import pytrees
from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.tables.known_callables import CLOSURES, known
from dovetail.capture.tensors.operations import run_native
from dovetail.capture.values.base import Args, Kwargs, Session, Value
from dovetail.capture.values.callables import FunctionValue
from dovetail.ops.calls import higher_order


class Traced:
    """The function that a transform is given while capturing: traced at its first call, run as a graph at others.

    `pure`: what to call it when it may run more than once and so must change nothing.
    """

    def __init__(self, s: Session, function: Value, name: str, pure: str = "") -> None:
        self.s, self.function, self.region, self.pure = s, function, Region(s, name), pure
        s.modes.changed.add("grad_mode")  # transforms turn it on and off
        self.given: list[int] = []
        self.module: Any = None  # a node, once it is traced
        self.lifted: list[torch.fx.Node] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.module is not None:
            graph = self.region.outer[1][self.module.target]
            fakes = [n.meta["fake"] for n in self.lifted]
            return higher_order.closed(graph, self.given, fakes)(*args, **kwargs)
        with self.region as region:
            values: Any = pytrees.inside(region, args)
            named: Any = pytrees.inside(region, kwargs)
            leaves = pytree.tree_leaves((args, kwargs))
            mine = list(self.region.nodes.nodes)
            self.given = [self._position(node, leaves) for node in mine]
            result = self.function.call(self.s, values.all(self.s), {k.native(): v for k, v in named.pairs(self.s)})
            if self.pure:
                region.refuse_changes(self.pure)
            output, fakes = pytrees.pair(self.s, result)
            leaves, structured = pytree.tree_flatten(output)
            self.module, self.lifted = region.finish(leaves)
            region.outer[1][self.module.target].structure = structured
        return fakes

    def _position(self, node: torch.fx.Node, leaves: list) -> int:
        return next(k for k, leaf in enumerate(leaves) if leaf is node.meta["fake"])


def transformed(
    s: Session, transform: Any, function: Value, settings: dict[str, Any], args: Args, kwargs: Kwargs
) -> Value:
    """A node that calls `transform(function, **settings)(*args, **kwargs)`."""
    target = higher_order.TRANSFORMS[transform]
    traced = Traced(s, function, _name(function, target))

    def run(*fakes: Any, **named: Any) -> Any:
        return transform(traced, **settings)(*fakes, **named)

    return record(s, target, run, traced, settings, args, kwargs)


def immediate(
    s: Session, transform: Any, function: Value, settings: dict[str, Any], args: Args, pure: str = ""
) -> Value:
    """A node that calls `transform(function, *args, **settings)`."""
    target = higher_order.IMMEDIATE[transform]
    traced = Traced(s, function, _name(function, target), pure)

    def run(*fakes: Any) -> Any:
        return transform(traced, *fakes, **settings)

    return record(s, target, run, traced, settings, args, {})


def record(
    s: Session, target: Any, run: Callable[..., Any], traced: Traced, settings: dict[str, Any], args: Args,
    kwargs: Kwargs,
) -> Value:  # fmt: skip
    """Run the transform on fakes, then add its node."""
    given, named, fakes, fake_kwargs = pytrees.pairs(s, args, kwargs)
    native = run_native(s, run, fakes, fake_kwargs)
    assert traced.module is not None, f"{target.__name__} did not call its function"
    node = s.graph.create_node(
        "call_function", target, (traced.module, traced.given, settings, given, named, traced.lifted)
    )
    node.meta.update(stack=s.stack(), mutates=traced.region.impure)
    pytrees.outside(s, native)
    return pytrees.result(s, node, native)


def _name(function: Value, target: Any) -> str:
    name = getattr(function, "name", "") if isinstance(function, FunctionValue) else ""
    return name if name.isidentifier() else f"{target.__name__}_body"


# ---------------------------------------------------------------- the functions that transforms return


def _closure(transform: Any, code: types.CodeType) -> None:
    """Calls of what `transform(func, ...)` returned, wherever that was done: its free variables say how."""
    names = [n for n in inspect.signature(transform).parameters if n != "func"]

    def handler(s: Session, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        free: dict[str, Any] = {n: c.load(s) for n, c in zip(code.co_freevars, function.closure, strict=True)}
        settings = {n: pytrees.pair(s, free[n])[1] for n in names if n in free}
        return transformed(s, transform, free["func"], settings, args, kwargs)

    CLOSURES[id(code)] = handler


for _transform in higher_order.TRANSFORMS:
    for _code in _transform.__code__.co_consts:
        if isinstance(_code, types.CodeType) and "func" in _code.co_freevars:
            _closure(_transform, _code)


def keyword(kwargs: Kwargs, name: str, default: bool = False) -> bool:
    """An argument that only a keyword gives."""
    return kwargs[name].native() if name in kwargs else default


@known(torch.func.vjp)
def _vjp(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """The second result is a function of the graph's, called by nodes of its own."""
    return immediate(s, torch.func.vjp, args[0], {"has_aux": keyword(kwargs, "has_aux")}, args[1:])


@known(torch.func.linearize)
def _linearize(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """The second result runs the function again, which therefore must change nothing."""
    result: Any = immediate(s, higher_order.linearize, args[0], {}, args[1:], "the function of linearize")
    if any(t.requires_grad for t in pytree.tree_leaves(result.at(s, 0).node.meta["fake"])):
        return s.unsupported("linearize-gradients", "linearize cuts gradients, and one of its inputs requires grad")
    return result


@known(torch.func.jvp)
def _jvp(s: Session, args: Args, kwargs: Kwargs) -> Value:
    names = ("func", "primals", "tangents")
    given = [*args, *(kwargs[n] for n in names[len(args) :])]
    settings = {n: keyword(kwargs, n) for n in ("strict", "has_aux")}
    return immediate(s, torch.func.jvp, given[0], settings, given[1:3])
