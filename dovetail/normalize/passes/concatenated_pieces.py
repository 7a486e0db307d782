"""Tensors that are put together of pieces along one dimension, before anything is computed.

    [0, 3) of %a, zeros on [3, 5), [5, 6) is %b            is a tensor of 6 along that dimension

A piece may be made of pieces itself, along another dimension. Positions are ints, or sizes that vary; where those leave
open which of two comes first, `UndecidedPieces` is raised.

Sums are eager's to the bit. An element gets the terms that reach it in eager's order, without the zeros that eager adds
around each part. These change nothing but -0.0, which becomes 0.0, once and for all: a sum is -0.0 only if all its
terms are. So `terms` counts what a piece is the sum of, and one that misses some of the whole tensor's has 0 added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Union

import torch
import torch.fx

from dovetail.ir.records import dataclass
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.fake.symbolic.size_questions import dim_or_node, hint, never_more, same, surely_less

aten = torch.ops.aten
Node = torch.fx.Node
Source = Union[Node, "Pieces"]
#: What is added to more pieces than this is added to one that they are put together to.
FEW = 4


class UndecidedPieces(Exception):
    """Which of two positions comes first depends on sizes that vary."""


@dataclass(frozen=True, slots=True)
class ConcatPiece:
    """What lies on [first, stop): `source` from `start` on, or all of a source that lacks the dimension (`start` is
    None, and there is one position); zeros without a source."""

    first: Any
    stop: Any
    source: Source | None = None
    start: Any = 0
    terms: int = 0

    def within(self, first: Any, stop: Any) -> ConcatPiece:
        """The part of it on [first, stop)."""
        return replace(self, first=first, stop=stop, start=self.start if self.start is None else
                       self.start + (first - self.first))

    def moved(self, by: Any) -> ConcatPiece:
        return replace(self, first=self.first + by, stop=self.stop + by)


@dataclass(frozen=True, slots=True)
class Pieces:
    """`pieces` lie side by side along `dim`, from 0 to `sizes[dim]`. `rest`, a tensor of the same sizes, is added to
    what they make. `parts`: how many operators put pieces into it."""

    dim: int
    sizes: tuple
    dtype: torch.dtype
    device: torch.device
    pieces: Sequence[ConcatPiece]
    terms: int = 1
    rest: Node | None = None
    parts: int = 1

    def resized(self, dim: int, size: Any) -> tuple:
        return tuple(size if d == dim else n for d, n in enumerate(self.sizes))


# ---------------------------------------------------------------- positions


def equal(a: Any, b: Any) -> bool:
    """Of two positions of which the first does not come after the second."""
    if same(a, b):
        return True
    if surely_less(a, b):
        return False
    raise UndecidedPieces


def zeros(first: Any, stop: Any) -> list[ConcatPiece]:
    return [] if equal(first, stop) else [ConcatPiece(first, stop)]


def around(pieces: Sequence[ConcatPiece], size: Any) -> list[ConcatPiece]:
    """With zeros on both sides, from 0 to `size`."""
    return [*zeros(0, pieces[0].first), *pieces, *zeros(pieces[-1].stop, size)]


def split(
    pieces: Sequence[ConcatPiece], first: Any, stop: Any
) -> tuple[list[ConcatPiece], list[ConcatPiece], list[ConcatPiece]]:
    """What lies before, on and after [first, stop)."""
    before, others = _cut(pieces, first)
    return before, *_cut(others, stop)


def _cut(pieces: Sequence[ConcatPiece], at: Any) -> tuple[list[ConcatPiece], list[ConcatPiece]]:
    low, high = 0, len(pieces)
    while low < high:
        middle = (low + high) // 2
        if never_more(pieces[middle].stop, at):
            low = middle + 1
        elif surely_less(at, pieces[middle].stop):
            high = middle
        else:
            raise UndecidedPieces
    before, after = list(pieces[:low]), list(pieces[low:])
    if after and not equal(after[0].first, at):
        cut = after[0]
        before.append(cut.within(cut.first, at))
        after[0] = cut.within(at, cut.stop)
    return before, after


def joined(pieces: Iterable[ConcatPiece]) -> list[ConcatPiece]:
    """The same with zeros that lie side by side as one piece."""
    found: list[ConcatPiece] = []
    for piece in pieces:
        if found and found[-1].source is None and piece.source is None:
            found[-1] = replace(found[-1], stop=piece.stop)
        else:
            found.append(piece)
    return found


# ---------------------------------------------------------------- making them


class PiecesBuilder:
    """Adds to a graph what pieces are made with. Inside `on_fakes`."""

    def __init__(self, write: GraphWriter) -> None:
        self.write = write

    def node(self, source: Source) -> Node:
        if isinstance(source, Node):
            return source
        target, args = self.assembly(source)
        return args[0] if target is aten.clone.default else self.write.call(target, *args)

    def assembly(self, whole: Pieces) -> tuple[Any, tuple]:
        """The operator and the arguments that put it together."""
        if whole.rest is not None:
            return aten.add.Tensor, (whole.rest, self.node(replace(whole, rest=None)))
        laid = [self.laid(piece, whole) for piece in whole.pieces]
        return (aten.cat.default, (laid, whole.dim)) if len(laid) > 1 else (aten.clone.default, (laid[0],))

    def laid(self, piece: ConcatPiece, whole: Pieces) -> Node:
        if piece.source is None:
            return self.zeros(whole, whole.resized(whole.dim, piece.stop - piece.first))
        node = self.node(self.settled(piece, whole))
        return node if piece.start is not None else self.write.call(aten.unsqueeze.default, node, whole.dim)

    def zeros(self, like: Pieces, sizes: tuple) -> Node:
        number = False if like.dtype is torch.bool else 0.0 if like.dtype.is_floating_point else 0
        named = {"dtype": like.dtype, "device": like.device}
        return self.write.call(aten.full.default, list(map(dim_or_node, sizes)), number, **named)

    def settled(self, piece: ConcatPiece, whole: Pieces) -> Source:
        """What lies on the piece."""
        source = self.source(piece, whole.dim)
        if piece.terms >= whole.terms or not whole.dtype.is_floating_point:
            return source
        if isinstance(source, Pieces) and source.rest is None:
            return replace(source, terms=source.terms + 1)
        return self.write.call(aten.add.Tensor, self.node(source), 0)

    def source(self, piece: ConcatPiece, dim: int) -> Source:
        assert piece.source is not None
        if piece.start is None:
            return piece.source
        return self.cut(piece.source, dim, piece.start, piece.start + (piece.stop - piece.first))

    # ------------------------------------------------------------ parts of what may be made of pieces

    def cut(self, source: Source, dim: int, first: Any, stop: Any) -> Source:
        """[first, stop) along `dim`."""
        if isinstance(source, Node):
            if same(first, 0) and same(stop, source.meta["val"].shape[dim]):
                return source
            return self.write.call(aten.slice.Tensor, source, dim, dim_or_node(first), dim_or_node(stop))
        if self.scattered(source, dim):
            return self.cut(self.node(source), dim, first, stop)
        sizes = source.resized(dim, stop - first)
        if source.dim != dim:
            return self.each(source, dim, sizes, lambda inner, d: self.cut(inner, d, first, stop))
        _, inside, _ = split(source.pieces, first, stop)
        return replace(source, sizes=sizes, pieces=[p.moved(-first) for p in inside])

    def select(self, source: Source, dim: int, at: Any) -> Source:
        """Position `at` of `dim`, without it."""
        if isinstance(source, Node):
            return self.write.call(aten.select.int, source, dim, dim_or_node(at))
        if self.scattered(source, dim):
            return self.select(self.node(source), dim, at)
        sizes = (*source.sizes[:dim], *source.sizes[dim + 1 :])
        if source.dim != dim:
            return self.each(source, dim, sizes, lambda inner, d: self.select(inner, d, at))
        _, (piece,), _ = split(source.pieces, at, at + 1)
        if piece.source is None:
            return self.zeros(source, sizes)
        found = self.settled(piece, source)
        return found if piece.start is None else self.select(found, dim, 0)

    def scattered(self, source: Pieces, dim: int) -> bool:
        """Is it better put together before a part is taken?"""
        return source.rest is not None or source.dim != dim and len(source.pieces) > FEW

    def each(self, source: Pieces, dim: int, sizes: tuple, part: Callable[[Source, int], Source]) -> Pieces:
        """The same part along `dim` of every piece."""
        def of(piece: ConcatPiece) -> ConcatPiece:
            lacks = piece.start is None and source.dim < dim
            return replace(piece, source=piece.source and part(piece.source, dim - lacks))

        gone = len(sizes) < len(source.sizes) and dim < source.dim
        return replace(source, dim=source.dim - gone, sizes=sizes, pieces=list(map(of, source.pieces)))

    # ------------------------------------------------------------ sums

    def sum(self, a: Source, b: Source) -> Source:
        if isinstance(a, Pieces) and isinstance(b, Pieces) and a.dim == b.dim and (a.rest is None or b.rest is None):
            return self.merged(a, b)
        return self.write.call(aten.add.Tensor, self.node(a), self.node(b))

    def merged(self, a: Pieces, b: Pieces) -> Pieces:
        """The sum of what is made of pieces along the same dimension, at most one of them with a rest."""
        if len(a.pieces) < len(b.pieces):
            a, b = b, a
        if (a.rest is not None or b.rest is not None) and _overlap(a, b):
            a, b = self.without_rest(a), self.without_rest(b)
        pieces = a.pieces
        for piece in b.pieces:
            if piece.source is not None:
                before, inside, after = split(pieces, piece.first, piece.stop)
                if any(p.source is not None for p in inside):
                    before[-1:] = [self.apart(p, a.dim) for p in before[-1:]]
                    after[:1] = [self.apart(p, a.dim) for p in after[:1]]
                pieces = [*before, *self.added(inside, piece, a), *after]
        rest = b.rest if a.rest is None else a.rest
        return replace(a, pieces=pieces, terms=a.terms + b.terms, rest=rest, parts=a.parts + b.parts)

    def added(self, inside: list[ConcatPiece], piece: ConcatPiece, whole: Pieces) -> list[ConcatPiece]:
        if all(p.source is None for p in inside):
            return [piece]
        if len(inside) > FEW:
            inside = [self.together(inside, whole)]
        return [self.plus(p, piece.within(p.first, p.stop), whole.dim) for p in inside]

    def apart(self, piece: ConcatPiece, dim: int) -> ConcatPiece:
        """What is left of a piece beside which something is put: a copy where it is small beside the tensor that it
        would keep alive. Windows that slide over a tensor leave one position each."""
        if not isinstance(piece.source, Node) or piece.start is None:
            return piece
        extent, size = hint(piece.stop - piece.first), hint(piece.source.meta["val"].shape[dim])
        if 2 * extent > size:
            return piece
        made = self.write.call(aten.clone.default, self.node(self.source(piece, dim)))
        return replace(piece, source=made, start=0)

    def together(self, inside: list[ConcatPiece], whole: Pieces) -> ConcatPiece:
        """Neighbours as one piece."""
        first, stop, terms = inside[0].first, inside[-1].stop, max(p.terms for p in inside)
        made = replace(whole, sizes=whole.resized(whole.dim, stop - first), terms=terms, rest=None,
                       pieces=[p.moved(-first) for p in inside])
        return ConcatPiece(first, stop, self.node(made), 0, terms)

    def plus(self, a: ConcatPiece, b: ConcatPiece, dim: int) -> ConcatPiece:
        """The sum of two on the same positions, `b` with a source."""
        if a.source is None:
            return b
        terms = a.terms + b.terms
        if a.start is None or b.start is None:
            return replace(a, source=self.sum(self.single(a, dim), self.single(b, dim)), start=None, terms=terms)
        return replace(a, source=self.sum(self.source(a, dim), self.source(b, dim)), start=0, terms=terms)

    def single(self, piece: ConcatPiece, dim: int) -> Source:
        """A piece of one position, without the dimension."""
        assert piece.source is not None
        return piece.source if piece.start is None else self.select(piece.source, dim, piece.start)

    def without_rest(self, whole: Pieces) -> Pieces:
        """The same with the rest added to each piece."""
        if whole.rest is None:
            return whole
        parts = [ConcatPiece(p.first, p.stop, whole.rest, p.first, 1) for p in whole.pieces]
        pieces = [q if p.source is None else self.plus(q, p, whole.dim)
                  for p, q in zip(whole.pieces, parts, strict=True)]
        return replace(whole, pieces=pieces, terms=whole.terms + 1, rest=None)


def _overlap(a: Pieces, b: Pieces) -> bool:
    """Do two pieces that are no zeros lie on the same positions?"""
    return any(
        p.source is not None
        for piece in b.pieces if piece.source is not None
        for p in split(a.pieces, piece.first, piece.stop)[1]
    )  # fmt: skip
