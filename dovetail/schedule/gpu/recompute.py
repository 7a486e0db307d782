"""Rows that no GPU program can keep: what is stored in one is computed again where it is read.

before:  loop h: b2[h] = v = f(x[h]); s = sum(v)      loop h: out[h] = b2[h] / s
after:   loop h: s = sum(f(x[h]))                     loop h: out[h] = f(x[h]) / s
"""

from __future__ import annotations

from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Expr, Group, Load, Loop, Statement, Store, map_exprs, rewrite


class RecomputedRows:
    """What the local buffers of a group hold, as far as its loops have been seen."""

    def __init__(self, group: Group) -> None:
        self.names = {b.name for b in group.locals}
        self.stored: dict[str, tuple[tuple[Dim, ...], Expr]] = {}  # the index stored to, and the value

    def body(self, loop: Loop) -> tuple[Statement, ...]:
        """The loop's statements without local buffers."""
        kept = []
        for statement in loop.body:
            made = map_exprs(statement, self.expanded)
            if isinstance(made, Store) and made.buffer.name in self.names:
                self.stored[made.buffer.name] = made.index, made.value
            else:
                kept.append(made)
        return tuple(kept)

    def expanded(self, expr: Expr) -> Expr:
        return rewrite(expr, {}, {}, self._leaf) if self.stored else expr

    def _leaf(self, node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name not in self.stored:
            return None
        index, value = self.stored[node.buffer.name]
        mapping = {dims.as_symbol(i): at for i, at in zip(index, node.index, strict=True) if isinstance(i, dims.Poly)}
        return rewrite(value, mapping, {})
