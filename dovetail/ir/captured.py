"""What capture hands to the pipeline: one graph, and how to call it and rebuild the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import CodeType
from typing import Any, Literal

import torch.fx

from dovetail.errors import Location, explained
from dovetail.ir.asked import Asked
from dovetail.ir.dims import Dim
from dovetail.ir.guard import Guard
from dovetail.ir.records import dataclass
from dovetail.ir.source import Source


@dataclass(frozen=True, slots=True)
class GraphInput:
    """A placeholder of the graph. `fake` has the metadata of the value and no memory.

    `static` inputs (parameters, buffers) are the same object on every call while the guards hold.
    """

    source: Source
    fake: Any
    static: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a symbol comes from, and the symbol as a Dim. `marked`: the user said that it is no constant."""

    dim: Dim
    source: Source
    marked: bool = False


EMPTY, VALUE, HANDLED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Point:
    """A suspended frame: where its code goes on, and which of its slots hold something.

    `at` is the instruction it stands at, `index` the one it goes on with. `stack` has one entry a stack slot at
    `index`: EMPTY for CPython's NULL, VALUE, or HANDLED where a handler keeps the exception that was handled before
    (the argument is the exception that it handles now). `result`: the frame waits for a call whose result is the last
    value. `varying` are the sizes that differ from call to call: the number of an argument, and the path from there.
    """

    code: CodeType
    at: int
    index: int
    locals: tuple[str, ...]
    cells: tuple[str, ...]
    stack: tuple[int, ...]
    result: bool = False
    varying: tuple[tuple[int, str], ...] = field(default=(), compare=False)

    @property
    def below_result(self) -> tuple[int, ...]:
        """The stack slots below the awaited result."""
        return self.stack[:-1] if self.result else self.stack

    @property
    def given(self) -> int:
        """How many stack slots hold a value."""
        return len(self.stack) - self.stack.count(EMPTY)


@dataclass(frozen=True, eq=False)
class Continuation:
    """What remains to be done after a graph break: suspended frames, outermost first, and their globals.

    Its parameters are, frame by frame, the values of locals, cells and stack slots (NULLs and the awaited
    results left out).
    """

    points: tuple[Point, ...]
    scopes: tuple[dict[str, Any], ...]
    inside: tuple = ()  # where the generators stand that will be advanced first
    decided: bool = False  # is it one way of several, of which the break's instruction has chosen?

    @property
    def key(self) -> Any:
        """Equal keys: the same rest."""
        return self.points, tuple(map(id, self.scopes)), tuple(map(id, self.inside))

    def parameters(self) -> tuple[str, ...]:
        """Names for the rest's parameters: each frame's locals, cells and operands, outermost frame first."""
        names: list[str] = []
        for point in self.points:
            stack = [f"stack{k}" for k in range(point.given - point.result)]
            for name in (*point.locals, *point.cells, *stack):
                clean = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
                names.append(f"p{len(names)}_{clean}")
        return tuple(names)


def varying_names(rest: Continuation) -> set[str]:
    """The sizes among the parameters that differ from call to call."""
    names, found, first = rest.parameters(), set(), 0
    for point in rest.points:
        found |= {f"{names[first + number]}{part}" for number, part in point.varying}
        first += len(point.locals) + len(point.cells) + point.given - point.result
    return found


PLAIN = "_plain"  # in a residual: gives a function that runs as it is, but calls compiled counterparts
ENTERED = "_entered"  # in a residual: gives what to call instead of a callable, a user's function compiled on entry

AGAIN = "_again"  # in a residual: goes on in plain Python after the graph has raised, given the error and the arguments
UNDONE = "_undone"  # in a residual: has a graph that raised changed nothing, or could that be undone?
NO_OVERRIDES = "_no_overrides"  # in a residual's names: the graph runs without `__torch_function__` of tensor classes
FAILED = "failed"  # in the meta of a graph: told of a backward program's failure that eager has made good
ALONE = "alone"  # in the meta of a graph: compiles a function by itself, as one graph
REPEATED = "repeated"  # in the meta of a graph: where it raises and has changed nothing, the program goes on instead


class MadeForOneCall(BaseException):
    """Unwinds the capture of a region that undoes what it relies on, as an optimizer's first step does."""


class Next:
    """What a compiled region that ends in a graph break returns: the rest, and its arguments."""

    __slots__ = ("rest", "args")

    def __init__(self, rest: Any, args: tuple) -> None:
        self.rest, self.args = rest, args


@dataclass(frozen=True)
class Break:
    """Why a graph ended: a stable code, the reason in the user's words, a remedy and the user's stack.

    `refusals` say why it ended further out than where the reason lies.
    """

    code: str
    reason: str
    remedy: str = ""
    stack: tuple[Location, ...] = ()
    refusals: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"[{self.code}] {self.reason}"

    def text(self) -> str:
        """The whole message."""
        return explained(self.code, self.reason, self.remedy, self.stack, self.refusals)


@dataclass(frozen=True, slots=True)
class Change:
    """What a residual does beside running the graph and making its result: the kind of it, and what, for the reader.

    "buffers": `real`, the dictionary of a module's buffers, gets others. "call": it leaves a call of the program's out.
    `stack`: where the program first does it, and `source` the path to the object, if they are known.
    """

    kind: Literal["object", "buffers", "call", "state"]
    what: str
    real: Any = None
    stack: tuple[Location, ...] = ()
    source: Source | None = None


MODES_LEFT = Change("state", "modes or context variables that are left changed")
DRAWS = Change("state", "random numbers that Python or NumPy draws")
HOOKS = Change("state", "hooks on tensors")


@dataclass(frozen=True)
class Captured:
    """One traced region.

    `residual` is the Python text of `def residual(<the callable's own parameters>)`: it loads
    the graph's inputs from their sources, calls `graph(...)`, replays side effects in order
    and returns the rebuilt result. `names` are the globals it needs beyond `graph`, G, F, K, M.
    After a graph break it returns a `Next` instead; `continuations` are the names that it uses for what follows.
    Objects behind `freed` sources are let go before the graph runs: nothing else of the entry may keep them.
    `sizes` (ops.fake.sizes.Sizes) has the symbols of fakes with symbolic sizes; later stages go on relying on facts
    about them, and set its `where` to the user's line that they work for. `symbols` are where each comes from. Every
    symbol of the graph is the size of an input's dimension or an input itself. `seen` are the sizes of tensors in the
    call that was captured, by the paths to them. `constants` says why sizes and numbers that vary are constants.
    `repeatable`: where the graph itself runs and finds that an unbacked size is not what it is made for, has it changed
    nothing by then?
    `one_shot`: its effects undo what its guards rely on, so that it is likely to run once. `prepared`: an optimizer was
    given the state of its first step.
    `changes`: what the residual changes outside, in the order in which it does.
    `asked`: on what answers of the process it relies beside the guards; `alone`: why no other process may use it.
    """

    graph: torch.fx.GraphModule
    inputs: tuple[GraphInput, ...]
    guards: tuple[Guard, ...]
    residual: str
    names: Mapping[str, Any]
    bound: tuple = ()  # the objects behind Bound sources: K
    breaks: tuple[Break, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    continuations: Mapping[str, Continuation] = field(default_factory=dict)
    freed: tuple[Source, ...] = ()
    sizes: Any = None
    repeatable: bool = True
    symbols: Mapping[Any, Origin] = field(default_factory=dict)
    seen: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    one_shot: bool = False
    prepared: bool = False
    changes: tuple[Change, ...] = ()
    asked: tuple[Asked, ...] = ()
    alone: str = ""
