"""`DOVETAIL_TRACE=folder`: everything that is compiled, in files that `dovetail report folder` makes a page of.

Each process appends to a file of its own, a line of JSON for each event, written at once: a process that is killed
leaves whole lines behind. A text is written once in a file; what has it as well refers to its digest.

| event | what it tells |
|---|---|
| process | versions, command, rank, device; first in each file |
| compile | a compilation begins: the function, its place, the guards that failed, the sources of their lines |
| stage | a stage is done: when it began, seconds, how many stages are around it |
| break | why a graph ended, and where; `whole`: why the function is not compiled at all |
| text | a text under its digest |
| artifact | a compilation's text of one kind, by digest |
| done | how the compilation ended |
| warning | what the program was warned of |

Times are seconds since 1970. Nothing of what tensors hold is written. Where the folder cannot be written to, that is
said once, and nothing else stops.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import os
import platform
import socket
import sys
import time
from functools import cache
from typing import Any

import torch

from dovetail.config import said
from dovetail.diagnostics.events import CompileRecord, Stage
from dovetail.errors import InvalidArgument, Location
from dovetail.ir.callers import users_line
from dovetail.ir.ranks import rank, ranks

VARIABLE = "DOVETAIL_TRACE"
VERSION = 2
KINDS = frozenset(
    "graph_code aot_graphs kernels output_code kernel_code call_code guards dynamic perf_hints".split()
)
MOST_DECORATORS = 20  # lines above a function's name
_STARTED = time.time()


def trace() -> TraceSink | None:
    """The trace that the environment asks for now."""
    folder = os.environ.get(VARIABLE)
    return _trace(folder) if folder else None


@cache
def _trace(folder: str) -> TraceSink:
    return TraceSink(os.path.abspath(folder))


def warned(message: str) -> None:
    """The program is being warned."""
    if (sink := trace()) is not None:
        file, line, _ = users_line()
        sink.event("warning", message=message, place=f"{file}:{line}")


def located(place: Location) -> dict[str, Any]:
    """A place with the text of its line, which the columns count in."""
    source = linecache.getline(place.filename, place.line).rstrip()
    return {
        "file": place.filename, "line": place.line, "function": place.function,
        "column": place.column, "end_column": place.end_column, "source": source,
    }  # fmt: skip


def source(place: str) -> str:
    """The line at `file:line`, of a function that is decorated the one with its name; empty where it cannot be read."""
    file, _, number = place.rpartition(":")
    if not number.isdigit():
        return ""
    first = linecache.getline(file, int(number)).strip()
    if not first.startswith("@"):
        return first
    following = (linecache.getline(file, k).strip() for k in range(int(number) + 1, int(number) + MOST_DECORATORS))
    return next((text for text in following if text.startswith(("def ", "async def ", "class "))), first)


class TraceSink:
    """Writes what happens in this process. A fork continues in a file of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.process = 0  # whose file is open
        self.file = -1
        self.written: set[str] = set()  # the texts in it
        self.broken = False  # is there no writing to it?

    # ------------------------------------------------------------ as a sink

    def wants(self, kind: str) -> bool:
        return kind in KINDS and not self.broken

    def write(self, record: CompileRecord, kind: str, text: str) -> None:
        if not text.strip():
            return
        digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()
        self._open()
        if digest not in self.written:
            self.written.add(digest)
            self.event("text", digest=digest, text=text)
        self.event("artifact", id=record.number, kind=kind, digest=digest)

    def begin(self, record: CompileRecord) -> None:
        places = {record.place, *(failed[0].rpartition("  # ")[2] for failed in record.reasons if failed)}
        self.event(
            "compile", id=record.number, function=record.function, place=record.place, index=record.index,
            reasons=list(record.reasons), dynamic=record.dynamic,
            sources={place: text for place in sorted(places) if (text := source(place))},
        )  # fmt: skip

    def stage(self, record: CompileRecord, stage: Stage) -> None:
        self.event(
            "stage", id=record.number, name=stage.name, began=stage.began, seconds=stage.seconds, depth=stage.depth
        )

    def broke(self, record: CompileRecord, cause: Any, whole: bool = False) -> None:
        """`cause`: an `ir.captured.Break`, or the Unsupported that kept the `whole` function from being compiled."""
        self.event(
            "break", id=record.number, whole=whole, code=cause.code, reason=cause.reason, remedy=cause.remedy,
            refusals=list(cause.refusals), stack=[located(place) for place in cause.stack],
        )  # fmt: skip

    def finish(self, record: CompileRecord) -> None:
        self.event("done", id=record.number, outcome=record.outcome)

    # ------------------------------------------------------------ the file

    def event(self, event: str, /, **fields: Any) -> None:
        self._open()
        self._append({"event": event, "time": time.time(), **fields})

    def _open(self) -> None:
        """The file of this process: after a fork it is another one."""
        if self.process == os.getpid() or self.broken:
            return
        self.process, self.written = os.getpid(), set()
        number = rank()
        part = "" if number is None else f"_rank{number}"
        name = f"dovetail_trace_{socket.gethostname()}{part}_{self.process}.jsonl"
        try:
            if self.file >= 0:
                os.close(self.file)
            os.makedirs(self.folder, exist_ok=True)
            self.file = os.open(os.path.join(self.folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            self._give_up(error)
            return
        self._append({"event": "process", "time": time.time(), **_process()})

    def _append(self, fields: dict[str, Any]) -> None:
        if self.broken:
            return
        line = json.dumps(fields, default=str, separators=(",", ":")).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self.file, line) :]
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.broken = True
        said(InvalidArgument(f"{VARIABLE}={self.folder} cannot be written to: {error}"))


def _process() -> dict[str, Any]:
    cuda = torch.cuda.is_initialized()
    return {
        "version": VERSION, "pid": os.getpid(), "parent": os.getppid(), "host": socket.gethostname(),
        "started": _STARTED, "rank": rank(), "ranks": ranks(), "command": sys.argv,
        "python": platform.python_version(), "torch": torch.__version__, "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if cuda else platform.machine(),
    }  # fmt: skip
