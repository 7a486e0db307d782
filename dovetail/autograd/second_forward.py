"""Can the forward half run once more, in eager, when the call has been made already?

It can where it draws no numbers but eager's, and, if the call has written to its inputs, where nothing that has a
gradient depends on what those inputs were before: the running statistics of a batch norm in training, counters, memory
that is written to before it is read.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import JointGraph, output_of
from dovetail.ops.own.philox import draw

Node = torch.fx.Node
aten = torch.ops.aten

#: Arguments that only some results depend on: operator -> (is it so for these arguments?, arguments, those results).
_ASIDE: dict[Any, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    aten._native_batch_norm_legit_functional.default: (lambda args: args[5] is True, (3, 4), (3, 4)),
}


def unrepeatable(joint: JointGraph) -> str:
    """Why it cannot; empty if it can."""
    if any(n.op == "call_function" and n.target is draw for n in joint.aten.graph.nodes):
        return "draws random numbers in its kernels (config.fallback_random leaves that to PyTorch)"
    return "" if _independent(joint) else "writes to its inputs, and computes from what they were before,"


def _independent(joint: JointGraph) -> bool:
    """Do gradients depend on nothing that the call has written to?"""
    inputs = [n for n in joint.aten.graph.nodes if n.op == "placeholder" and n.name not in joint.aten.constants]
    written = {inputs[k] for k, _ in (*joint.aten.mutated, *joint.rewritten)}
    if not written:
        return True
    results: Any = output_of(joint.aten.graph).args[0]
    seen: set[Node] = set()
    stack = [results[k] for _, k in joint.tangents]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(_read(node))
    return not seen & written


def _read(node: Node) -> list[Node]:
    """What the value is computed from; of a result picked from several, what that result is."""
    source = node.args[0] if node.target is operator.getitem else None
    if not isinstance(source, Node) or (aside := _ASIDE.get(source.target)) is None:
        return node.all_input_nodes
    applies, arguments, results = aside
    if node.args[1] in results or not applies(source.args):
        return [source]
    kept = (a for k, a in enumerate(source.args) if k not in arguments)
    return [a for a in kept if isinstance(a, Node)]
