"""Forward and backward of a captured graph as one functional graph, and as the two that it is split into."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.records import dataclass


class NotDifferentiable(Exception):
    """There is no backward graph: which operators it has depends on values, or the engine refuses it, as it will when
    the program asks for gradients, and no sooner."""


@dataclass(frozen=True)
class Passed:
    """An output, or an input written to, that the gradients of some results (`later`) pass by.

    A hook that the caller puts on it should see those gradients, but they do not leave the compiled function.
    """

    kind: Literal["output", "input"]
    position: int
    later: tuple[int, ...]


@dataclass(frozen=True)
class JointGraph:
    """`aten.graph` computes results, then one gradient (or None) for each input, from inputs and tangents.

    Placeholders: `inputs` of the caller's, then constants and tangents in any order. `tangents` pairs the name of a
    tangent with the position of the result it belongs to; the other results have no gradient. `backward` are the
    nodes that differentiation recorded. `rewritten` pairs an input with the result that is its new value, where
    gradients flow through that; `aten.mutated` are the inputs written to without. `passed`: see Passed.
    """

    aten: AtenGraph
    inputs: int
    results: int
    tangents: tuple[tuple[str, int], ...]
    rewritten: tuple[tuple[int, int], ...]
    backward: frozenset[torch.fx.Node]
    passed: tuple[Passed, ...] = ()


@dataclass(frozen=True)
class Pair:
    """The two graphs that a joint graph is split into.

    `forward` gives the results, then `saved` more values and `sizes` numbers. `backward` takes the values saved (the
    inputs `kept`, then those), the tangents, the inputs at `numbers`, which are no tensors, and the sizes; it gives a
    gradient or None for each input. `depends` says for each input which tangents its gradient is computed from, as
    bits.
    """

    forward: AtenGraph
    backward: AtenGraph
    kept: tuple[int, ...]
    saved: tuple[torch.fx.Node, ...] = field(default=())
    numbers: tuple[int, ...] = ()
    depends: tuple[int, ...] = ()
    sizes: int = 0
