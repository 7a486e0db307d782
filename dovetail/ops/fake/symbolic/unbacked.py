"""Results whose sizes, or values, are only known when the program runs: masks, `nonzero`, `unique`, `item()`.

    x[mask]         ->      u0 rows, where u0 is what `mask` selects: the same size for whatever it selects from

Inside `discovering` each gets an unbacked symbol (`sizes.py`) by the rule that its row names; elsewhere there is no
rule for such operators.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir import dims
from dovetail.ir.devices import on_host
from dovetail.ir.dims import Dim
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.fake.rules.layout import axis, broadcast, contiguous
from dovetail.ops.fake.symbolic.size_questions import all_same
from dovetail.ops.fake.symbolic.sizes import LEAST, Sizes
from dovetail.ops.fake.symbolic.symint import dim_of, symint

aten = torch.ops.aten
MASKS = (torch.bool, torch.uint8)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

_active: list[Sizes] = []  # one compilation runs at a time


class discovering:
    """Operators on fake tensors may have results of unbacked sizes, of this compilation; with None they may not."""

    def __init__(self, sizes: Sizes | None) -> None:
        self.sizes = [] if sizes is None else [sizes]

    def __enter__(self) -> None:
        self.before, _active[:] = _active[:], self.sizes

    def __exit__(self, *error: object) -> None:
        _active[:] = self.before


def active() -> Sizes | None:
    """The sizes of the compilation that may have late ones; None outside of `discovering`."""
    return _active[0] if _active else None


def keep_sizes(node: torch.fx.Node, found: Any) -> torch.fx.Node:
    """Of a node that was inferred in other layouts than its result: what it finds out is what the result found out.

    Operators that write have no result to compare with, and find out nothing.
    """
    if found is not None:
        node.meta["val"] = _with_sizes(node.meta["val"], found)
    return node


def _with_sizes(val: Any, found: Any) -> Any:
    if isinstance(val, (tuple, list)):
        return type(val)(map(_with_sizes, val, found))
    if not isinstance(val, torch.Tensor):
        return found
    pairs = [(dim_of(mine), dim_of(size)) for mine, size in zip(val.shape, found.shape, strict=True)]
    again = {symbol: size for mine, size in pairs for symbol in dims.symbols(mine) if dims.of_atom(symbol) is mine}
    if all(dims.of_atom(symbol) is size for symbol, size in again.items()):
        return val
    strides = tuple(symint(_active[0], dims.substitute(dim_of(stride), again)) for stride in val.stride())
    return type(val)(tuple(found.shape), strides, val.dtype, val.device)


# ---------------------------------------------------------------- masks


def _count(sizes: Sizes, mask: torch.Tensor, operator: str, kind: str = "selected", lo: int = 0) -> Dim:
    """How many elements of a mask are not zero: one symbol, as long as nothing writes to it."""
    if mask.is_inference():
        return sizes.unbacked_symbol(operator, lo)
    mask = sizes.masks.first(mask)
    key = kind, id(mask)
    known = sizes.counts.get(key)
    if known is None or known[1] != mask._version:
        known = sizes.counts[key] = mask, mask._version, sizes.unbacked_symbol(operator, lo)
    return known[2]


def without_masks(args: tuple, cls: type) -> tuple:
    """The arguments of an indexing operator with a vector of places for each dimension of a mask."""
    sizes, given = _active[0], []
    for index in args[1]:
        if index is None or index.dtype not in MASKS:
            given.append(index)
            continue
        count = symint(sizes, _count(sizes, index, "a mask"))
        given += [cls((count,), (1,), torch.int64, index.device) for _ in range(index.dim())]
        if not index.dim():  # a mask without dimensions adds one
            return NotImplemented
    return args[0], given, *args[2:]


def masked_select(sizes: Sizes, x: torch.Tensor, mask: torch.Tensor) -> Any:
    """As many elements as the mask has, if it is as large as the result."""
    if mask.dtype is not torch.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast([tuple(x.shape), tuple(mask.shape)])
    whole = all_same(shape, mask.shape)
    count = _count(sizes, mask, "a mask") if whole else sizes.unbacked_symbol("masked_select")
    return _vector(sizes, count, x.dtype, x.device)


def nonzero(sizes: Sizes, x: torch.Tensor) -> Any:
    """A row of places for each element, laid out column by column."""
    count = symint(sizes, _count(sizes, x, "nonzero" if x.dtype is not torch.bool else "a mask"))
    return Spec((count, x.dim()), (1, count), torch.int64, x.device)


# ---------------------------------------------------------------- others


def _vector(sizes: Sizes, count: Dim, dtype: torch.dtype, device: torch.device) -> Spec:
    return Spec((symint(sizes, count),), (1,), dtype, device)


def unique(sizes: Sizes, x: torch.Tensor, sorted: bool = True, inverse: bool = False, counts: bool = False) -> Any:
    """Values, the place of each element among them, and counts."""
    count = sizes.unbacked_symbol("unique")
    return (
        _vector(sizes, count, x.dtype, x.device), _places(x.shape, inverse, x),
        _vector(sizes, count, torch.int64, x.device) if counts else _places((), False, x),
    )  # fmt: skip


def _places(shape: Any, wanted: bool, x: torch.Tensor) -> Spec:
    shape = tuple(shape) if wanted else (0,)
    return Spec(shape, contiguous(shape), torch.int64, x.device)


def unique_pair(sizes: Sizes, x: torch.Tensor, sorted: bool = True, inverse: bool = False) -> Any:
    """As `unique`, without counts."""
    return unique(sizes, x, sorted, inverse)[:2]


def unique_rows(
    sizes: Sizes, x: torch.Tensor, dim: int, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> Any:
    """The whole is computed on a CPU, whatever is asked for."""
    count = symint(sizes, sizes.unbacked_symbol("unique"))
    at = axis(dim, x.dim())
    empty = [d for d, n in enumerate(x.shape) if n == 0]
    if empty not in ([], [at]):
        several = "Number of zero sized dimensions is more than one, so unique cannot be applied "
        other = "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        raise RuntimeError(several if at in empty else other)
    rest = [d for d in range(x.dim()) if d != at]
    inner = contiguous((count, *(x.shape[d] for d in rest)))
    strides, shape = list(inner[1:]), list(x.shape)
    strides.insert(at, inner[0])
    shape[at] = count
    always = on_host(x)
    return (
        Spec(tuple(shape), tuple(strides), x.dtype, x.device), _places((x.shape[at],), inverse or always, x),
        _places((count,), counts or always, x),
    )  # fmt: skip


def unique_consecutive(
    sizes: Sizes, x: torch.Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> Any:
    """As `unique`, of neighbours; of whole rows where a dimension is given."""
    if dim is not None:
        return unique_rows(sizes, x, dim, False, inverse, counts)
    return unique(sizes, x, False, inverse, counts)


def unique_rows_consecutive(
    sizes: Sizes, x: torch.Tensor, dim: int, inverse: bool = False, counts: bool = False
) -> Any:
    """As `unique_rows`, of neighbours."""
    return unique_rows(sizes, x, dim, False, inverse, counts)


def repeat_interleave(sizes: Sizes, repeats: torch.Tensor, *, output_size: Any = None) -> Any:
    """As many places as the repeats add up to."""
    count = sizes.unbacked_symbol("repeat_interleave")
    return _vector(sizes, count, repeats.dtype, repeats.device)


def bincount(sizes: Sizes, x: torch.Tensor, weights: Any = None, minlength: Any = 0) -> Any:
    """At least `minlength` counts."""
    count = sizes.unbacked_symbol("bincount", minlength if isinstance(minlength, int) else 0)
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype is torch.float32 else torch.float64
    return _vector(sizes, count, dtype, x.device)


def item(sizes: Sizes, x: torch.Tensor) -> Any:
    """A number that the program finds out: the same one for a tensor that nothing has written to."""
    return symint(sizes, _count(sizes, x, "item()", "value", 0 if x.dtype is torch.uint8 else LEAST))
