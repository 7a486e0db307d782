"""Run an AtenGraph operator by operator on real tensors: the reference for every later stage."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from dovetail.ir import dimvalues
from dovetail.ir.aten import AtenGraph, Subprogram, related, subprograms
from dovetail.ir.dims import Dim
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.symbolic.symint import dim_of, is_size
from dovetail.ops.table import callee_of

Node = torch.fx.Node
#: What the namespace of a host program has under that name: `computed` writes nothing that the caller sees.
_lasting = {"computed": math.inf}


def interpreter(aten: AtenGraph) -> Callable[..., tuple]:
    """A callable of the graph's inputs, constants left out. Writes to mutated inputs; returns the results."""
    for inner in subprograms(aten):
        inner.callables = tuple(map(interpreter, inner.graphs))
    nodes = list(aten.graph.nodes)
    last = _last_uses(aten, nodes)
    fakes = [n.meta.get("val") for n in nodes if n.op == "placeholder"]
    count = len(fakes) - len(aten.constants)
    draws = any(map(_draws, nodes))
    promised = {n: n.meta["val"] for n in nodes if _is_promised(n)}

    def computed(given: list) -> dict[Any, Any]:
        # For whoever puts it back when this raises.
        generator = torch.default_generator.get_state() if draws else None  # noqa: F841
        env: dict[Any, Any] = {}
        env[SIZES] = dimvalues.values(_measured(given, fakes))
        feed = iter(given)
        for node in nodes:
            if node.op == "placeholder":
                env[node] = next(feed)
            elif node.op == "call_function":
                result = callee_of(node.target)(*_load(node.args, env), **_load(node.kwargs, env))
                env[node] = _laid_out(result, promised[node]) if node in promised else result
            for dead in last.get(node, ()):
                del env[dead]
        return env

    def call(*inputs: Any) -> tuple:
        if len(inputs) != count:
            raise TypeError(f"the graph takes {count} inputs, {len(inputs)} given")
        given = [*inputs, *aten.constants.values()]
        return _end(aten, nodes[-1], given, computed(given))

    return call


def _is_promised(node: Node) -> bool:
    """Is its result a tensor of its own, laid out in a way that is known?"""
    made = node.args[0] if node.target is operator.getitem else node
    own = isinstance(made, Node) and isinstance(made.target, torch._ops.OpOverload) and not facts(made.target).view
    val = node.meta.get("val")
    return own and isinstance(val, torch.Tensor) and not val._has_symbolic_sizes_strides


def _laid_out(result: torch.Tensor, promised: torch.Tensor) -> torch.Tensor:
    """What a library laid out otherwise than eager's operator, as eager's: those that follow trust it."""
    strides = promised.stride()
    if result.stride() == strides or result.shape != promised.shape:
        return result
    if all(n == 1 or s == t for n, s, t in zip(result.shape, result.stride(), strides, strict=True)):
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device).copy_(result)


def _draws(node: Node) -> bool:
    """Does it draw random numbers, for all that is known?"""
    return isinstance(node.target, Subprogram) or (
        isinstance(node.target, torch._ops.OpOverload) and facts(node.target).random
    )


def _last_uses(aten: AtenGraph, nodes: list[Node]) -> dict[Node, list[Node]]:
    """What may be forgotten after each node."""
    kept = {node for _, node in aten.mutated}
    user: dict[Node, Node] = {}
    for node in nodes:
        if node.op == "call_function":
            user[node] = node
        for used in node.all_input_nodes:
            user[used] = node
    found: dict[Node, list[Node]] = {}
    for used, node in user.items():
        if used not in kept and node.op == "call_function":
            found.setdefault(node, []).append(used)
    return found


SIZES = "sizes"  # the values of symbols, among those of nodes


def _measured(given: list, fakes: list) -> Iterator[tuple[int, Dim]]:
    """What is known of the sizes of inputs."""
    for value, fake in zip(given, fakes, strict=True):
        if is_size(fake):
            yield value, dim_of(fake)
        elif isinstance(fake, torch.Tensor) and fake._has_symbolic_sizes_strides:
            yield from zip(value.shape, map(dim_of, fake.shape), strict=True)
            yield from zip(value.stride(), map(dim_of, fake.stride()), strict=True)


def _load(value: Any, env: dict[Any, Any]) -> Any:
    if isinstance(value, Node):
        return env[value]
    if is_size(value):
        return dimvalues.evaluate(dim_of(value), env[SIZES])
    if isinstance(value, (tuple, list)):
        return [_load(v, env) for v in value]
    if isinstance(value, dict):
        return {k: _load(v, env) for k, v in value.items()}
    return value


def _end(aten: AtenGraph, output: Node, given: list, env: dict[Node, Any]) -> tuple:
    """Every new value is computed by now, so writing to inputs disturbs none."""
    with torch.no_grad():
        for position, node in aten.mutated:
            given[position].copy_(env[node])
    results = _load(list(output.args[0]), env)  # type: ignore[arg-type]
    viewed = aten.viewed
    if viewed is not None:
        results = [related(v, k in viewed) if isinstance(v, torch.Tensor) else v for k, v in enumerate(results)]
    return tuple(results)
