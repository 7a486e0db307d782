"""Forward and backward of a captured graph as one functional graph, and as the two that it is split into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch.fx

from dovetail.ir.aten import AtenGraph


class NotDifferentiable(Exception):
    """There is no backward graph: which operators it has depends on values, or the engine refuses it, as it will when
    the program asks for gradients, and no sooner."""


@dataclass(frozen=True)
class ViewStep:
    """One view operator, to be replayed on a real tensor: `operator(t, *args, **kwargs)`, then `[index]`."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    index: int | None


@dataclass(frozen=True)
class Returned:
    """How the caller gets one output of the captured graph.

    `origin` says what `value` is: the position of a forward result or of an input, an earlier output that is the
    same object, or the object itself. The steps then lead from that tensor to the output.
    """

    origin: Literal["result", "input", "output", "object"]
    value: Any
    steps: tuple[ViewStep, ...] = ()


@dataclass(frozen=True)
class JointGraph:
    """`aten.graph` computes results, then one gradient (or None) for each input, from inputs and tangents.

    Placeholders: `inputs` of the caller's, then constants and tangents in any order. `tangents` pairs the name of a
    tangent with the position of the result it belongs to; the other results have no gradient. `backward` are the
    nodes that differentiation recorded. `rewritten` pairs an input with the result that is its new value, where
    gradients flow through that; `aten.mutated` are the inputs written to without.
    """

    aten: AtenGraph
    inputs: int
    results: int
    tangents: tuple[tuple[str, int], ...]
    returned: tuple[Returned, ...]
    rewritten: tuple[tuple[int, int], ...]
    backward: frozenset[torch.fx.Node]


@dataclass(frozen=True)
class Pair:
    """The two graphs that a joint graph is split into.

    `forward` gives the results and then `saved` more values; `backward` takes the values saved (first the inputs
    `kept`, then those), the tangents and the inputs at `numbers`, which are no tensors, and gives a gradient or None
    for each input.
    """

    forward: AtenGraph
    backward: AtenGraph
    kept: tuple[int, ...]
    saved: tuple[torch.fx.Node, ...] = field(default=())
    numbers: tuple[int, ...] = ()
