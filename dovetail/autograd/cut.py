"""What to keep for the backward pass: a minimum cut.

Every value that the backward half could use is an edge whose capacity is what keeping it costs, in bytes. Values
that must not be computed again hang on the source, values that gradients are computed from on the sink. The edges
of a minimum cut are kept; what lies between them and the sink is computed again. So is whatever a checkpointed function
computes but for what goes on from there: none of that may be kept, and all of it may run again.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import CHECKPOINTED, KEPT, NotDifferentiable
from dovetail.ir.devices import traits
from dovetail.ir.records import dataclass
from dovetail.ops.aten_nodes import is_library, is_view, large, library_readers, memory_of, nbytes
from dovetail.ops.calls.effects import finds_out
from dovetail.ops.calls.schema import bound, facts
from dovetail.ops.table import row_of

Node = torch.fx.Node
SOURCE, SINK = "source", "sink"

#: Inputs that are numbers; the backward half is given all of them.
NUMBERS = (torch.SymFloat, torch.SymInt)

#: Operators in a row that may run again before one is kept all the same.
CHAIN = 16

#: How much memory a training step may take, of what eager mode does.
ALLOWED = 1.1

#: What a kernel stores only because it is kept takes memory beside the one tensor that it is computed from.
MADE = 9 / 8


@dataclass(frozen=True)
class Choice:
    """`kept` are inputs of the forward half, `saved` values it computes, `copied` inputs that it writes to."""

    kept: tuple[Node, ...]
    saved: tuple[Node, ...]
    copied: tuple[Node, ...]


def choose(
    nodes: list[Node], needed: set[Node], backward_nodes: set[Node], gradients: list[Node], written: set[Node],
    exposed: set[Node], forward: set[Node],
) -> Choice:  # fmt: skip
    """`needed` are the ancestors of gradients, `backward_nodes` the nodes that depend on tangents, `forward` results
    and their ancestors.

    `exposed` is memory that may not be relied on later: a write to it after the call is the caller's right.
    """
    candidates = [n for n in nodes if n in needed and n not in backward_nodes]
    again, ends = _checkpointed(candidates, forward)
    networkx = importlib.import_module("networkx")  # 0.3 s that only a program with a backward pass should pay
    network = networkx.DiGraph()
    network.add_nodes_from((SOURCE, SINK))
    again_all_the_same = _continued(candidates) | _too_much(candidates, needed, backward_nodes, gradients)
    depth = _depths(candidates, again_all_the_same, backward_nodes)
    depth |= dict.fromkeys(again, 1) | dict.fromkeys(ends, 0)
    final, never = set(gradients), again | exposed - written
    for node in candidates:
        cost = None if node in never else _cost(node, depth[node], written, backward_nodes)
        network.add_edge((node, "in"), (node, "out"), **({} if cost is None else {"capacity": cost}))
        if not depth[node] and not isinstance(node.meta.get("val"), (tuple, list, *NUMBERS)):
            network.add_edge(SOURCE, (node, "in"))
        network.add_edges_from(((node, "out"), user) for user in _readers(node, needed, backward_nodes))
        if node in final:
            network.add_edge((node, "out"), SINK)
    _, (reached, _) = networkx.minimum_cut(network, SOURCE, SINK, flow_func=networkx.algorithms.flow.boykov_kolmogorov)
    cut = [n for n in candidates if (n, "in") in reached and (n, "out") not in reached]
    return Choice(
        tuple(n for n in cut if n.op == "placeholder" and n not in written),
        tuple(n for n in cut if n.op != "placeholder"),
        tuple(n for n in cut if n in written),
    )


def _checkpointed(candidates: list[Node], forward: set[Node]) -> tuple[set[Node], set[Node]]:
    """What checkpointed functions compute: what runs again, and what does not, as it goes on from there as the input of
    the next, or is kept.

    Raises NotDifferentiable where the second run would need a generator as it was: `normalize/passes/redraws.py` has
    left no operator of the host's that draws much.
    """
    inside = [n for n in candidates if CHECKPOINTED in n.meta]
    ends = {memory_of(n) for n in inside if any(_goes_on(n, user, forward) for user in n.users)}
    ends |= {n for n in inside if KEPT in _maker(n).meta and not is_view(n)}
    again = {n for n in inside if n not in ends and not finds_out(_maker(n))}
    if any(map(_draws, map(_maker, again))):
        raise NotDifferentiable("a checkpointed function draws from a generator that is to be put back for it")
    return again, ends


def _draws(node: Any) -> bool:
    """Attention without dropout draws nothing, though it is one operator with that which has some."""
    known = facts(node.target)
    without = "dropout_p" in known.names and bound(node.target, node.args, node.kwargs).get("dropout_p", 0) == 0
    return known.random and not without


def _goes_on(node: Node, user: Node, forward: set[Node]) -> bool:
    """Does the value leave the checkpointed function that computes it, for what the call gives?"""
    if user.op == "output":
        return node in forward
    return user in forward and user.meta.get(CHECKPOINTED) != node.meta[CHECKPOINTED]


def _maker(node: Node) -> Any:
    """Of one of several results, what gives all of them."""
    return node.args[0] if node.target is operator.getitem else node


def _readers(node: Node, needed: set[Node], backward_nodes: set[Node]) -> Iterator[Any]:
    """Where the value flows to in the network: all that the backward half reads is one place."""
    for user in node.users:
        if user in backward_nodes and user in needed:
            yield SINK
        elif user in needed and user.op != "output":
            yield user, "in"


def _continued(candidates: list[Node]) -> set[Node]:
    """Concatenations one of which begins with all of another: put together again, they share one buffer
    (`schedule/memory/shared_concat.py`), so that keeping their parts once serves all of them.
    """
    parts = {n: (n.args[1:], *n.args[0]) for n in candidates if n.target is torch.ops.aten.cat.default}  # type: ignore
    known, found = {p: n for n, p in parts.items()}, set()
    for node, own in parts.items():
        shorter = {known[own[:k]] for k in range(2, len(own)) if own[:k] in known}
        found |= shorter | {node} if shorter else shorter
    return found


def _depths(candidates: list[Node], cheap: set[Node], backward_nodes: set[Node]) -> dict[Node, int]:
    """How many operators run again when a value is not kept; 0 for what must not be computed again.

    `cheap` may run again whatever the operator.
    """
    depth: dict[Node, int] = {}
    for node in candidates:
        before = max((depth.get(n, 0) for n in node.all_input_nodes), default=0)
        if node.op == "placeholder":
            depth[node] = 0
        elif is_view(node):
            depth[node] = before or 1
        elif before < CHAIN:
            again = node in cheap or row_of(node.target).cheap and not _is_operand_twice(node, backward_nodes)
            depth[node] = before + 1 if again else 0
        else:
            depth[node] = 0
    return depth


def _is_operand_twice(node: Node, backward_nodes: set[Node]) -> bool:
    """Do libraries read the value, or a view of it, in both halves, as convolutions do with images? Eager mode keeps
    it, and it is in memory: as one that runs again it would be written there a second time."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or not traits(val.device).keeps_operands:
        return False
    return {reader in backward_nodes for reader in library_readers(node)} == {False, True}


