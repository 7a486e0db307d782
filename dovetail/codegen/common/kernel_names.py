"""Kernels' names, as profiles and stack traces show them: `k_max_sub_exp_sum_div_6bfaf557fde1b3d9` is a softmax."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from dovetail.ir.liveness import statement_roots
from dovetail.ir.loops import Check, Expr, Group, Op, Reduce, Store

MOST = 6  # operators in a name
#: Left out of names: they choose, convert and compare what others compute.
SILENT = frozenset(
    "where cast rounded bitcast eq ne lt le gt ge and or xor not shl shr isnan isinf signbit".split()
)


def kernel_symbol(group: Group, text: str) -> str:
    """The name of the kernel of `group`, whose digest is that of `text`: what it computes first comes first."""
    words = list(dict.fromkeys(_words(group)))
    shown = words[:MOST] + ["and_more"] * (len(words) > MOST)
    return "_".join(["k", *(shown or ["copy"]), hashlib.sha256(text.encode()).hexdigest()[:16]])


def _words(group: Group) -> Iterator[str]:
    seen: set[Expr] = set()
    for statement in group.statements():
        for root in statement_roots(statement):
            yield from _operators(root, seen)
        if isinstance(statement, Reduce):
            yield statement.kind
        elif isinstance(statement, Store) and statement.scan:
            yield f"cum{statement.scan}"
        elif isinstance(statement, Check):
            yield "check"


def _operators(root: Expr, seen: set[Expr]) -> Iterator[str]:
    """Those of an expression, arguments first."""
    waiting = [(root, False)]
    while waiting:
        expr, done = waiting.pop()
        if done:
            if isinstance(expr, Op) and expr.name not in SILENT:
                yield expr.name
        elif expr not in seen:
            seen.add(expr)
            waiting.append((expr, True))
            waiting += [(part, False) for part in reversed(expr.parts)]
