"""Put tensors together once that a program, or its gradient, puts together part by part.

before:  %a = select_backward(%g0, [2, 9], 0, 0);  %b = select_backward(%g1, [2, 9], 0, 1);  %c = add(%a, %b)
after:   %u = unsqueeze(add(%g0, 0), 0);  %v = unsqueeze(add(%g1, 0), 0);  %c = cat([%u, %v], 0)

before:  %a = select_scatter(%zeros, %x, 0, 0);  %y = select(%a, 0, 0);  %b = select_scatter(%a, %z, 0, 1)
after:   %y = %x;  %b = cat([unsqueeze(%x, 0), unsqueeze(%z, 0)], 0)

The first is what differentiation makes of a loop over the parts of a tensor, the second of a loop that stores its
results. Each step stands for a tensor as large as all parts together: n steps would write n of these. What only such
operators read is taken as pieces of what it is made of (`concatenated_pieces.py`), and put together where something
else reads it.
Nothing is computed in another order, and no piece more than once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.passes.concatenated_pieces import (
    FEW,
    ConcatPiece,
    Pieces,
    PiecesBuilder,
    Source,
    UndecidedPieces,
    around,
    joined,
    split,
)
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.escape import escaping
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.layouts import takes_any_layout
from dovetail.ops.calls.schema import bound, facts
from dovetail.ops.fake import on_fakes
from dovetail.ops.fake.symbolic.size_questions import all_same, empty, same
from dovetail.ops.fake.symbolic.symint import concrete
from dovetail.ops.fake.tensor import run

aten = torch.ops.aten
Node = torch.fx.Node


def join_parts(graph: AtenGraph) -> None:
    """In place on the graph."""
    if not any(node.target in _MAKES for node in graph.graph.nodes):
        return
    with on_fakes():
        walk = _Walk(graph)
        for node in list(graph.graph.nodes):
            walk.visit(node)
    remove_dead(graph)


class _Walk:
    """`found`: what nodes are made of that nothing but the operators below has read so far."""

    def __init__(self, graph: AtenGraph) -> None:
        self.graph = graph.graph
        self.visible = escaping(graph)
        self.found: dict[Node, Pieces] = {}

    def visit(self, node: Node) -> None:
        if not self.follow(node):
            for used in node.all_input_nodes:
                self.write_out(used)
        elif node in self.found and self.is_read(node):
            self.write_out(node)

    def is_read(self, node: Node) -> bool:
        """Does anything else than the operators below see it?"""
        return node in self.visible or any(user.target not in _RULES for user in node.users)

    def follow(self, node: Node) -> bool:
        """Is it taken as pieces, or as one of those?"""
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        if rule is None or not all(map(_is_plain, (node, *node.all_input_nodes))):
            return False
        named = bound(node.target, node.args, dict(node.kwargs))
        try:
            made = rule(self, node, PiecesBuilder(GraphWriter(self.graph, node)), **named)
        except UndecidedPieces:
            return False
        if isinstance(made, Pieces):
            self.found[node] = made
        elif made is not None:
            node.replace_all_uses_with(made)
        return made is not None

    def source(self, node: Node, rest: bool = False) -> Source:
        """What it is made of, with a rest only if that is asked for."""
        found = self.found.get(node, node)
        if isinstance(found, Pieces) and found.rest is not None and not rest:
            self.write_out(node)
            return node
        return found

    def write_out(self, node: Node) -> None:
        """From here on it is a tensor like any other: its pieces are put together where it stands."""
        whole = self.found.pop(node, None)
        if whole is None:
            return
        if whole.parts == 1:
            for used in node.all_input_nodes:
                self.write_out(used)
            return
        target, args = PiecesBuilder(GraphWriter(self.graph, node)).assembly(whole)
        if facts(node.target).view:
            node.meta["val"] = run(target, *torch.fx.node.map_arg((args, {}), lambda n: n.meta["val"]))
        node.target, node.args, node.kwargs = target, args, {}


# ---------------------------------------------------------------- parts among zeros, and sums of these


def _select_backward(walk: _Walk, node: Node, build: PiecesBuilder, grad_output: Node, input_sizes: Any, dim: int,
                     index: Any) -> Source | None:  # fmt: skip
    axis, size = _axis(node, dim)
    source, at = walk.source(grad_output), _position(index, size)
    return _made(node, axis, around([ConcatPiece(at, at + 1, source, None, 1)], size), 1, source)


def _slice_backward(walk: _Walk, node: Node, build: PiecesBuilder, grad_output: Node, input_sizes: Any, dim: int,
                    start: Any, end: Any, step: Any) -> Source | None:  # fmt: skip
    axis, size = _axis(node, dim)
    if step != 1:
        return None
    source, first = walk.source(grad_output), _position(start, size)
    pieces, terms = _along(axis, source, first, grad_output)
    return _made(node, axis, around(pieces, size), terms, source)


def _add(walk: _Walk, node: Node, build: PiecesBuilder, self: Node, other: Any, alpha: Any = 1) -> Source | None:
    if alpha != 1 or not isinstance(other, Node) or not _alike(node, self) or not _alike(node, other):
        return None
    a, b = walk.source(self, rest=True), walk.source(other, rest=True)
    if isinstance(a, Pieces) and isinstance(b, Pieces):
        if a.dim == b.dim and (a.rest is None or b.rest is None):
            return build.merged(a, b)
        if len(a.pieces) < len(b.pieces):
            self, other, a, b = other, self, b, a
        walk.write_out(other)
        b = other
    whole, rest = (a, b) if isinstance(a, Pieces) else (b, a)
    if not isinstance(whole, Pieces) or isinstance(rest, Pieces) or whole.rest is not None:
        return None
    return replace(whole, rest=rest)


# ---------------------------------------------------------------- parts written over


def _select_scatter(walk: _Walk, node: Node, build: PiecesBuilder, self: Node, src: Node, dim: int,
                    index: Any) -> Source | None:  # fmt: skip
    axis, size = _axis(node, dim)
    source, at = walk.source(src), _position(index, size)
    base = _base(walk, node, self, axis)
    return _over(build, node, base, [ConcatPiece(at, at + 1, source, None, base.terms)], src, source)


def _slice_scatter(
    walk: _Walk, node: Node, build: PiecesBuilder, self: Node, src: Node, dim: int = 0, start: Any = None,
    end: Any = None, step: Any = 1,
) -> Source | None:  # fmt: skip
    axis, size = _axis(node, dim)
    if step != 1:
        return None
    source, base = walk.source(src), _base(walk, node, self, axis)
    pieces, terms = _along(axis, source, _position(start, size), src)
    return _over(build, node, base, [replace(p, terms=p.terms + base.terms - terms) for p in pieces], src, source)


def _base(walk: _Walk, node: Node, written: Node, axis: int) -> Pieces:
    """What parts are written over."""
    source = walk.source(written)
    if isinstance(source, Pieces) and source.dim == axis:
        return source
    walk.write_out(written)
    val = node.meta["val"]
    whole = [ConcatPiece(0, val.shape[axis], written, 0, 1)]
    return Pieces(axis, tuple(val.shape), val.dtype, val.device, whole, parts=0)


def _over(
    build: PiecesBuilder, node: Node, base: Pieces, pieces: list[ConcatPiece], src: Node, source: Source
) -> Source | None:
    if src.meta["val"].dtype != node.meta["val"].dtype:
        return None
    before, _, after = split(base.pieces, pieces[0].first, pieces[-1].stop)
    if base.parts:
        before[-1:] = [build.apart(p, base.dim) for p in before[-1:]]
        after[:1] = [build.apart(p, base.dim) for p in after[:1]]
    return replace(base, pieces=[*before, *pieces, *after], parts=base.parts + 1 + _parts(source))


# ---------------------------------------------------------------- tensors side by side


def _cat(walk: _Walk, node: Node, build: PiecesBuilder, tensors: Any, dim: int = 0) -> Source | None:
    axis, _ = _axis(node, dim)
    if not all(_alike(node, n, axis) for n in tensors):
        return None
    sources = [None if _is_zero(n) else walk.source(n) for n in tensors]
    found, at = [], 0
    for n, source in zip(tensors, sources, strict=True):
        stop = at + n.meta["val"].shape[axis]
        found.append(([ConcatPiece(at, stop)], 0) if source is None else _along(axis, source, at, n))
        at = stop
    terms = max(t for _, t in found)
    pieces = [replace(p, terms=p.terms + terms - t) for some, t in found for p in some]
    return _side_by_side(node, axis, pieces, terms, sources)


def _stack(walk: _Walk, node: Node, build: PiecesBuilder, tensors: Any, dim: int = 0) -> Source | None:
    axis, _ = _axis(node, dim)
    if any(n.meta["val"].dtype != node.meta["val"].dtype for n in tensors):
        return None
    sources = [None if _is_zero(n) else walk.source(n) for n in tensors]
    pieces = [ConcatPiece(k, k + 1, source, None, 1) for k, source in enumerate(sources)]
    return _side_by_side(node, axis, pieces, 1, sources)


def _side_by_side(node: Node, axis: int, pieces: list[ConcatPiece], terms: int, sources: list) -> Source | None:
    """Only where something is left out then: zeros, what is made of pieces itself, all but the parts that are read."""
    taken = any(s is None or isinstance(s, Pieces) for s in sources) or any(u.target in _READS for u in node.users)
    return _made(node, axis, joined(pieces), terms, *sources) if taken and any(sources) else None


# ---------------------------------------------------------------- reading parts again


def _select(walk: _Walk, node: Node, build: PiecesBuilder, self: Node, dim: int, index: Any) -> Source | None:
    axis, size = _axis(self, dim)
    whole = _read(walk, node, self, axis)
    return whole and _part(walk, node, build.select(whole, axis, _position(index, size)))


def _slice(walk: _Walk, node: Node, build: PiecesBuilder, self: Node, dim: int = 0, start: Any = None, end: Any = None,
           step: Any = 1) -> Source | None:  # fmt: skip
    axis, size = _axis(self, dim)
    whole = _read(walk, node, self, axis)
    if whole is None or step != 1:
        return None
    first = _position(start, size)
    found = build.cut(whole, axis, first, first + node.meta["val"].shape[axis])
    if isinstance(found, Pieces) and found.dim == axis and len(found.pieces) == 1:
        (piece,) = found.pieces
        if piece.source is not None and piece.start is not None:
            found = build.settled(piece, found)
    return _part(walk, node, found)


def _read(walk: _Walk, node: Node, read: Node, axis: int) -> Pieces | None:
    source = walk.source(read)
    if isinstance(source, Node) or node in walk.visible or source.dim != axis and len(source.pieces) > FEW:
        return None
    return source


def _part(walk: _Walk, node: Node, found: Source) -> Source | None:
    """The part, unless it is laid out otherwise than eager's view and a reader might mind, or would be put together of
    what is better put together as a whole, once."""
    if isinstance(found, Node) and all_same(found.meta["val"].stride(), node.meta["val"].stride()):
        return found
    if not _any_layout(node):
        return None
    if isinstance(found, Node):
        return found
    return None if found.parts == 1 and walk.is_read(node) else replace(found, parts=found.parts + 1)


def _any_layout(node: Node) -> bool:
    """Does whatever reads it compute the same in another layout?"""
    for user in node.users:
        if user.target in _READS:
            if not _any_layout(user):
                return False
        elif user.target not in _RULES and not (
            isinstance(user.target, torch._ops.OpOverload) and not facts(user.target).view
            and takes_any_layout(user.target, node.meta["val"].device.type)
        ):  # fmt: skip
            return False
    return True


# ---------------------------------------------------------------- what is common


def _is_plain(node: Node) -> bool:
    """A tensor in memory, as it is: neither complex nor negated, not empty."""
    val = node.meta.get("val")
    return (
        isinstance(val, torch.Tensor) and val.layout is torch.strided and not val.is_complex() and not val.is_neg()
        and not node.meta.get("opaque") and not empty(val.shape)
    )  # fmt: skip


def _axis(node: Node, dim: int) -> tuple[int, Any]:
    """The dimension, from the front, and its size."""
    shape = node.meta["val"].shape
    return dim % len(shape), shape[dim]


def _position(at: Any, size: Any) -> Any:
    """From the front; symbolic ones are already."""
    at = concrete(at)
    if at is None:
        return 0
    return at + size if isinstance(at, int) and at < 0 else at


def _along(axis: int, source: Source, first: Any, node: Node) -> tuple[list[ConcatPiece], int]:
    """The pieces of a source that begins at `first`, and how many terms there are."""
    if isinstance(source, Pieces) and source.dim == axis:
        return [p.moved(first) for p in source.pieces], source.terms
    return [ConcatPiece(first, first + node.meta["val"].shape[axis], source, 0, 1)], 1


def _made(node: Node, axis: int, pieces: list[ConcatPiece], terms: int, *sources: Source | None) -> Pieces:
    val = node.meta["val"]
    parts = 1 + sum(_parts(s) for s in sources if s is not None)
    return Pieces(axis, tuple(val.shape), val.dtype, val.device, pieces, terms, parts=parts)


def _parts(source: Source) -> int:
    return source.parts if isinstance(source, Pieces) else 0


def _alike(one: Node, other: Node, but: int | None = None) -> bool:
    """Equal sizes, but for one, and types?"""
    a, b = one.meta["val"], other.meta["val"]
    if a.dtype != b.dtype or a.device != b.device or a.dim() != b.dim():
        return False
    return all(d == but or same(n, m) for d, (n, m) in enumerate(zip(a.shape, b.shape, strict=True)))


def _is_zero(node: Node) -> bool:
    """Is it made as zeros?"""
    while node.target in (aten.expand.default, aten.view.default):
        node = node.args[0]  # type: ignore[assignment]
    if node.target is aten.full.default:
        return isinstance(node.args[1], (int, float)) and str(node.args[1]) in ("0", "0.0", "False")
    return node.target in (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)


_READS: dict[Any, Callable[..., Any]] = {aten.select.int: _select, aten.slice.Tensor: _slice}
#: What makes pieces of something.
_MAKES: dict[Any, Callable[..., Any]] = {
    aten.select_backward.default: _select_backward,
    aten.slice_backward.default: _slice_backward,
    aten.select_scatter.default: _select_scatter,
    aten.slice_scatter.default: _slice_scatter,
    aten.cat.default: _cat,
    aten.stack.default: _stack,
}
_RULES = {**_MAKES, **_READS, aten.add.Tensor: _add}
