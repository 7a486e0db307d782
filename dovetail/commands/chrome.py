"""What was recorded in the trace event format, which chrome://tracing and Perfetto show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dovetail.commands.recorded import Process, RecordedCompilation


def chrome_trace(processes: Sequence[Process]) -> dict[str, Any]:
    """Compilations with their stages as slices, graph breaks and warnings as instants; microseconds since 1970."""
    return {"traceEvents": [event for number, p in enumerate(processes) for event in _process(number, p)]}


def _process(number: int, process: Process) -> Iterator[dict[str, Any]]:
    title = f"{process.name} on {process.about.get('host', '?')}"
    yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": title}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
    for compilation in process.compilations.values():
        yield from _compilation(number, compilation)
    for warning in process.warnings:
        yield _instant(number, "warning", warning["time"], {"message": warning["message"], "place": warning["place"]})


def _compilation(number: int, of: RecordedCompilation) -> Iterator[dict[str, Any]]:
    args = {"place": of.place, "entry": of.index, "outcome": of.outcome, "reasons": [r[0] for r in of.reasons if r]}
    yield _slice(number, of.function, of.began, of.length, args)
    for stage in of.stages:
        yield _slice(number, stage.name, stage.began, stage.seconds, {"compilation": of.number})
    for found in of.breaks:
        yield _instant(number, f"graph break [{found['code']}]", found["time"], {"reason": found["reason"]})


def _slice(number: int, name: str, began: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "cat": "compile", "pid": number, "tid": 0, "ts": began * 1e6, "dur": seconds * 1e6,
        "args": args,
    }  # fmt: skip


def _instant(number: int, name: str, at: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "name": name, "cat": "compile", "pid": number, "tid": 0, "ts": at * 1e6, "args": args}
