"""What `DOVETAIL_TRACE` has recorded, read back: processes, their compilations, what was said meanwhile.

The events are those of `dovetail.diagnostics.trace`. A line that is no event, as the last one of a process that was
killed may be, is left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from dovetail.diagnostics.events import Stage
from dovetail.diagnostics.trace import VERSION
from dovetail.ir.records import dataclass

Event = dict[str, Any]
RESUMED = " (resumed)"


@dataclass(eq=False)
class RecordedCompilation:
    """One compilation. `after` is the graph break whose rest it compiles."""

    process: Process
    number: int
    function: str
    place: str
    index: int = 0
    reasons: list[list[str]] = field(default_factory=list)
    began: float = 0.0
    outcome: str = "unfinished"
    stages: list[Stage] = field(default_factory=list)
    breaks: list[Event] = field(default_factory=list)
    artifacts: list[tuple[str, str]] = field(default_factory=list)  # kind, digest
    after: Event | None = None
    dynamic: bool | None = None
    sources: dict[str, str] = field(default_factory=dict)  # of the lines that reasons name, and of the place

    def source(self, line: str) -> str:
        """The text of `file:line`, else of the function's first line."""
        return self.sources.get(line or self.place, "")

    @property
    def seconds(self) -> float:
        """Spent in stages."""
        return float(sum(stage.seconds for stage in self.stages if stage.depth == 0))

    @property
    def length(self) -> float:
        """Seconds from its begin to the end of its last stage."""
        return max((stage.began + stage.seconds for stage in self.stages), default=self.began) - self.began

    @property
    def key(self) -> tuple[str, str, int]:
        """The same compilation in another rank has the same."""
        return self.function, self.place, self.index

    def texts(self, kind: str) -> Iterator[str]:
        return (self.process.texts.get(digest, "") for found, digest in self.artifacts if found == kind)

    @cached_property
    def programs(self) -> list[tuple[dict[str, Any], str]]:
        """What `dovetail.diagnostics.kernels` told of each program, and the text of its kernels."""
        found: list[tuple[dict[str, Any], str]] = []
        for kind, digest in self.artifacts:
            text = self.process.texts.get(digest, "")
            if kind == "kernels" and text:
                told = json.loads(text)
                told["stacks"] = [[told["places"][number] for number in stack] for stack in told["stacks"]]
                found.append((told, ""))
            elif kind == "kernel_code" and found:
                found[-1] = found[-1][0], text
        return found


@dataclass(eq=False)
class Process:
    """One process of the program that was recorded."""

    file: Path
    about: Event
    compilations: dict[int, RecordedCompilation] = field(default_factory=dict)
    warnings: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    damaged: int = 0
    broke: Event | None = None  # the last graph break

    @property
    def name(self) -> str:
        rank, pid = self.about.get("rank"), self.about.get("pid", "?")
        return f"rank {rank}, process {pid}" if rank is not None else f"process {pid}"

    @property
    def seconds(self) -> float:
        return sum(c.seconds for c in self.compilations.values())

    def take(self, event: Event) -> None:
        """One event after the first."""
        taker = _TAKERS.get(event.get("event", ""))
        if taker is not None:
            taker(self, event)

    def compilation(self, event: Event) -> RecordedCompilation:
        number = event["id"]
        if number not in self.compilations:  # a fork goes on with what its parent had begun
            self.compilations[number] = RecordedCompilation(
                self, number, "(begun before the fork)", "", began=event["time"]
            )
        return self.compilations[number]


def _compile(process: Process, event: Event) -> None:
    process.compilations[event["id"]] = RecordedCompilation(
        process, event["id"], event["function"], event["place"], event["index"], event["reasons"], event["time"],
        after=process.broke if event["function"].endswith(RESUMED) else None, dynamic=event.get("dynamic"),
        sources=event.get("sources", {}),
    )  # fmt: skip


def _break(process: Process, event: Event) -> None:
    process.broke = event
    process.compilation(event).breaks.append(event)


def _stage(process: Process, event: Event) -> None:
    stage = Stage(event["name"], event["seconds"], event["depth"], event["began"])
    process.compilation(event).stages.append(stage)


_TAKERS: dict[str, Callable[[Any, Event], None]] = {
    "compile": _compile,
    "break": _break,
    "text": lambda process, event: process.texts.update({event["digest"]: event["text"]}),
    "artifact": lambda process, event: process.compilation(event).artifacts.append((event["kind"], event["digest"])),
    "stage": _stage,
    "warning": lambda process, event: process.warnings.append(event),
    "done": lambda process, event: setattr(process.compilation(event), "outcome", event["outcome"]),
}


def read(folder: Path) -> list[Process]:
    """Ranks in their order, other processes as they started.

    Raises FileNotFoundError if nothing was recorded, OSError if another version did.
    """
    files = sorted(folder.glob("dovetail_trace_*.jsonl"))
    found = [process for file in files for process in _processes(file)]
    if not found:
        raise FileNotFoundError(f"nothing is recorded in {folder}: run the program with DOVETAIL_TRACE={folder}")
    return sorted(found, key=lambda p: (p.about.get("rank") or 0, p.about.get("started", 0.0), str(p.file)))


def _processes(file: Path) -> Iterator[Process]:
    """Of one file: one, unless the system gave its number to a later process too."""
    process = None
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            event = _event(line)
            if event is None:
                if process is not None:
                    process.damaged += 1
            elif event.get("event") == "process":
                if event.get("version") != VERSION:
                    raise OSError(f"{file} was recorded by another version of Dovetail: record the program again")
                if process is not None:
                    yield process
                process = Process(file, event)
            elif process is not None:
                process.take(event)
    if process is not None:
        yield process


def _event(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
