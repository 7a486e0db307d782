"""The result of the program that is exported, as leaves: the residual program is run on stand-ins.

What it returns then consists of outputs of the graph, arguments, sizes, tensors of the program and constants, each
known by identity. Nothing else of the residual may matter: what it changes outside is refused before, except for
buffers, and those are put back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail import guards
from dovetail.errors import Unsupported
from dovetail.exporting import buffers
from dovetail.exporting.arguments import Arguments, flattened
from dovetail.exporting.buffers import CODE, Exchange, Tables
from dovetail.ir.aten import output_of
from dovetail.ir.captured import DRAWS, HOOKS, MODES_LEFT, Captured, Change
from dovetail.ir.records import dataclass
from dovetail.ir.source import Arg, path
from dovetail.ops.fake.symbolic.number import NumberNeeded


@dataclass(frozen=True)
class ExportOutcome:
    """`leaves` of the result, how users write them, and its tree. `stand_ins` stand for the graph's outputs `nodes`."""

    leaves: list
    paths: list[str]
    spec: pytree.TreeSpec
    nodes: Sequence[torch.fx.Node]
    stand_ins: list
    exchanges: list[Exchange]


class OutcomeNumber:
    """Stands for a number that the graph computes."""


REMEDY = "Return tensors, numbers, texts, None and containers of them that torch.utils._pytree knows."


REMEDIES = {
    MODES_LEFT.what: "Leave modes as they were found: `with torch.no_grad(): ...`.",
    DRAWS.what: "Draw random numbers with PyTorch, or take them as arguments.",
    HOOKS.what: "Register hooks outside of what is exported.",
}


def find(captured: Captured, owner: torch.nn.Module | None, given: Arguments, shown: Sequence[Any]) -> ExportOutcome:
    """`owner` is the module that is exported, `shown` are the leaves of the arguments, with stand-ins whose sizes are
    symbolic.

    Raises Unsupported for programs whose result, or whose effects, no graph has.
    """
    owned = buffers.tables(owner)
    changed = [c for c in captured.changes if c.kind == "object" and Arg in map(type, path(c.source))]
    _refuse_changes([*(c for c in captured.changes if c not in changed), *_modes_left(captured.graph)], owned)
    nodes: Any = output_of(captured.graph.graph).args[0]
    stand_ins = [_stand_in(node) for node in nodes]
    args, kwargs = given.of_leaves(shown)
    ways = [guards.load(captured, given.program, [*path(c.source)], args, kwargs) for c in changed]
    captured.sizes.unnamed = True
    try:
        result = guards.run_residual(captured, given.program, stand_ins, args, kwargs)
        exchanges = owned.exchanged()
    except (RuntimeError, NotImplementedError, TypeError, AttributeError) as error:
        raise Unsupported(CODE, f"the result cannot be told without running the program: {error}", REMEDY) from error
    except NumberNeeded as error:
        words = "the result has a text or a float made of a size that varies"
        raise Unsupported(CODE, words, "Return the size itself.") from error
    finally:
        captured.sizes.unnamed = False
        owned.put_back()
    _refuse_losses(changed, ways, result)
    found, spec = flattened(result, is_leaf=lambda v: type(v) is torch.Size)  # else it is a tuple
    paths = [f"the result{pytree.keystr(path)}" for path, _ in found]
    return ExportOutcome([leaf for _, leaf in found], paths, spec, nodes, stand_ins, exchanges)


def _refuse_losses(changed: Sequence[Change], ways: Sequence[Sequence[Any]], result: Any) -> None:
    """A change to an object among the arguments is lost, as the program only takes the leaves of these, unless the
    object, or what it is in, is a part of the result, too."""
    parts = {id(part): part for part in _containers(result)}  # which are kept, so that their numbers are theirs
    _refuse([c for c, way in zip(changed, ways, strict=True) if parts.keys().isdisjoint(map(id, way))])
    if changed:
        found = (zip(path(c.source), way, strict=True) for c, way in zip(changed, ways, strict=True))
        names = dict.fromkeys(next(step.name() for step, part in each if id(part) in parts) for each in found)
        words = "the exported program leaves arguments as they are; only its result has what becomes of"
        warnings.warn(f"dovetail.export: {words} {', '.join(names)}", stacklevel=5)


def _containers(tree: Any) -> Iterator[Any]:
    known = pytree.SUPPORTED_NODES.get(pytree._get_node_type(tree))
    if known is not None:
        yield tree
        for part in known.flatten_fn(tree)[0]:
            yield from _containers(part)


def _stand_in(node: torch.fx.Node) -> Any:
    return torch.empty(0, device="meta") if isinstance(node.meta.get("fake"), torch.Tensor) else OutcomeNumber()


def _refuse_changes(changes: Sequence[Change], owned: Tables) -> None:
    _refuse([c for c in changes if c.kind in ("object", "state") or c.kind == "buffers" and c.real not in owned])
    calls = dict.fromkeys(c.what for c in changes if c.kind == "call")
    if calls:
        warnings.warn(f"dovetail.export: the exported program does not call {', '.join(calls)}", stacklevel=5)


def _refuse(refused: Sequence[Change]) -> None:
    if refused:
        stack = next((c.stack for c in refused if c.stack), ())
        remedies = dict.fromkeys(REMEDIES.get(c.what, "Keep state in buffers, or return it.") for c in refused)
        raise Unsupported(
            CODE, f"the program changes what is outside of it: {'; '.join(dict.fromkeys(c.what for c in refused))}",
            " ".join(remedies), stack,
        )  # fmt: skip


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
