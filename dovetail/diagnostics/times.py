"""`compile_times()`: where compiling spent its time, by stage."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from dovetail.diagnostics.events import CompileRecord, Stage

_KEPT = 10_000


class Records:
    """The compilations of this process, the newest `_KEPT` of them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._started = 0
        self._all: deque[CompileRecord] = deque(maxlen=_KEPT)

    def start(self, function: str, place: str, index: int, reasons: Sequence[list[str]]) -> CompileRecord:
        with self._lock:
            record = CompileRecord(function, place, self._started, index, reasons=tuple(reasons))
            self._started += 1
            self._all.append(record)
        return record

    def all(self) -> list[CompileRecord]:
        with self._lock:
            return list(self._all)

    def clear(self) -> None:
        with self._lock:
            self._all.clear()


RECORDS = Records()


class Timed(Protocol):
    """A compilation of this process, or one that was recorded."""

    @property
    def stages(self) -> list[Stage]: ...


def by_stage(records: Iterable[Timed]) -> dict[str, list[float]]:
    """Seconds of each run of each stage, in the order in which stages first appear."""
    found: dict[str, list[float]] = {}
    for record in records:
        for stage in record.stages:
            found.setdefault(stage.name, []).append(stage.seconds)
    return found


def stage_lines(records: Sequence[CompileRecord]) -> str:
    """A table: stage, how often it ran, seconds in all, share of the total, longest run."""
    stages = by_stage(records)
    total = sum(r.seconds for r in records)
    rows = [("stage", "runs", "seconds", "share", "longest")]
    for name, runs in stages.items():
        share = f"{sum(runs) / total:.0%}" if total else "-"
        rows.append((name, str(len(runs)), f"{sum(runs):.4f}", share, f"{max(runs):.4f}"))
    rows.append(("total", str(len(records)), f"{total:.4f}", "", ""))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths)))
        for row in rows
    )


def compile_times(repr: str = "str", aggregate: bool = False) -> str | tuple[list[str], list[list[str]]]:
    """Seconds spent compiling, by stage, over the whole process.

    `repr="str"` gives a table as text; `repr="csv"` gives `(headers, rows)`: one row of seconds for each
    compilation, or with `aggregate` one row of sums.
    """
    records = RECORDS.all()
    if repr == "str":
        return stage_lines(records)
    if repr != "csv":
        raise ValueError(f"repr must be 'str' or 'csv', not {repr!r}")
    headers = list(by_stage(records))
    rows = [[sum(s.seconds for s in r.stages if s.name == h) for h in headers] for r in records]
    if aggregate:
        rows = [[sum(column) for column in zip(*rows)]] if rows else []
    return headers, [[f"{cell:.6f}" for cell in row] for row in rows]
