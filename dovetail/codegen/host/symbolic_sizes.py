"""Symbolic sizes in a host program: where the symbols' values come from, and what is computed from them.

    def sizes(a0, a1):
        return (a0.size(0), a1.size(1), )
    def measure(s0, s1):
        d0 = 64*s0
        o0 = 128; o1 = o0 + ...
        return (o1, s0, s1, d0, o0, )

`measure` runs once for each combination of values; the first number that it gives is the size of the block in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dovetail.errors import InternalError
from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.dimvalues import bind
from dovetail.ir.kernel import ALIGNMENT, MemoryPlan
from dovetail.ir.loops import Buffer, Param, Program


class Measures:
    """`symbols` are all that the program mentions; `derived` names the other expressions."""

    def __init__(self, program: Program) -> None:
        self.symbols = program.sizes
        self.derived: dict[Dim, str] = {}
        self.slots = 0
        self.sources = bind(_given(program)) if self.symbols else {}
        missing = [s.name for s in self.symbols if s not in self.sources]
        if missing:
            raise InternalError("codegen", f"no input has the size {', '.join(missing)}")

    @property
    def parameter(self) -> str:
        return ", given" if self.symbols else ""

    def text(self, value: Any) -> str:
        """A name for what was measured, or a literal."""
        if not isinstance(value, dims.Poly):
            return value.name if isinstance(value, Param) else str(value)
        if len(value.symbols) == 1 and value is dims.of_atom(next(iter(value.symbols))):
            return next(iter(value.symbols)).name
        return self.derived.setdefault(value, f"d{len(self.derived)}")

    def unpacked(self, lines: Iterable[str]) -> list[str]:
        """The line that takes out of `given` what these lines mention."""
        if not self.symbols:
            return []
        used = set(re.findall(r"\b\w+\b", "\n".join(lines)))
        names = self.names()
        if not used.intersection(names):
            return []
        return [f"_, {''.join(f'{name}, ' for name in names)}= given"]

    def names(self) -> list[str]:
        return [*(s.name for s in self.symbols), *self.derived.values(), *(f"o{k}" for k in range(self.slots))]

    def functions(self, parameters: list[str], memory: MemoryPlan, consumes: bool) -> list[str]:
        """`sizes` and `measure`; nothing where all sizes are known."""
        self.slots = len(memory.slots)
        if not self.symbols:
            return []
        names = [s.name for s in self.symbols]
        lines = [f"def sizes({'box' if consumes else ', '.join(parameters)}):"]
        if consumes and parameters:
            lines.append(f"    {''.join(f'{p}, ' for p in parameters)}= box")
        if all(re.fullmatch(r"[\w.()]+", self.sources[s]) for s in self.symbols):
            lines.append(f"    return ({''.join(f'{self.sources[s]}, ' for s in self.symbols)})")
        else:
            lines += [f"    {symbol.name} = {text}" for symbol, text in self.sources.items()]
            lines.append(f"    return ({''.join(f'{n}, ' for n in names)})")
        lines += ["", f"def measure({', '.join(names)}):"]
        for dim, name in self.derived.items():
            lines += [f"    {line}" for line in _computed(name, dim)]
        lines += [f"    {line}" for line in _places(memory)]
        values = "".join(f"{name}, " for name in self.names())
        return [*lines, f"    return (top, {values})", ""]


def _given(program: Program) -> Iterable[tuple[str, Dim]]:
    for parameter in program.parameters():
        if isinstance(parameter, Buffer):
            yield from ((f"{parameter.name}.size({k})", size) for k, size in enumerate(parameter.sizes))
    for parameter in program.parameters():
        if isinstance(parameter, Buffer):
            yield from ((f"{parameter.name}.stride({k})", step) for k, step in enumerate(parameter.strides))
    yield from ((param.name, dim) for param, dim in program.measured)


def _computed(name: str, dim: Dim) -> list[str]:
    """An assignment. What is divided by the size of an empty dimension is an index into it, which nobody reads."""
    if not dims.divides(dim):
        return [f"{name} = {dim}"]
    return ["try:", f"    {name} = {dim}", "except ZeroDivisionError:", f"    {name} = 0"]


def _places(memory: MemoryPlan) -> Iterable[str]:
    """Offsets of the slots, one after the other behind what has fixed places."""
    yield f"top = {memory.size}"
    for k, sizes in enumerate(memory.slots):
        largest = f"max({', '.join(map(str, sizes))}, 1)"
        yield f"o{k} = top; top += -(-{largest} // {ALIGNMENT}) * {ALIGNMENT}"
