"""Where a tensor from outside begins in its storage: an entry relies on it only if something can see it.

Graphs count from a tensor's first element, so the rows of one tensor are all alike to them. What counts from the
beginning of the storage, or refuses some places in it, is named here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.fx

from dovetail.capture.values.base import Session
from dovetail.ir.guard import GuardKind
from dovetail.ir.nodes import name_of
from dovetail.ir.source import Bound

SEEING = frozenset(
    ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "set_", "storage_offset", "view_as_complex")
)
VIEWS = frozenset(("view", "view_as"))  # as another dtype they refuse some places


def refuse_outside(s: Session, made: Any) -> None:
    """End the graph at an `as_strided` beyond the end of the storage: eager raises, a kernel would read elsewhere."""
    value = s.objects.by_fake.get(id(made.owner))
    real = None if value is None else value.origin
    held = made.owner.held if real is None else real.untyped_storage().nbytes()
    last = made.storage_offset() + sum((n - 1) * step for n, step in zip(made.shape, made.stride(), strict=True))
    if made.numel() and (last + 1) * made.itemsize > held:
        s.unsupported("as-strided-outside", f"as_strided asks for more than the {held} bytes of the tensor's storage")


def forget_offsets(s: Session) -> None:
    """Called when the region is complete."""
    graphs = [s.root, *(m.graph for sub in s.subgraphs.values() for m in sub.modules() if hasattr(m, "graph"))]
    if s.tensors.offset_read or any(_sees(node) for graph in graphs for node in graph.nodes):
        return
    s.relied.guards[:] = [
        replace(g, payload=replace(g.payload, offset=None))
        if g.kind is GuardKind.TENSOR and not isinstance(g.source, Bound)
        else g
        for g in s.relied.guards
    ]


def _sees(node: torch.fx.Node) -> bool:
    if not node.op.startswith("call"):
        return False
    names = name_of(node).split(".")
    if VIEWS.isdisjoint(names):
        return not SEEING.isdisjoint(names)
    dtype = any(isinstance(a, torch.dtype) for a in (*node.args, *node.kwargs.values()))
    return dtype or not SEEING.isdisjoint(names)
