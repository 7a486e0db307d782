"""What a report says, found in what was recorded: causes grouped, with what each has cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.commands.recorded import Compilation, Event, Process
from dovetail.diagnostics.times import by_stage
from dovetail.errors import marked

#: What is no cause to mend: the program raises by itself, or its author has marked the function.
NO_CAUSES = ("user-exception", "skipped-frame", "disabled-function")


@dataclass
class Place:
    """A line of the program. `text` has the source, and carets under the columns."""

    where: str
    text: str
    count: int = 0


@dataclass
class Cause:
    """What went wrong for one reason. `seconds` were spent compiling because of it."""

    title: str
    remedy: str = ""
    code: str = ""
    whole: bool = False  # is the whole function not compiled?
    count: int = 0
    seconds: float = 0.0
    places: dict[str, Place] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def at(self, where: str, text: str = "") -> None:
        self.count += 1
        self.places.setdefault(where, Place(where, text)).count += 1


def where(place: Event) -> str:
    return f"{place['file']}:{place['line']} in {place['function']}"


def own_line(stack: Sequence[Event]) -> Event:
    """The innermost line that no installed library has; the innermost, if the whole program is one."""
    return next((p for p in reversed(stack) if not _INSTALLED.search(p["file"])), stack[-1])


_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")


def breaks(compilations: Iterable[Compilation]) -> list[Cause]:
    """By code and reason; those that keep a whole function from being compiled first, then by what they cost."""
    found: dict[Any, Cause] = {}
    for compilation in compilations:
        for event in compilation.breaks:
            if event["code"] not in NO_CAUSES:
                cause = _cause(found, event)
                stack = [where(place) for place in event["stack"]] or [compilation.place]
                cause.at(stack[-1], _excerpt(event["stack"][-1]) if event["stack"] else "")
                cause.notes |= dict.fromkeys(event["refusals"])
                cause.seconds += compilation.seconds if event["whole"] else 0.0
        if compilation.after is not None and compilation.after["code"] not in NO_CAUSES:
            _cause(found, compilation.after).seconds += compilation.seconds
    return sorted(found.values(), key=lambda c: (not c.whole, -c.seconds, -c.count))


def _excerpt(place: Event) -> str:
    return "\n".join(marked(place["source"], place["column"], place["end_column"]))


def _cause(found: dict[Any, Cause], event: Event) -> Cause:
    key = event["code"], event["reason"], event["whole"]
    return found.setdefault(key, Cause(event["reason"], event["remedy"], event["code"], event["whole"]))


SIZES = (
    "Sizes that change become symbols with the first recompilation; dovetail.mark_dynamic(tensor, dim) before the "
    "first call spares it."
)
VALUES = (
    "The compiled code relies on this. Keep what changes from call to call out of conditions, or pass it as a tensor; "
    "numbers become inputs by themselves after one recompilation."
)


def recompilations(compilations: Iterable[Compilation]) -> list[Cause]:
    """By function and the line that relies on what has changed; the most expensive first."""
    found: dict[Any, Cause] = {}
    for compilation in compilations:
        if not compilation.reasons or not compilation.reasons[0]:
            continue
        guard, _, line = compilation.reasons[0][0].partition("  # ")
        head = re.sub(r" \(actual .*\)$|, actual .*$", "", guard, flags=re.DOTALL)
        kind = re.sub(r"(==|expected) \S+$", r"\1 ...", head)
        title = f"{compilation.function}: {kind}"
        remedy = SIZES if "size mismatch" in guard or ".shape" in guard else VALUES
        cause = found.setdefault((compilation.function, compilation.place, line or kind), Cause(title, remedy))
        cause.at(line or compilation.place, guard)
        cause.notes[guard] = None
        cause.seconds += compilation.seconds
    return sorted(found.values(), key=lambda c: (-c.seconds, -c.count))


def eager(processes: Sequence[Process]) -> list[Cause]:
    """What the program was warned of, and hints about graphs that are not made of kernels."""
    found: dict[str, Cause] = {}
    for process in processes:
        for warning in process.warnings:
            found.setdefault(warning["message"], Cause(warning["message"])).at(warning["place"])
        for compilation in process.compilations.values():
            for hint in compilation.texts("perf_hints"):
                found.setdefault(hint, Cause(hint)).at(f"{compilation.function} {compilation.place}")
    return sorted(found.values(), key=lambda c: -c.count)


def stages(compilations: Iterable[Compilation]) -> list[tuple[str, int, float]]:
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


@dataclass
class Line:
    """A line of the program and what is launched for it, once a call."""

    where: str
    source: str
    launches: int = 0
    names: dict[str, None] = field(default_factory=dict)


def kernels(compilations: Iterable[Compilation]) -> tuple[list[KernelUse], list[Line]]:
    """Those that move most first; and the lines that they come from, in the order of the files."""
    found: dict[str, KernelUse] = {}
    lines: dict[tuple[str, int], Line] = {}
    for compilation in compilations:
        for told, code in compilation.programs:
            for step in told["steps"]:
                use = _use(found, step, told, code)
                for k in step["lines"]:
                    place = own_line(told["stacks"][k])
                    use.places |= {where(p): p["source"].strip() for p in (place, told["stacks"][k][-1])}
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