def _too_much(
    candidates: list[Node], needed: set[Node], backward_nodes: set[Node], gradients: list[Node]
) -> set[Node]:  # fmt: skip
    """Which of the values that libraries read in both halves run again, so that there is room for gradients: eager mode
    puts those where values lay that it is done with, which a recorded backward half cannot."""
    twice = [n for n in candidates if row_of(n.target).cheap and _is_operand_twice(n, backward_nodes)]
    if not twice:
        return set()
    read = {memory_of(n) for n in candidates if any(u in backward_nodes and u in needed for u in n.users)}
    given = sum(nbytes(n) for n in candidates if n.op == "placeholder")
    eager = sum(nbytes(n) for n in read if n.op != "placeholder")
    made = sum(map(nbytes, {memory_of(n) for n in gradients}))
    excess = given + eager + made - ALLOWED * (given + max(eager, made))
    found = set()
    for node in sorted(twice, key=nbytes, reverse=True):
        if excess > 0:
            found.add(node)
            excess -= nbytes(node)
    return found


def _cost(node: Node, depth: int, written: set[Node], backward_nodes: set[Node]) -> float | None:
    """Bytes; of two equal values the later one, so that less runs again. None: it cannot be kept."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or is_view(node):
        return None
    if node.op == "placeholder" and node not in written:
        return 1.0
    # is one operand large and every other small beside the result? Then that one could be kept in its place
    follows = len(large(node.all_input_nodes, node)) == 1
    made = MADE if follows and not _in_memory(node, backward_nodes) else 1.0
    return max(nbytes(node), 1) * made * (1 - depth / 1024)


def _in_memory(node: Node, backward_nodes: set[Node]) -> bool:
    """Does a library make or read the value, so that it is in memory whether it is kept or not?"""
    return is_library(_maker(node)) or any(reader not in backward_nodes for reader in library_readers(node))
