"""Gradients of tables that a score_mod reads: those of elements, added up where the elements lie.

What is the same for all keys of a row is summed over them first, in registers, and what is the same for all rows over a
block of them. Additions in memory are atomic: their order, and so the last bits, differ from call to call.
"""

from __future__ import annotations

from dovetail.codegen.gpu.attention.writer import AttentionWriter
from dovetail.ir import dims
from dovetail.ir.loops import Load
from dovetail.ir.template import Result


class Sums:
    """Of the kernel whose programs have a block of rows each, and go along the keys."""

    def __init__(self, writer: AttentionWriter) -> None:
        self.writer, self.scores = writer, writer.attention.scores
        _, _, self.row, self.key = map(dims.as_symbol, self.scores.places)
        writer.forms["@sum"] = self.step

    def begin(self) -> None:
        for k, (element, _) in enumerate(self.scores.sums):
            if self.key not in element.symbols:
                self.writer.lines(f"sum{k} = tl.full(({self.writer.blocks.rows}, 1), 0.0, tl.float32)")

    def steps(self) -> list[str]:
        """Lines of a block of keys."""
        return [f"@sum {k}" for k in range(len(self.scores.sums))]

    def step(self, number: str, masked: bool) -> list[str]:
        element, gradient = self.scores.sums[int(number)]
        exists = [text for text in ("shown" if masked else "", self.writer.rows_exist) if text]
        here = f"part{number}"
        lines = [f"{here} = tl.broadcast_to({self.writer.em.value(gradient)}, score.shape).to(tl.float32)"]
        lines += [f"{here} = tl.where({text}, {here}, 0.0)" for text in exists]
        if self.key not in element.symbols:
            return [*lines, f"sum{number} += tl.reduce({here}, 1, _sum)[:, None]"]
        if self.row not in element.symbols:
            lines += [f"{here} = tl.reduce({here}, 0, _sum)[None, :]"]
        return [*lines, self.added(element, here)]

    def end(self) -> None:
        for k, (element, _) in enumerate(self.scores.sums):
            if self.key not in element.symbols:
                if self.row not in element.symbols:
                    self.writer.lines(f"sum{k} = tl.reduce(sum{k}, 0, _sum)[None, :]")
                self.writer.lines(self.added(element, f"sum{k}"))

    def added(self, element: Load, found: str) -> str:
        """A line that adds to the gradients of a table's elements. Places that do not exist have added zero."""
        address = f"of_{element.buffer.name} + ({self.writer.em.index(element.index[0])}) + 0 * {found}.to(tl.int32)"
        return f"tl.atomic_add({address}, {found}, mask={found} != 0.0, sem='relaxed')"

    def results(self) -> dict[str, Result]:
        """A float32 for each element of a table, at first zero."""
        return {
            f"of_{table.name}": Result("float32", table.sizes, (1,), zeroed=True)
            for table in self.scores.learned
        }
