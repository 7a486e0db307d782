"""What a report says, found in what was recorded: causes grouped, with what each has cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from dovetail.commands.recorded import Event, Process, RecordedCompilation
from dovetail.diagnostics.times import by_stage
from dovetail.errors import marked
from dovetail.ir.records import dataclass

WHOLE = "the whole function is not compiled: it runs eagerly, or raises under fullgraph"
ONCE = "Nothing to do: the next call is compiled for good."
LIMIT = "Mend what changes, under Recompilations, or raise dovetail.config.recompile_limit."
#: What is no cause to mend: the program raises by itself, or its author has marked the function.
NO_CAUSES = ("user-exception", "skipped-frame", "disabled-function")


@dataclass
class SourceLine:
    """A line of the program. `text` has the source, and carets under the columns; `inner` the line of a library."""

    where: str
    text: str
    count: int = 0
    inner: tuple[str, str] | None = None


@dataclass
class Cause:
    """What went wrong for one reason. `seconds` were spent compiling because of it."""

    title: str
    remedy: str = ""
    code: str = ""
    verdict: str = ""  # that a function is not compiled at all, or not any more
    count: int = 0
    seconds: float = 0.0
    places: dict[str, SourceLine] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Is there nothing to do about it?"""
        return self.remedy.startswith("Nothing to do")

    def at(self, where: str, text: str = "") -> SourceLine:
        self.count += 1
        place = self.places.setdefault(where, SourceLine(where, text))
        place.count += 1
        return place


def where(place: Event) -> str:
    return f"{place['file']}:{place['line']} in {place['function']}"


def own_line(stack: Sequence[Event]) -> Event:
    """The innermost line that no installed library has; the innermost, if the whole program is one."""
    return next((p for p in reversed(stack) if not _LIBRARIES.match(p["file"])), stack[-1])


def model_line(stack: Sequence[Event]) -> Event:
    """The innermost line that neither PyTorch nor Python has: that of the model, if a library has that."""
    return next((p for p in reversed(stack) if not _BELOW_MODELS.match(p["file"])), stack[-1])


#: What comes before a file's name within a library; Python's own files keep `python3.11/`.
INSTALLED = re.compile(r".*[\\/](?:(?:site|dist)-packages[\\/]|lib[\\/](?=python3\.\d+[\\/]))")
_LIBRARIES = re.compile(rf"<frozen |{INSTALLED.pattern}")
_BELOW_MODELS = re.compile(
    r"<frozen |.*[\\/](?:(?:site|dist)-packages[\\/]torch[\\/]"
    r"|lib[\\/]python3\.\d+[\\/](?!(?:site|dist)-packages[\\/]))"
)


def breaks(compilations: Iterable[RecordedCompilation]) -> list[Cause]:
    """By code and reason; those that keep a whole function from being compiled first, then by what they cost."""
    found: dict[Any, Cause] = {}
    for compilation in compilations:
        for event in compilation.breaks:
            if event["code"] not in NO_CAUSES:
                cause = _cause(found, event)
                _locate(cause, event["stack"], compilation)
                cause.notes |= dict.fromkeys(event["refusals"])
                cause.seconds += compilation.seconds if event["whole"] else 0.0
        if compilation.after is not None and compilation.after["code"] not in NO_CAUSES:
            _cause(found, compilation.after).seconds += compilation.seconds
    return sorted(found.values(), key=lambda c: (not c.verdict, -c.seconds, -c.count))


def _locate(cause: Cause, stack: Sequence[Event], compilation: RecordedCompilation) -> None:
    if not stack:
        cause.at(compilation.place)
        return
    own, inner = own_line(stack), stack[-1]
    place = cause.at(where(own), _excerpt(own))
    if inner is not own:
        place.inner = where(inner), _excerpt(inner)


def _excerpt(place: Event) -> str:
    return "\n".join(marked(place["source"], place["column"], place["end_column"]))


def _cause(found: dict[Any, Cause], event: Event) -> Cause:
    key = event["code"], event["reason"], event["whole"]
    verdict = WHOLE if event["whole"] else ""
    return found.setdefault(key, Cause(event["reason"], event["remedy"], event["code"], verdict))


