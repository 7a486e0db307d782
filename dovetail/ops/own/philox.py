"""`dovetail::draw`: random numbers as a function of a seed and of where an element stands.

Drawing this way is element-wise, so it becomes part of the kernels that use the numbers, and gives the same ones
wherever it is computed again. `normalize/passes/random_numbers.py` puts it into graphs, with the operator that draws
the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir.loops import Const, Expr, Local, Op
from dovetail.ir.records import dataclass
from dovetail.ir.reshape import contiguous_strides
from dovetail.ir.scalar import SCALAR_OPS
from dovetail.ops.lowering import build
from dovetail.ops.lowering.build import const
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.lowering.value import Indices, Spec, Value
from dovetail.ops.own.library import library

ROWS = Rows()
LIBRARY = library(__name__)
LIBRARY.define(
    "draw(Tensor seeds, int place, SymInt[] size, SymInt[] stride, str kind) -> Tensor", tags=(torch.Tag.pointwise,)
)
draw: Any = torch.ops.dovetail.draw.default


# ---------------------------------------------------------------- from words to numbers


def _long(first: Expr, second: Expr) -> Expr:
    return build.or_(first, build.shl(second, const(32, torch.int64)))


def _right(word: Expr, count: int) -> Expr:
    return build.shr(word, const(count, torch.int64))


def _uniform(word: Expr) -> Expr:
    """24 bits, so that every value is exact."""
    return build.scale_by(build.cast(_right(word, 8), torch.float32), 2.0**-24)


def _mantissa(first: Expr, second: Expr) -> Expr:
    """53 bits."""
    return build.or_(build.shl(first, const(21, torch.int64)), _right(second, 11))


def _double(first: Expr, second: Expr) -> Expr:
    return build.scale_by(build.cast(_mantissa(first, second), torch.float64), 2.0**-53)


def _normal(first: Expr, second: Expr) -> Expr:
    """By Box and Muller, of a radius from (0, 1] and an angle."""
    radius = build.scale_by(build.cast(build.shift_by(first, 1), torch.float32), 2.0**-32)
    return _polar(radius, _uniform(second))


def _double_normal(*words: Expr) -> Expr:
    radius = build.scale_by(build.cast(build.shift_by(_mantissa(*words[:2]), 1), torch.float64), 2.0**-53)
    return _polar(radius, _double(*words[2:]))


def _polar(radius: Expr, turn: Expr) -> Expr:
    length = build.sqrt(build.scale_by(build.log(radius), -2))
    return build.mul(length, Op("cos", (build.scale_by(turn, 2 * math.pi),), turn.dtype))


@dataclass(frozen=True)
class Kind:
    """`number` makes one of so many `words`, each an int64 in [0, 2**32)."""

    dtype: torch.dtype
    words: int
    number: Callable[..., Expr]


KINDS: dict[str, Kind] = {
    "word": Kind(torch.int64, 1, lambda word: word),
    "long": Kind(torch.int64, 2, _long),
    "uniform": Kind(torch.float32, 1, _uniform),  # in [0, 1)
    "double uniform": Kind(torch.float64, 2, _double),
    "normal": Kind(torch.float32, 2, _normal),
    "double normal": Kind(torch.float64, 4, _double_normal),
}


# ---------------------------------------------------------------- in kernels


@ROWS("dovetail::draw", takes_sizes=True, cheap=True)
def lowered(emit: Emitter, out: Spec, seeds: Value, place: int, size: Any, stride: Any, kind: str) -> Value:
    """Elements are counted row by row, whatever the layout."""
    chosen, steps = KINDS[kind], contiguous_strides(out.sizes)

    def at(indices: Indices) -> Expr:
        position = build.index(sum((i * step for i, step in zip(indices, steps, strict=True)), start=0))
        first = build.scale_by(position, chosen.words)
        words = [build.shift_by(first, k) for k in range(chosen.words)]
        return chosen.number(*(Op("philox", (seeds.at((place,)), word), torch.int64) for word in words))

    return emit.pointwise(out, at)


# ---------------------------------------------------------------- on tensors


def _drawn(
    seeds: torch.Tensor, place: int, size: Sequence[int], stride: Sequence[int], kind: str
) -> torch.Tensor:  # fmt: skip
    chosen = KINDS[kind]
    first = torch.arange(math.prod(size), device=seeds.device).reshape(size) * chosen.words
    words = [SCALAR_OPS["philox"].evaluate(seeds[place], first + k) for k in range(chosen.words)]
    found = _value(chosen.number(*(Local(str(k), torch.int64) for k in range(chosen.words))), words)
    return _shape(seeds, place, size, stride, kind).copy_(found)


def _value(expr: Expr, words: list[torch.Tensor]) -> torch.Tensor:
    if isinstance(expr, Local):
        return words[int(expr.name)]
    if isinstance(expr, Const):
        return torch.tensor(expr.value, dtype=expr.dtype, device=words[0].device)
    assert isinstance(expr, Op)
    args = [_value(a, words) for a in expr.args]
    return args[0].to(expr.dtype) if expr.name == "cast" else SCALAR_OPS[expr.name].evaluate(*args)


def _shape(seeds: torch.Tensor, place: int, size: Any, stride: Any, kind: str) -> torch.Tensor:
    return seeds.new_empty_strided(size, stride, dtype=KINDS[kind].dtype)


LIBRARY.impl("draw", _drawn, "CompositeExplicitAutograd")
LIBRARY.impl("draw", _shape, "Meta")
