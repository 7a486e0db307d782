"""How the residual fetches the graph's inputs: what several paths have in common is loaded once.

    _o = graph(K[0].state.get(K[0].param_groups[0]['params'][3])['exp_avg'], ...)      before
    _l0 = K[0]; _l1 = _l0.param_groups[0]['params']; _l2 = _l0.state                   after
    _l3 = _l2.get(_l1[3])
    _o = graph(_l3['exp_avg'], ...)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from dovetail.ir.source import Keyed, Source


class Loading:
    """`lines` come before the call of the graph; `text` gives each argument."""

    def __init__(self, sources: list[Source]) -> None:
        self.uses: Counter[Source] = Counter()
        for source in sources:
            self._count(source)
        self.lines: list[str] = []
        self._names: dict[Source, str] = {}

    def _count(self, source: Source) -> None:
        self.uses[source] += 1
        if self.uses[source] == 1:
            for part in _parts(source):
                self._count(part)

    def text(self, source: Source) -> str:
        """An expression for the source's value."""
        found = self._names.get(source)
        if found is not None:
            return found
        text = self._own(source)
        if self.uses[source] < 2 or text.isidentifier():
            return text
        name = self._names[source] = f"_l{len(self._names)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _own(self, source: Source) -> str:
        whole = source.expr()
        if isinstance(source, Keyed):
            return source.loaded(self.text(source.base), self.text(source.key))
        base: Any = getattr(source, "base", None)
        if base is None or not whole.startswith(base.expr()):
            return whole
        return self.text(base) + whole[len(base.expr()) :]


def _parts(source: Any) -> list[Source]:
    if isinstance(source, Keyed):
        return [source.base, source.key]
    base = getattr(source, "base", None)
    return [base] if base is not None and source.expr().startswith(base.expr()) else []
