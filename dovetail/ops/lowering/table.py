"""The table of lowerings: every operator that becomes loops."""

from __future__ import annotations

from dovetail.ops.lowering import (
    activation,
    arithmetic,
    comparison,
    creation,
    elementary,
    gradients,
    indexing,
    losses,
    movement,
    norm_gradients,
    normalization,
    products,
    reduction,
    scans,
    scatter,
    softmax,
    upsampling,
    views,
)
from dovetail.ops.lowering.registry import Lowering, Rows
from dovetail.ops.own import philox

_MODULES = (
    activation, arithmetic, comparison, creation, philox, elementary, gradients, indexing, losses, movement,
    norm_gradients, normalization, products, reduction, upsampling, scans, scatter, softmax, views,
)

LOWERINGS: dict[str, Lowering] = {}
for _module in _MODULES:
    assert not LOWERINGS.keys() & _module.ROWS.keys(), "an operator has rows in two modules"
    LOWERINGS.update(_module.ROWS)

#: Rows that only change indices: they hold for every dtype.
VIEWS: Rows = views.ROWS

#: Rows that may go to another library than eager does: results differ in rounding.
PRODUCTS: Rows = products.ROWS

#: Operators whose rows take numbers that are known only when the program runs; others are library calls then.
TAKES_NUMBERS = frozenset(
    f"aten::{name}"
    for name in """add sub rsub mul div true_divide pow remainder fmod floor_divide clamp clamp_min clamp_max
    lt le gt ge eq ne full new_full full_like scalar_tensor fill addcmul addcdiv lerp leaky_relu masked_fill where
    threshold copysign xlogy hardshrink softshrink""".split()
)

#: Operators whose rows take symbolic sizes among their arguments (numbers that they compute with are sizes too).
TAKES_SIZES = TAKES_NUMBERS | frozenset(
    f"aten::{name}"
    for name in """view _unsafe_view reshape _reshape_alias expand slice select narrow split split_with_sizes as_strided
    unfold zeros ones empty new_zeros new_ones new_empty empty_strided new_empty_strided empty_permuted arange
    constant_pad_nd repeat slice_scatter select_scatter slice_backward select_backward embedding_dense_backward
    native_group_norm native_layer_norm native_layer_norm_backward eye triu tril broadcast_to unflatten unsafe_split
    unsafe_split_with_sizes _efficientzerotensor""".split()
) | frozenset(philox.ROWS) | frozenset(upsampling.ROWS)

#: Operators that cost little next to reading their operands: a backward pass may compute them again.
CHEAP = frozenset(
    name for module in (activation, arithmetic, comparison, creation, philox, elementary) for name in module.ROWS
)
CHEAP |= {"aten::clone"}
