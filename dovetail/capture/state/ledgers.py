"""What a capture writes down, by subject. Each record names the files that own it; others read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, NoReturn

import torch
import torch.fx

from dovetail.capture.values.array import ArrayValue
from dovetail.capture.values.base import Session, Value
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import Guard
from dovetail.ir.marks import STRICT
from dovetail.ir.records import dataclass
from dovetail.ir.source import Member, Source


@dataclass(slots=True)
class Taken:
    """The graph's inputs: `tensors/inputs.py`, and `tensors/operations.py` for numbers."""

    inputs: list = field(default_factory=list)
    last: Any = None  # the placeholder after which the next goes
    names: set[str] = field(default_factory=set)
    members: dict[Source, TensorValue] = field(default_factory=dict)  # members of modules as fixed inputs
    replaced: list[Member] = field(default_factory=list)  # those that the traced code assigns
    parts: dict[Source, Value] = field(default_factory=dict)  # of tensors, as inputs of their own; see rows.py
    numbers: dict[Source, torch.fx.Node] = field(default_factory=dict)  # placeholders of numbers
    layouts: dict[int, Any] = field(default_factory=dict)  # of parts of tensors made of others, by their ids
    has_tensor_numbers: bool = False  # see numbers/tensor_numbers.py
    held: Any = None  # `tensor_numbers.TensorNumbers`
    memory: Any = None  # `graph_memory.GraphMemory`


@dataclass(slots=True)
class Tensors:
    """What happened to tensors: `tensors/` (operations, extremes, tensor_attributes, autograd_engine) and offsets."""

    fakes: Any = None  # the FakeMode that operators run under
    drawn: int = 0  # of its draws, those that belong to recorded nodes
    moved: set[int] = field(default_factory=set)  # the ids of those that got other memory
    chosen: list = field(default_factory=list)  # of which only the graph knows which they are
    backward_ran: bool = False  # inside the graph
    offset_read: bool = False  # of one in its storage


@dataclass(slots=True)
class Objects:
    """Which value stands for which object: `outside/wrap.py` and what fills its table."""

    by_identity: dict[int, Value] = field(default_factory=dict)
    keys: dict[int, Value] = field(default_factory=dict)  # what was a key by its identity; see containers/hashing.py
    namespaces: dict[int, Any] = field(default_factory=dict)  # the id of an object's own dictionary → its value
    by_fake: dict[int, TensorValue] = field(default_factory=dict)
    references: dict[int, Any] = field(default_factory=dict)  # weak ones, by the identity of the value referred to
    arrays: dict[int, ArrayValue] = field(default_factory=dict)  # by the identity of what stands for them
    keep: list = field(default_factory=list)  # alive, so that ids stay theirs


@dataclass(slots=True)
class Relied:
    """What the entry relies on: `session.py`; what `kept` compares: `process/unguarded_facts.py`."""

    guards: list[Guard] = field(default_factory=list)
    seen: set[Any] = field(default_factory=set)
    bound: list = field(default_factory=list)  # objects that the entry keeps
    places: dict[int, int] = field(default_factory=dict)  # theirs, by identity
    asked: dict = field(default_factory=dict)
    alone: str = ""
    derived: set[int] = field(default_factory=set)
    inside: set[Any] = field(default_factory=set)  # functions of PyTorch, with the definitions that they read; classes
    unhooked: bool = False  # no module has hooks that are for all


@dataclass(slots=True)
class Classes:
    """What traced code made of classes: `protocols/class_lookup.py` and `library/python/class_creation.py`."""

    stores: dict[type, Any] = field(default_factory=dict)  # to classes from outside
    made: dict[type, Any] = field(default_factory=dict)
    cells: dict[type, Any] = field(default_factory=dict)  # the `__class__` of those
    stand_ins: dict[int, Any] = field(default_factory=dict)  # by the identity of the value
    private: set[int] = field(default_factory=set)  # real objects that hold stand-ins
    statics: dict[tuple[type, str], Any] = field(default_factory=dict)  # what was looked up
    computing: dict[tuple[type, str], Any] = field(default_factory=dict)  # what that says in `tail_calls.of_attribute`

    def forget(self) -> None:
        """A class has changed: look everything up again."""
        self.statics.clear()
        self.computing.clear()


@dataclass(slots=True)
class Modes:
    """State of the thread and of the process: `thread_state.py` and `process/settings.py`."""

    changed: set[str] = field(default_factory=set)
    open: list = field(default_factory=list)  # context managers that are entered
    switched: dict[str, Any] = field(default_factory=dict)  # settings of the process
    variables: list = field(default_factory=list)  # context variables, in order
    undo: list = field(default_factory=list)  # calls that put back what capture has switched
    grad_before: bool = field(default_factory=torch.is_grad_enabled)


@dataclass(slots=True)
class Random:
    """Numbers that the residual draws, in order: `tensors/random_numbers.py`."""

    draws: list = field(default_factory=list)
    generators: dict[int, Any] = field(default_factory=dict)  # copies by identity


@dataclass(slots=True)
class Ends:
    """Where the graph may end, and where it does: `residual/graph_break.py`; around it: `tensors/assertions.py`."""

    end: Callable[[Session], NoReturn]
    tick: int = 0  # instructions executed
    stop: int = -1  # the one to end at
    ending: Any = None
    breaks: bool = False  # may a graph end before the program does?
    #: Exits of the `with` blocks that a continuation begins in, outermost first.
    blocks: list[Source] = field(default_factory=list)
    around: Any = None  # `assertions.Blocks`
    strict: bool = field(default_factory=lambda: STRICT.on)  # is a graph break an error?
    strict_before: bool = field(default_factory=lambda: STRICT.on)


@dataclass(slots=True)
class Residual:
    """The function around the graph: `driver.py`."""

    globals: dict[str, Any]
    names: dict[str, Any] = field(default_factory=dict)
    header: str = ""


@dataclass
class Compiling:
    """Has the program asked whether it is being compiled, and what is it told?"""

    asked: bool = False
    answer: bool = True
