"""Estimated time of a loop in picoseconds on one thread: is it worth waking the others?"""

from __future__ import annotations

from dovetail.codegen.cpu import vecmath
from dovetail.codegen.cpu.axis import accesses
from dovetail.codegen.cpu.types import type_of
from dovetail.ir import dims
from dovetail.ir.dims import Symbol
from dovetail.ir.liveness import nodes, statement_roots
from dovetail.ir.loops import Load, Loop, Op, Store

_BYTE, _SCATTERED, _OPERATOR, _FUNCTION = 15, 600, 12, 400


def of_loop(loop: Loop, axis: Symbol | None) -> int:
    """Picoseconds for one index of the loop's ranges."""
    total = 0
    for _, address, item in accesses(loop.body):
        assert isinstance(item, (Load, Store))
        near = axis is not None and dims.coefficient(address, axis) in (0, 1)
        total += type_of(item.buffer.dtype).size * _BYTE if near else _SCATTERED
    for node in nodes([r for s in loop.body for r in statement_roots(s)]):
        if isinstance(node, Op):
            total += _FUNCTION if vecmath.has(node.name) else _OPERATOR
    return max(total, 1) * (1 if axis is not None else 4)
