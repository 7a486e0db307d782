"""The result of the program that is exported, as leaves: the residual program is run on stand-ins.

What it returns then consists of outputs of the graph, arguments, sizes, tensors of the program and constants, each
known by identity. Nothing else of the residual may matter: what it changes outside is refused before, except for
buffers, and those are put back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail import guards
from dovetail.errors import Unsupported
from dovetail.exporting import buffers
from dovetail.exporting.arguments import Arguments
from dovetail.exporting.buffers import CODE, Exchange, Tables
from dovetail.exporting.paths import flattened
from dovetail.exporting.state import owner_of
from dovetail.ir.captured import DRAWS, HOOKS, MODES_LEFT, Captured, Change
from dovetail.ops.fake.number import NumberNeeded


@dataclass(frozen=True)
class Outcome:
    """`leaves` of the result, how users write them, and its tree. `stand_ins` stand for the graph's outputs `nodes`."""

    leaves: list[Any]
    paths: list[str]
    spec: pytree.TreeSpec
    nodes: Sequence[torch.fx.Node]
    stand_ins: list[Any]
    exchanges: list[Exchange]


class Number:
    """Stands for a number that the graph computes."""


REMEDY = "Return tensors, numbers, texts, None and containers of them that torch.utils._pytree knows."


REMEDIES = {
    MODES_LEFT.what: "Leave modes as they were found: `with torch.no_grad(): ...`.",
    DRAWS.what: "Draw random numbers with PyTorch, or take them as arguments.",
    HOOKS.what: "Register hooks outside of what is exported.",
}


def find(captured: Captured, fn: Callable[..., Any], given: Arguments, shown: Sequence[Any]) -> Outcome:
    """`shown` are the leaves of the arguments, with stand-ins whose sizes are symbolic.

    Raises Unsupported for programs whose result, or whose effects, no graph has.
    """
    owned = buffers.tables(owner_of(fn))
    _refuse_changes([*captured.changes, *_modes_left(captured.graph)], owned)
    end = next(n for n in reversed(captured.graph.graph.nodes) if n.op == "output")
    nodes: Any = end.args[0]
    stand_ins = [_stand_in(node) for node in nodes]
    args, kwargs = pytree.tree_unflatten(shown, given.spec)
    captured.sizes.unnamed = True
    try:
        result = guards.run_residual(captured, fn, stand_ins, args, kwargs)
        exchanges = owned.exchanged()
    except (RuntimeError, NotImplementedError, TypeError, AttributeError) as error:
        raise Unsupported(CODE, f"the result cannot be told without running the program: {error}", REMEDY) from error
    except NumberNeeded as error:
        words = "the result has a text or a float made of a size that varies"
        raise Unsupported(CODE, words, "Return the size itself.") from error
    finally:
        captured.sizes.unnamed = False
        owned.put_back()
    found, spec = flattened(result, is_leaf=lambda v: type(v) is torch.Size)  # else it is a tuple
    paths = [f"the result{pytree.keystr(path)}" for path, _ in found]
    return Outcome([leaf for _, leaf in found], paths, spec, nodes, stand_ins, exchanges)


def _stand_in(node: torch.fx.Node) -> Any:
    return torch.empty(0, device="meta") if isinstance(node.meta.get("fake"), torch.Tensor) else Number()


def _refuse_changes(changes: Sequence[Change], owned: Tables) -> None:
    refused = [c for c in changes if c.kind in ("object", "state") or c.kind == "buffers" and c.real not in owned]
    if refused:
        stack = next((c.stack for c in refused if c.stack), ())
        remedies = dict.fromkeys(REMEDIES.get(c.what, "Keep state in buffers, or return it.") for c in refused)
        raise Unsupported(
            CODE, f"the program changes what is outside of it: {'; '.join(dict.fromkeys(c.what for c in refused))}",
            " ".join(remedies), stack,
        )  # fmt: skip
    calls = dict.fromkeys(c.what for c in changes if c.kind == "call")
    if calls:
        warnings.warn(f"dovetail.export: the exported program does not call {', '.join(calls)}", stacklevel=5)


def _modes_left(module: torch.fx.GraphModule) -> Iterator[Change]:
    """Does one of the graphs end in another grad mode than it began in, whichever that was?"""
    for graph in (m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)):
        mode, asked, stack = None, dict[Any, Any](), ()  # None: the one that it began in
        for node in graph.nodes:
            if node.target is torch.is_grad_enabled:
                asked[node] = mode
            elif node.target is torch._C._set_grad_enabled:
                mode, stack = asked.get(node.args[0], node.args[0]), node.meta.get("stack", ())
        if mode is not None:
            yield replace(MODES_LEFT, stack=stack)

