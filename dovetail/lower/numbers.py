"""Numbers and sizes known only when the program runs: which operators compute with them in loops of their own."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Symbol
from dovetail.ir.liveness import leaves, reads, statement_roots, writes
from dovetail.ir.loops import Group, LibraryCall, Param, Program, Store
from dovetail.ir.ranges import extent
from dovetail.ops.lowering import build
from dovetail.ops.lowering.registry import Row
from dovetail.ops.lowering.value import Spec, Value

_NONE: frozenset[Symbol] = frozenset()
_PLAIN = frozenset((*build.FLOATS, torch.int64, torch.bool))


def numbers_fit(row: Row, args: Any, kwargs: Any, out: Any) -> bool:
    """May the operator's lowering see these arguments?

    Where eager looks whether a number fits the dtype that it is converted to, the operator stays a library call.
    """
    given = list(leaves([args, kwargs]))
    numbers = [v for v in given if isinstance(v, Param)]
    if not numbers:
        return True
    if not row.takes_numbers or not isinstance(out, Spec):
        return False
    if out.dtype is torch.int64 and any(n.dtype is torch.float64 for n in numbers):
        return False
    return all(d in _PLAIN for d in (out.dtype, *(v.dtype for v in given if isinstance(v, Value))))


def sizes_fit(row: Row, args: Any, kwargs: Any) -> bool:
    """May the operator's lowering see these arguments, as far as symbolic sizes among them are concerned?"""
    taken = row.takes_sizes or row.takes_numbers
    return taken or not any(isinstance(v, dims.Poly) for v in leaves([args, kwargs]))


def sizes_of(program: Program) -> tuple[Symbol, ...]:
    """Every size symbol of the program, by name."""
    found: set[Symbol] = set()
    used = [b for item in program.items for b in (*reads(item).values(), *writes(item).values())]
    for buffer in (*program.inputs, *used):
        for dim in (*buffer.sizes, *buffer.strides, buffer.offset):
            found |= _NONE if isinstance(dim, int) else dim.symbols
    for item in program.items:
        if isinstance(item, LibraryCall):
            for value in leaves([item.args, dict(item.kwargs)]):
                found |= dims.symbols(value) if isinstance(value, dims.Poly) else set()
        elif isinstance(item, Group):
            found |= _in_group(item)
    for output in program.outputs:
        found |= dims.symbols(output.value) if isinstance(output.value, dims.Poly) else set()
    return tuple(sorted(found, key=lambda s: s.name))


def _in_group(group: Group) -> set[Symbol]:
    """Those of its ranges and indices that are sizes."""
    ranges = [extent(r) for r in (*group.outer, *(r for loop in group.loops for r in loop.inner))]
    found = {s for dim in ranges for s in dims.symbols(dim)}
    for statement in group.statements():
        for root in statement_roots(statement):
            found |= root.symbols
        if isinstance(statement, Store):
            found |= {s for dim in statement.index for s in dims.symbols(dim)}
    return {s for s in found if s.extent is None}
