"""Comparisons of numbers drawn from [0, 1) that every such number decides.

    if np.random.uniform(0, 1) < self.layerdrop:      never, where layerdrop is 0.0
"""

from __future__ import annotations

from typing import Any

from dovetail.capture.values.base import Const, LazyConst, Session, Value
from dovetail.ir.source import Drawn

TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Generators' functions that draw from [0, 1), and the only arguments with which they do.
DRAWING: dict[str, tuple] = {"random": (), "random_sample": (), "uniform": (0, 1), "rand": ()}


def decided(sign: str, limit: Any) -> bool | None:
    """`drawn sign limit` of any number in [0, 1); None where it depends on the number."""
    if limit >= 1:
        return {"<": True, "<=": True, ">": False, ">=": False}.get(sign)
    if limit < 0:
        return {"<": False, "<=": False, ">": True, ">=": True}.get(sign)
    return {"<": False, ">=": True}.get(sign) if limit == 0 else None


def compared(s: Session, sign: str, left: Value, right: Value) -> bool | None:
    """The same of two numbers, of which either may be drawn by a generator of Python or NumPy. The entry relies on the
    other where that settles it."""
    if not s.random.draws:
        return None
    if type(left.source) is not Drawn:
        left, right, sign = right, left, TURNED.get(sign, sign)
    drawn, known = left.source, isinstance(right, Const) and right.cls in (int, float)
    if type(drawn) is not Drawn or not s.random.draws[drawn.index].unit or type(right.source) is Drawn or not known:
        return None
    limit: Any = right.real if isinstance(right, LazyConst) else right.value  # type: ignore[attr-defined]
    return None if decided(sign, limit) is None else decided(sign, right.value)  # type: ignore[attr-defined]
