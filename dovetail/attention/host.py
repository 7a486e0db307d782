"""flex_attention on a CPU: one kernel, forward.

before:  flex_attention(score_mod, mask_mod, q, k, v, scale, [slopes], [])
after:   %out, %logarithms, %largest = dovetail.template([%q, %k, %v, %slopes], "...", [])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.attention.elements import scores
from dovetail.codegen.cpu import attention as templates
from dovetail.errors import Unsupported
from dovetail.ir import dims
from dovetail.ir.attention import Attention
from dovetail.ir.devices import on_host
from dovetail.ir.dims import Dim
from dovetail.ops.calls.flex_attention import strides_like
from dovetail.ops.fake.symbolic.size_questions import sizes_behind
from dovetail.ops.fake.symbolic.symint import dim_of, symint
from dovetail.ops.own.template import begin, checking_template, template

Tensors = Sequence[torch.Tensor]
#: Places are taken for numbers of 32 bits: a sequence of more would not fit into memory.
LONGEST = (1 << 31) - 1


def recorded(functions: tuple[Any, Any], lifted: tuple[Tensors, Tensors], tensors: Tensors, scale: float) -> Any:
    """What flex_attention gives; NotImplemented where gradients are wanted and for what is more than an expression."""
    every = [*lifted[0], *lifted[1]]
    if not on_host(tensors[0]) or torch.is_grad_enabled() and any(t.requires_grad for t in (*tensors, *every)):
        return NotImplemented
    query, key, value = (t if t.stride(-1) == 1 else t.contiguous() for t in tensors)
    batch, heads, rows, width = _dims(query.shape)
    groups, keys, value_width = _dims(value.shape[1:])
    try:
        with _disable_current_modes():
            places = batch, heads, dims.minimum(rows, LONGEST), dims.minimum(keys, LONGEST)
            found = scores(places, query.device, functions, lifted, trained=False)
    except Unsupported:
        return NotImplemented
    layouts = [_dims(t.stride()) for t in (query, key, value)]
    attention = Attention(batch, heads, groups, rows, keys, width, value_width, query.dtype, scale, found, *layouts)
    read = [every[int(t.name.removeprefix("table"))] for t in found.tables]
    tables = {t.name: _dims(given.stride()) for t, given in zip(found.tables, read, strict=True)}
    out = _dims(strides_like((*query.shape[:3], value.shape[3]), query))
    made = templates.forward(attention, out, tables)
    begin(made, query.device)
    behind: Any = sizes_behind(n for t in (query, key, value, *read) for n in (*t.shape, *t.stride()))
    sizes = [symint(behind, dims.of_atom(s)) for s in made.symbols]
    return (checking_template if made.messages else template)([query, key, value, *read], made.code(), sizes)


def _dims(sizes: Sequence[Any]) -> tuple[Dim, ...]:
    return tuple(map(dim_of, sizes))