def eager(processes: Sequence[Process]) -> list[Cause]:
    """What the program was warned of, and hints about graphs that are not made of kernels."""
    found: dict[str, Cause] = {}
    for process in processes:
        for warning in process.warnings:
            remedy = LIMIT if "recompile_limit" in warning["message"] else ""
            found.setdefault(warning["message"], Cause(warning["message"], remedy)).at(warning["place"])
        for compilation in process.compilations.values():
            for hint in compilation.texts("perf_hints"):
                remedy = ONCE if "operator by operator, once" in hint else ""
                found.setdefault(hint, Cause(hint, remedy)).at(f"{compilation.function} {compilation.place}")
    return sorted(found.values(), key=lambda c: -c.count)


def stages(compilations: Iterable[RecordedCompilation]) -> list[tuple[str, int, float]]:
    """Name, runs and seconds of each stage, the longest first."""
    found = by_stage(compilations)
    return sorted(((name, len(runs), sum(runs)) for name, runs in found.items()), key=lambda row: -row[2])


@dataclass
class KernelUse:
    """A distinct kernel, or library operator, in all programs. Bytes are those of all its launches in one call each."""

    name: str
    kind: str
    launches: int = 0
    read: int = 0
    written: int = 0
    exact: bool = True
    operators: dict[str, None] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # the line and its source
    loops: str = ""
    text: str = ""  # what was generated

    @property
    def title(self) -> str:
        """Its operators; a kernel that checks indices has none."""
        return " + ".join(self.operators) or re.sub(r"^k_|_[0-9a-f]{16}$", "", self.name)


@dataclass
class Line:
    """A line of the program and what is launched for it, once a call."""

    where: str
    source: str
    launches: int = 0
    names: dict[str, None] = field(default_factory=dict)


def kernels(compilations: Iterable[RecordedCompilation]) -> tuple[list[KernelUse], list[Line]]:
    """Those that move most first; and the lines that they come from, in the order of the files."""
    found: dict[str, KernelUse] = {}
    lines: dict[tuple[str, int], Line] = {}
    for compilation in compilations:
        for told, code in compilation.programs:
            for step in told["steps"]:
                use = _use(found, step, told, code)
                for k in step["lines"]:
                    stack = told["stacks"][k]
                    place = model_line(stack)
                    use.places |= {where(p): p["source"].strip() for p in (place, own_line(stack), stack[-1])}
                    key = place["file"], place["line"]
                    line = lines.setdefault(key, Line(where(place), place["source"].strip()))
                    line.launches += 1
                    line.names[use.name] = None
    order = sorted(found.values(), key=lambda use: -(use.read + use.written))
    return order, [lines[key] for key in sorted(lines)]


def _use(found: dict[str, KernelUse], step: dict[str, Any], told: dict[str, Any], code: str) -> KernelUse:
    name = step.get("symbol") or step["operators"][0]
    use = found.setdefault(name, KernelUse(name, step["kind"]))
    use.launches += 1
    use.read += step["read_bytes"]
    use.written += step["written_bytes"]
    use.exact &= told["exact"]
    use.operators |= dict.fromkeys(re.sub(r"_\d+$", "", operator) for operator in step["operators"])
    about = told["kernels"].get(name)
    if about is not None and not use.loops:
        start, end = about["text"]
        use.loops, use.text = about["loops"], code[start:end]
    return use


@dataclass
class Shared:
    """One compilation in several processes: in each its seconds and its number of graphs, None where it is missing."""

    function: str
    place: str
    index: int
    cells: list[tuple[float, int] | None]

    @property
    def skew(self) -> float:
        seconds = [cell[0] for cell in self.cells if cell is not None]
        return max(seconds) - min(seconds)

    @property
    def differs(self) -> bool:
        return any(cell is None for cell in self.cells) or len({cell[1] for cell in self.cells if cell}) > 1


def side_by_side(processes: Sequence[Process]) -> list[Shared]:
    """What some rank compiled and another did not first, then what took most unequally long."""
    found: dict[Any, Shared] = {}
    for column, process in enumerate(processes):
        for compilation in process.compilations.values():
            row = found.setdefault(compilation.key, Shared(*compilation.key, [None] * len(processes)))
            seconds, graphs = row.cells[column] or (0.0, 0)
            row.cells[column] = seconds + compilation.seconds, graphs + 1
    return sorted(found.values(), key=lambda row: (not row.differs, -row.skew))
