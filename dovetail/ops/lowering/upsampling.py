"""Images made larger by whole numbers: upsample_nearest and what its backward pass computes.

PyTorch multiplies places by a scale in float32 and rounds down. Where the scale is a power of two nothing is lost, so
that is a division of whole numbers; other ratios are left to the library.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from dovetail.ir.devices import traits
from dovetail.ir.dims import Dim, floordiv
from dovetail.ir.loops import Expr
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import images, upsampling
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows, opmath
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows(takes_sizes=True)
_RATIOS = (1, 2, 4, 8, 16)
#: Elements whose gradients are added up at most: each is one read in the kernel.
_WINDOW = 16


def _ratios(small: Sequence[Dim], large: Sequence[Dim], scales: Sequence[float | None]) -> tuple[int, ...] | None:
    """How many times each spatial size is contained in the larger one; None where places are rounded."""
    found = [next((r for r in _RATIOS if n * r == m), None) for n, m in zip(small[2:], large[2:], strict=True)]
    given = itertools.chain(scales, itertools.repeat(None))
    exact = all(r is not None and s in (None, 0, r) for r, s in zip(found, given))
    return tuple(found) if exact else None  # type: ignore[arg-type]


@ROWS(*(f"aten::{name}{rank}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)),
      shape=images.nearest, trial=trials.EMPTY)
def upsample_nearest(emit: Emitter, out: Spec, self: Value, output_size: Any, *scales: float | None) -> Any:
    """Each place reads the one it comes from, where sizes are whole multiples."""
    ratios = _ratios(self.sizes, out.sizes, scales)
    if ratios is None or not traits(self.device).resizes:
        return NotImplemented

    def source(indices: Indices) -> Indices:
        return (*indices[:2], *(floordiv(i, r) for i, r in zip(indices[2:], ratios, strict=True)))

    return self.remapped(out.sizes, out.strides, source, None)


@ROWS(*(
    f"aten::{name}{rank}d_backward" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)
), symbolic_shape=upsampling.nearest_backward)  # fmt: skip
def upsample_nearest_backward(
    emit: Emitter, out: Spec, grad_output: Value, output_size: Any, input_size: Any, *scales: float | None
) -> Any:
    """Each place adds up the window that came from it."""
    ratios = _ratios(out.sizes, grad_output.sizes, scales)
    if ratios is None or not traits(grad_output.device).resizes or math.prod(ratios) > _WINDOW:
        return NotImplemented
    dtype = opmath(out.dtype)

    def at(indices: Indices) -> Expr:
        windows = itertools.product(*map(range, ratios))
        places = [[i * r + k for i, r, k in zip(indices[2:], ratios, window, strict=True)] for window in windows]
        parts = [build.cast(grad_output.at((*indices[:2], *place)), dtype) for place in places]
        return build.cast(reduce(build.add, parts), out.dtype)

    return emit.pointwise(out, at)
