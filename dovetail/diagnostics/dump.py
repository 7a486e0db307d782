"""`DOVETAIL_COMPILE_DEBUG=1`: every stage's text in `dovetail_debug/<n>_<function>/<nn>_<stage>.txt`.

In a program of several processes that is `dovetail_debug/rank<k>/<n>_<function>`: they count alike.
"""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.diagnostics.events import CompileRecord
from dovetail.diagnostics.times import stage_lines
from dovetail.ir.ranks import rank

_SUFFIX = {
    "graph_code": "py", "guards": "py", "bytecode": "py", "output_code": "py", "call_code": "py", "kernel_code": "ll",
    "kernels": "json",
}  # fmt: skip


class DumpSink:
    """Writes the artifacts of one compilation, numbered in the order in which they came."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self.count = 0

    def wants(self, kind: str) -> bool:
        return True

    def folder(self, record: CompileRecord) -> Path:
        name = re.sub(r"[^A-Za-z0-9_.]+", "_", record.function).strip("_") or "function"
        number = rank()
        root = self.root if number is None else self.root / f"rank{number}"
        return root / f"{record.number}_{name}"

    def write(self, record: CompileRecord, kind: str, text: str) -> None:
        folder = self.folder(record)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.count:02d}_{kind}.{_SUFFIX.get(kind, 'txt')}").write_text(text + "\n", encoding="utf-8")
        self.count += 1

    def finish(self, record: CompileRecord) -> None:
        """What there is to say at the end: the outcome and the times."""
        reasons = "".join(f"\nrecompiled because {r[0]}" for r in record.reasons)
        self.write(
            record, "summary", f"{record.function} {record.place}\n{record.outcome}{reasons}\n\n{stage_lines([record])}"
        )
