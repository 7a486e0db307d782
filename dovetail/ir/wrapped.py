"""A graph on tensors that are made of others, as a graph on what they are made of."""

from __future__ import annotations

from typing import Any

from dovetail.ir.aten import AtenGraph
from dovetail.ir.joint import JointGraph
from dovetail.ir.records import dataclass


class KeptWhole(Exception):
    """Why such a graph runs as captured."""


@dataclass(frozen=True)
class WrapperPart:
    """One of the plain values that a tensor is made of, or a value by itself: its place among all of them."""

    index: int


@dataclass(frozen=True)
class Whole:
    """A tensor of class `cls`, whose `__tensor_unflatten__` gets `parts` under `names`."""

    cls: Any
    names: tuple[str, ...]
    context: Any
    size: Any
    stride: Any
    parts: tuple[Template, ...]


Template = WrapperPart | Whole


def parts_of(template: Template | None) -> list[int]:
    """The places of all plain values below."""
    if isinstance(template, Whole):
        return [k for part in template.parts for k in parts_of(part)]
    return [] if template is None else [template.index]


@dataclass(frozen=True)
class Tangent:
    """What comes for the output `output`: its parts at `given` are the backward program's tangents, the others are of
    no use. `facts` are shape (None if it varies), dtype and device of each part."""

    output: int
    template: Template
    facts: tuple[Any, ...]
    given: tuple[int, ...]


@dataclass(frozen=True)
class Apart:
    """`program` takes the parts of all inputs and gives results, of which `AtenGraph.returned` makes parts of outputs.

    `advanced` pairs an input made of others with how often it was written to, `counted` an output made of others with
    what its version counter says. Without gradients the program is an AtenGraph and the rest is empty. `tangents` are
    of the outputs with a history; `gradients` make the gradient of each input of what the backward half gives.
    """

    program: AtenGraph | JointGraph
    inputs: tuple[Template, ...]
    outputs: tuple[Template, ...]
    advanced: tuple[tuple[int, int], ...]
    counted: tuple[tuple[int, int], ...]
    tangents: tuple[Tangent, ...] = ()
    gradients: tuple[Template | None, ...] = ()

    @property
    def aten(self) -> AtenGraph:
        """The graph of all operators; of a joint graph, that of both halves."""
        return self.program.aten if isinstance(self.program, JointGraph) else self.program
