"""Ranges cut in two: parts that programs share out among themselves, and what each reduces by itself.

before:  n < 16, h < 4096                    four parts:   n.p < 4      n.q < 4, h < 4096       n = 4 * n.p + n.q
before:  h < 50021 (a prime number)          four parts:   h.p < 4      h.q < 12512, where h = 12512 * h.p + h.q < 50021
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Const, Expr, Index, Load, Op, Reduce, extent, rewrite
from dovetail.ir.scalar import identity

#: Elements that a range whose size is not known is taken for; that one program reduces alone in any case.
SHORT = 2048
#: Cuts that leave a rest are at multiples of it, so that a part may be read as widely as the whole.
ALIGNED = 32


@dataclass
class Cut:
    """`shared` and `own` ranges; what becomes of a range that is cut; and what holds where there is an element."""

    shared: tuple[Dim, ...]
    own: tuple[Dim, ...]
    mapping: dict[dims.Symbol, Dim] = field(default_factory=dict)
    inside: Expr | None = None
    count: Dim = 0  # of elements that a part has
    memo: dict[Expr, Expr] = field(default_factory=dict)

    def moved(self, reduce: Reduce) -> Expr:
        """The value over a part."""
        value = rewrite(reduce.value, self.mapping, self.memo, self.masked)
        if self.inside is None:
            return value
        nothing = Const(identity(reduce.kind, value.dtype), value.dtype)
        return Op("where", (self.inside, value, nothing), value.dtype)

    def masked(self, node: Expr) -> Expr | None:
        if self.inside is None or not isinstance(node, Load) or not node.symbols & self.inside.symbols:
            return None
        inside = self.inside if node.mask is None else Op("and", (node.mask, self.inside), torch.bool)
        return Load(node.buffer, node.index, inside)


def cut(inner: tuple[Dim, ...], parts: int) -> Cut:
    """The ranges for `parts` programs, or a few more; for fewer where sizes are unknown."""
    made = _cut(inner, parts)
    made.count = made.count or size_of(made.own)
    return made


def _cut(inner: tuple[Dim, ...], parts: int) -> Cut:
    shared: list[Dim] = []
    for k, r in enumerate(inner):
        left = -(-parts // max(known(size_of(tuple(shared))), 1))
        if left <= 1:
            return Cut(tuple(shared), inner[k:])
        size, last = extent(r), k + 1 == len(inner)
        factor = _factor(size, left)
        if last and isinstance(size, int) and factor < left <= size // ALIGNED:
            return _ragged((*shared,), r, -(-size // left))
        if factor > 1 and factor != size and (not last or factor * 2 <= known(size)):
            high, low = _digits(r, factor, size // factor)  # type: ignore[operator]
            mapping = {dims.as_symbol(r): high * (size // factor) + low}
            return Cut((*shared, high), (low, *inner[k + 1 :]), mapping)
        if last:
            break
        shared.append(r)
    return Cut(tuple(shared), inner[len(shared) :])


def _ragged(shared: tuple[Dim, ...], r: Dim, length: int) -> Cut:
    """The last part is shorter."""
    size, length = extent(r), -(-length // ALIGNED) * ALIGNED
    high, low = _digits(r, -(-size // length), length)  # type: ignore[operator]
    place = high * length + low
    inside = Op("lt", (Index(place), Const(size, torch.int64)), torch.bool)  # type: ignore[arg-type]
    count = dims.minimum(length, size - high * length)
    return Cut((*shared, high), (low,), {dims.as_symbol(r): place}, inside, count)


def _digits(r: Dim, high: Dim, low: Dim) -> tuple[Dim, Dim]:
    name = dims.as_symbol(r).name
    return dims.symbol(f"{name}.p", 0, high), dims.symbol(f"{name}.q", 0, low)


def _factor(size: Dim, wanted: int) -> int:
    """The divisor of `size` nearest above `wanted`, or the largest; 1 where the size is not known."""
    if not isinstance(size, int):
        return 1
    divisors = [d for d in range(1, min(size, 8 * wanted) + 1) if size % d == 0]
    return next((d for d in divisors if d >= wanted), divisors[-1] if divisors else 1)


def size_of(ranges: tuple[Dim, ...]) -> Dim:
    return dims.product(map(extent, ranges))


def known(size: Dim) -> int:
    return size if isinstance(size, int) else SHORT
