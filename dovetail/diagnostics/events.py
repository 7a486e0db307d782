"""What happens during one compilation: stages with their times, and the texts that they produced.

The pipeline reports to an `Events`; sinks (logs, dumps) decide whether a text is wanted, and only then is it
made. Passes know nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from types import TracebackType
from typing import Any, Protocol

from dovetail.ir import profiled
from dovetail.ir.records import dataclass

#: The kinds of texts that stages make.
STAGES = """graph graph_code graph_sizes trace_source trace_bytecode bytecode guards dynamic aot_graphs aot_joint_graphs
    lowered schedule fusion output_code kernel_code call_code""".split()


class Sink(Protocol):
    """Somewhere that artifacts go. One may have methods for what `Events.tell` tells, too."""

    def wants(self, kind: str) -> bool: ...

    def write(self, record: CompileRecord, kind: str, text: str) -> None: ...


@dataclass
class Stage:
    """One timed stage; `depth` counts the stages around it."""

    name: str
    seconds: float = 0.0
    depth: int = 0
    began: float = 0.0  # seconds since 1970


@dataclass
class CompileRecord:
    """One compilation as data: which function, which entry of it, how long each stage took, how it ended."""

    function: str
    place: str = ""
    number: int = 0  # counts the compilations of the process
    index: int = 0  # counts the entries of the function
    dynamic: bool | None = None  # may sizes vary? None: those that change
    stages: list[Stage] = field(default_factory=list)
    outcome: str = "running"  # compiled | failed: <error>
    reasons: tuple[list[str], ...] = ()  # for each entry that did not fit, the guards that failed, the first one first
    captured: Any = None
    failure: Any = None  # a Break: why there is no graph, if the code cannot be captured
    sizes: str = ""  # which are symbolic, and what is relied on
    uncompiled: list[Any] = field(default_factory=list)  # Breaks: why PyTorch runs graphs that were to be compiled

    @property
    def where(self) -> str:
        return f"{self.function} ({self.place})" if self.place else self.function

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.stages if s.depth == 0)


class Events:
    """The collector of one compilation."""

    def __init__(self, record: CompileRecord | None = None, sinks: Sequence[Sink] = ()) -> None:
        self.record = record if record is not None else CompileRecord("")
        self.sinks = tuple(sinks)
        self.compiles = False  # are kernels wanted?
        self.listed = False  # is the compilation shown to somebody, with everything that was captured?
        self.open: list[Stage] = []
        self.captured: Any = None  # as soon as there is a graph
        self.plan: Any = None  # what the default backend made of it
        self.on_plan: Callable[[Any], None] | None = None  # told of the plan before machine code is waited for
        self.on_partial: Callable[..., None] | None = None  # told of backward programs that are made later

    def stage(self, name: str) -> _Timer:
        """`with events.stage("lower"): ...` times the block under that name."""
        return _Timer(self, name)

    def artifact(self, kind: str, text: Callable[[], str]) -> None:
        """Offer a text; `text` is called at most once, and only if a sink wants it."""
        wanting = [sink for sink in self.sinks if sink.wants(kind)]
        if wanting:
            made = text()
            for sink in wanting:
                sink.write(self.record, kind, made)

    def planned(self, plan: Any) -> None:
        """This is what the default backend has made."""
        self.plan = plan
        if self.on_plan is not None:
            self.on_plan(plan)

    @property
    def watched(self) -> bool:
        """Does somebody want to see what the stages make?"""
        return self.listed or any(sink.wants(kind) for sink in self.sinks for kind in STAGES)

    def tell(self, happening: str, *what: Any) -> None:
        """Call the method of this name of each sink that has it: `begin`, `stage`, `broke` or `finish`."""
        for sink in self.sinks:
            if (told := getattr(sink, happening, None)) is not None:
                told(self.record, *what)

    def stream(self, kind: str) -> Callable[[str], None] | None:
        """Where lines that come one by one go; None if nobody wants them."""
        streams = [sink.stream(kind) for sink in self.sinks if hasattr(sink, "stream")]
        return next((stream for stream in streams if stream is not None), None)

    def title(self, part: str) -> str:
        """What a profile shows the compiled graph as; `part` of it is forward, backward or empty."""
        graph = f"dovetail graph {self.record.number}"
        return profiled.titled(f"{graph} {part.strip()}".strip() + ":", self.record.function, self.record.place)

    @property
    def current(self) -> str:
        """The innermost stage that is running, or that ran last."""
        if self.open:
            return self.open[-1].name
        return self.record.stages[-1].name if self.record.stages else "start"


class _Timer:
    def __init__(self, events: Events, name: str) -> None:
        self.events, self.stage = events, Stage(name, depth=len(events.open))
        self.shown = profiled.stage(f"dovetail compile: {name}")

    def __enter__(self) -> Stage:
        self.shown.__enter__()
        self.events.open.append(self.stage)
        self.events.record.stages.append(self.stage)
        self.stage.began, self.start = time.time(), time.perf_counter()
        return self.stage

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stage.seconds = time.perf_counter() - self.start
        if kind is None or len(self.events.open) > 1:
            self.events.open.pop()  # after a failure the outermost stage stays open: it names the culprit
        self.events.tell("stage", self.stage)
        self.shown.__exit__(kind, error, trace)
