"""Split a joint graph in two: what runs at once, and what runs when gradients arrive.

before:  %sin = sin(%x);  %exp = exp(%sin);  %a = mul(%tangent, %exp);  %cos = cos(%x);  %b = mul(%a, %cos)
         return (%exp, %b)
after:   forward(%x):                      %sin = sin(%x);  %exp = exp(%sin);  return (%exp,)
         backward(%x, %exp, %tangent):     %a = mul(%tangent, %exp);  %cos = cos(%x);  %b = mul(%a, %cos);  return (%b,)

`cut.py` chooses what is kept between them: as few bytes as possible, where only cheap operators may run again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
import torch.fx

from dovetail.autograd.cut import NUMBERS, Choice, choose
from dovetail.autograd.written_again import written_again
from dovetail.ir.aten import (
    CHECKPOINTED,
    Apart,
    AtenGraph,
    JointGraph,
    NotDifferentiable,
    Pair,
    Whole,
    output_of,
    parts_of,
)
from dovetail.ops.aten_nodes import memory_of, relu_argument
from dovetail.ops.calls.effects import has_effect
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.symbolic.symbols_in_graph import unknown_sizes
from dovetail.ops.fake.symbolic.symint import SizeNode, concrete
from dovetail.ops.own.redraw import FIRST

Node = torch.fx.Node


def partition(joint: JointGraph) -> Pair:
    """The forward and the backward graph of `joint`, which is left as it is."""
    nodes = list(joint.aten.graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder" and n.name not in joint.aten.constants][: joint.inputs]
    output = nodes[-1].args[0]
    results, gradients = output[: joint.results], output[joint.results :]
    names = {name for name, _ in joint.tangents}
    tangents = [n for n in nodes if n.op == "placeholder" and n.name in names]
    backward_nodes = _closure(nodes, tangents)
    anew = written_again(joint, inputs, backward_nodes | joint.backward)
    final = [*(g for g in gradients if isinstance(g, Node)), *anew.values()]
    needed = _ancestors(final) - anew.keys()
    written = {inputs[k] for k, _ in (*joint.aten.mutated, *joint.rewritten)}
    exposed = _exposed(nodes, [*inputs, *results], backward_nodes | joint.backward)
    choice = choose(nodes, needed, backward_nodes, final, written, exposed, _given(joint, results))
    constants = [n for n in nodes if n.name in joint.aten.constants]
    saved = (*choice.saved, *choice.copied)
    numbers = _places(inputs, lambda n: isinstance(n.meta["val"], NUMBERS) or n in anew)
    kept = _places(inputs, choice.kept.__contains__)
    given = [*(inputs[k] for k in kept), *saved, *tangents, *(inputs[k] for k in numbers)]
    again = [n for n in nodes if n in backward_nodes and n in needed and n.op == "call_function"]
    backward, sizes = _backward(joint, nodes, constants, given, [*again, *final], gradients, anew)
    counts = {inputs[k]: extra for k, extra in joint.aten.recounted}
    backward = replace(backward, recounted=_from_the_end(counts, anew, [*given, *sizes]))
    forward = _forward(joint, nodes, inputs, constants, results, choice, sizes)
    kept_names = tuple(map(attrgetter("name"), given[: len(kept) + len(saved)]))
    depends = _depends(nodes, tangents, gradients)
    return Pair(forward, backward, kept, saved, numbers, depends, len(sizes), kept_names)


def _places(inputs: list[Node], wanted: Callable[[Node], bool]) -> tuple[int, ...]:
    return tuple(k for k, node in enumerate(inputs) if wanted(node))


def _from_the_end(counts: dict[Node, int], written: Iterable[Node], given: list[Any]) -> tuple[tuple[int, int], ...]:
    """How `recounted` tells places of what a backward half writes to: there are fewer tangents before them at times."""
    return tuple((given.index(node) - len(given), counts[node]) for node in written if node in counts)


def _given(joint: JointGraph, results: Any) -> set[Node]:
    """Everything that the forward half gives, and what that is computed from."""
    changed = [node for _, node in joint.aten.mutated]
    return _ancestors(v for v in (*results, *changed) if isinstance(v, Node))


def _depends(nodes: list[Node], tangents: list[Node], gradients: Any) -> tuple[int, ...]:
    """For each gradient, the tangents that it is computed from as bits; all where it is one whatever they are.

    Raises NotDifferentiable for a tangent that none is computed from: its result requires gradients in eager, which
    with none of the inputs as its source a custom function cannot bring about.
    """
    bits = {tangent: 1 << k for k, tangent in enumerate(tangents)}
    for node in nodes:
        if node.op == "call_function":
            bits[node] = functools.reduce(operator.or_, (bits.get(n, 0) for n in node.all_input_nodes), 0)
    found = tuple(bits.get(g, 0) if isinstance(g, Node) else 0 for g in gradients)
    every = (1 << len(tangents)) - 1
    if functools.reduce(operator.or_, found, 0) != every:
        raise NotDifferentiable("a result that requires gradients has no input as its source")
    return tuple(b or every if isinstance(g, Node) else b for b, g in zip(found, gradients, strict=True))


def _exposed(nodes: list[Node], reachable: list, backward: Set[Node]) -> set[Node]:
    """Memory that the caller can write to before the backward pass and that PyTorch's own would not rely on."""
    relying = [node for node in nodes if node in backward or CHECKPOINTED in node.meta]
    relied = {memory_of(used) for node in relying for used in node.all_input_nodes}
    return {memory_of(node) for node in reachable if isinstance(node, Node)} - relied


def _closure(nodes: list[Node], roots: list[Node]) -> set[Node]:
    """Everything computed from `roots`."""
    found = set(roots)
    for node in nodes:
        if any(n in found for n in node.all_input_nodes):
            found.add(node)
    return found


def _ancestors(roots: Iterable[Node]) -> set[Node]:
    found: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


class GraphCopy:
    """A graph that grows by copies of another's nodes."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.env: dict[Node, Node] = {}

    def placeholder(self, node: Node) -> None:
        made = self.env[node] = self.graph.placeholder(node.name)
        made.meta = dict(node.meta)

    def copy(self, node: Node) -> Node:
        made = self.env[node] = self.graph.node_copy(node, self.env.__getitem__)
        made.meta = dict(node.meta)
        return made

    def output(self, values: Iterable[Any]) -> None:
        self.graph.output(tuple(self.env[v] if isinstance(v, Node) else v for v in values))


def _forward(
    joint: JointGraph, nodes: list[Node], inputs: list[Node], constants: list[Node], results: Any, choice: Choice,
    sizes: list[SizeNode],
) -> AtenGraph:  # fmt: skip
    made = GraphCopy()
    for node in (*inputs, *constants):
        made.placeholder(node)
    changed = [node for _, node in joint.aten.mutated]
    roots = [v for v in (*results, *changed, *choice.saved, *choice.copied) if isinstance(v, Node)]
    unread = [n for n in nodes if n.op == "call_function" and n not in joint.backward and has_effect(n)]
    wanted = _ancestors([*roots, *unread])
    for node in nodes:
        if node.op == "call_function" and node in wanted:
            _draw_first(made.copy(node))
    copies = []
    for node in choice.copied:  # an input that is written to: its value before
        copy = made.graph.call_function(torch.ops.aten.clone.default, (made.env[node],))
        copy.meta = dict(node.meta)
        copies.append(copy)
    values: list = [made.env[v] if isinstance(v, Node) else v for v in (*results, *choice.saved)]
    made.graph.output((*values, *copies, *sizes))  # type: ignore[arg-type]
    mutated = tuple((k, made.env[node]) for k, node in joint.aten.mutated)
    used = {n.name: joint.aten.constants[n.name] for n in constants}
    counts = (joint.aten.counted, joint.aten.recounted)
    saved = len(choice.saved) + len(copies) + len(sizes)
    return AtenGraph(made.graph, mutated, used, (), frozenset(), *counts, saved=saved)


def _draw_first(node: Node) -> None:
    """What the backward half draws again is drawn here."""
    if node.target in FIRST:
        node.target, node.args = FIRST[node.target], node.args[1:]


def _backward(
    joint: JointGraph, nodes: list[Node], constants: list[Node], given: list[Node], wanted: list[Node], gradients: Any,
    anew: Mapping[Node, Node],
) -> tuple[AtenGraph, list[SizeNode]]:  # fmt: skip
    """`wanted` in their order; operators that run again stand just before their first use.

    `given`: what is kept, then tangents, then numbers. The sizes that none of that tells come after them. `anew`: those
    of them that are written to, and their new values.
    """
    made = GraphCopy()
    for node in given:
        made.placeholder(node)
    after = made.graph.placeholder("sizes")
    for node in constants:
        made.placeholder(node)
    order = {node: k for k, node in enumerate(nodes)}
    for node in wanted:
        for each in _missing(node, made.env, order):
            made.copy(each)
    made.output(gradients)
    _look_at_arguments(made.graph)
    sizes = unknown_sizes(made.graph)
    for size in sizes:
        with made.graph.inserting_before(after):
            made.graph.placeholder(f"size_{size}").meta["val"] = concrete(size)
    made.graph.erase_node(after)
    used = {n.name: joint.aten.constants[n.name] for n in constants}
    written = tuple((given.index(node), made.env[value]) for node, value in anew.items())
    return AtenGraph(made.graph, written, used), sizes


def _look_at_arguments(graph: torch.fx.Graph) -> None:
    """Where a relu is computed again, its derivative need not read it back, if something else wants it in memory."""
    for node in list(graph.nodes):
        argument = relu_argument(node)
        if argument is not None:
            result: Any = node.args[1]
            node.update_arg(1, argument)
            if not result.users:
                graph.erase_node(result)


def _missing(node: Node, known: dict[Node, Node], order: dict[Node, int]) -> list[Node]:
    """What must be computed for `node`, itself included, in order."""
    found: set[Node] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if each not in known and each not in found:
            found.add(each)
            stack.extend(each.all_input_nodes)
    return sorted(found, key=order.__getitem__)


def draws(aten: AtenGraph) -> frozenset[torch.device]:
    """The devices on which the graph draws random numbers."""
    calls = (n for n in aten.graph.nodes if n.op == "call_function" and n.target is not operator.getitem)
    results = (n.meta["val"] for n in calls if facts(n.target).random)
    return frozenset((r[0] if isinstance(r, (tuple, list)) else r).device for r in results)


def exposed(joint: JointGraph, pair: Pair, apart: Apart) -> list[int]:
    """The outputs made of others that the caller could write to while the backward pass relies on them.

        y = x.exp(); return y               the backward half reads %exp, which is the memory of what y is made of

    A write to a tensor that is made of others is counted in its own version, not in those of its parts.
    """
    results: Any = output_of(joint.aten.graph).args[0]
    saved = {memory_of(node) for node in pair.saved}

    def relied_on(k: int) -> bool:
        each = joint.aten.returned[k]
        if each.origin == "output":
            return relied_on(each.value)
        return each.origin == "result" and memory_of(results[each.value]) in saved

    wholes = [(k, t) for k, t in enumerate(apart.outputs) if isinstance(t, Whole)]
    return [k for k, template in wholes if any(map(relied_on, parts_of(template)))]
