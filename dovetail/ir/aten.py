"""What normalize hands on: a functional graph of ATen operators, and what autograd splits it into."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

import torch
import torch.fx

from dovetail.errors import Location
from dovetail.ir.records import dataclass

#: `x.data` as a view operator: a tensor of the same memory that knows nothing of `x`.
DATA = operator.attrgetter("data")


@dataclass(frozen=True)
class ViewStep:
    """One view operator, to be replayed on a real tensor: `operator(t, *args, **kwargs)`, then `[index]`.

    `grad` is the grad mode that it was made in.
    """

    operator: Any
    args: tuple = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    index: int | None = None
    grad: bool = True


@dataclass(frozen=True)
class Returned:
    """How the caller gets one output of the captured graph.

    `origin` says what `value` is: the position of a result or of an input, another output, or the object itself. The
    steps then lead from that tensor to the output. `version` is what its counter says where it has one of its own;
    else `late` is how often that tensor has been written to since the output was made of it.
    Those that are not `given` come last: tensors that the caller does not get and several outputs are views of.
    """

    origin: Literal["result", "input", "output", "object"]
    value: Any
    steps: tuple[ViewStep, ...] = ()
    version: int | None = None
    late: int = 0
    given: bool = True


@dataclass(frozen=True)
class AtenGraph:
    """`graph` has placeholders, `call_function` nodes whose targets are `OpOverload`s, and one output.

    Every node that yields tensors has `meta["val"]`: a fake tensor, or a tuple/list of them (then
    `operator.getitem` nodes pick, with `meta["opaque"]` where sizes are not what they seem: `Row.opaque`). No
    node mutates or returns an alias that matters: views are nodes like any other. The output's argument is a flat
    tuple of results, each with memory of its own.

    `mutated` pairs a placeholder's position with the node holding its value after the call.
    `constants` names placeholders, after the caller's inputs, that are tensors known already.
    `returned` says how the captured graph's outputs are made of results and inputs.
    `viewed` are the results that are views in PyTorch's sense; the others must not be. (None: nobody can tell.)
    `counted` pairs a result with what its version counter says in eager, `recounted` a placeholder's position with
    how much further its counter goes than by the one write to what is mutated; in a backward graph its position from
    the end.
    The last `saved` results are for a backward pass: no caller sees them.
    """

    graph: torch.fx.Graph
    mutated: tuple[tuple[int, torch.fx.Node], ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    returned: tuple[Returned, ...] = ()
    viewed: frozenset[int] | None = None
    counted: tuple[tuple[int, int], ...] = ()
    recounted: tuple[tuple[int, int], ...] = ()
    saved: int = 0


def related(tensor: torch.Tensor, view: bool) -> torch.Tensor:
    """The tensor, as a view in PyTorch's sense or as none."""
    if tensor._is_view() == view:
        return tensor
    return torch.ops.aten.alias.default(tensor) if view else tensor.detach()


def numbers(tensors: list[torch.Tensor]) -> list[int]:
    """Those of tensors on a device, which each hold one."""
    return torch.stack([tensor.reshape(()) for tensor in tensors]).tolist()


class Subprogram:
    """An operator of ours, which may run graphs, as branches or loops do; stands where an OpOverload would.

    `run(callables, *args, **kwargs)` does what the operator does, given a callable for each of `graphs`, which takes
    the graph's inputs and gives its outputs. It returns a list; every tensor in it has memory of its own.
    """

    def __init__(self, name: str, graphs: tuple[AtenGraph, ...], run: Callable[..., list]) -> None:
        self.graphs, self.run = graphs, run
        self.built: tuple = ()  # what the graphs have become (assembly.Built)
        self.callables: tuple[Callable[..., Any], ...] = ()
        self.__name__ = self._name = f"dovetail::{name}"
        self._schema = torch._C.parse_schema(f"dovetail::{name}(Tensor[] inputs) -> Tensor[]")
        self.tags: list = []

    def __call__(self, *args: Any, **kwargs: Any) -> list:
        return self.run(self.callables, *args, **kwargs)

    def __str__(self) -> str:
        return self._name.replace("::", ".")


def subprograms(aten: AtenGraph) -> Iterator[Subprogram]:
    """Those that the graph itself calls."""
    for node in aten.graph.nodes:
        if isinstance(node.target, Subprogram):
            yield node.target


def results_of(aten: AtenGraph) -> list:
    """What the results look like."""
    results: Any = output_of(aten.graph).args[0]
    return [n.meta.get("val") if isinstance(n, torch.fx.Node) else n for n in results]


def output_of(graph: torch.fx.Graph) -> torch.fx.Node:
    """Its last node, whose argument the graph returns."""
    return next(node for node in reversed(graph.nodes) if node.op == "output")


@dataclass(frozen=True)
class EndNode:
    """In the place of the node of an input, or of the results, for which their own values stand."""

    name: str
    op: str
    meta: dict[str, Any]
    args: tuple = ()


@dataclass(frozen=True)
class GraphEnds:
    """In the place of a graph of which only inputs and results are needed."""

    nodes: list[EndNode]


def ends(inputs: Iterable[tuple[str, Any]], results: list) -> Any:
    """In the place of a graph: names of inputs and what they look like, and what results look like."""
    nodes = [EndNode(name, "placeholder", {"val": value}) for name, value in inputs]
    return GraphEnds([*nodes, EndNode("output", "output", {}, (results,))])


# ---------------------------------------------------------------- forward and backward


class Uncompiled(Exception):
    """Why PyTorch is to run a captured graph, operator by operator; `stack`: at which of the program's lines."""

    def __init__(self, reason: str, stack: tuple[Location, ...] = ()) -> None:
        super().__init__(reason)
        self.stack = stack


#: In the meta of a node that a checkpointed function computes: the number of its call.
CHECKPOINTED = "checkpointed"
#: In the meta of an input's node: the number of the call that writes to it.
WRITTEN = "written by a checkpointed function"
#: In the meta of such a node: what it gives is kept all the same.
KEPT = "kept"


class NotDifferentiable(Uncompiled):
    """There is no backward graph: which operators it has depends on values, or the engine refuses it, as it will when
    the program asks for gradients, and no sooner."""


class NoPartial(Exception):
    """Why there is no backward program for some of the results. The captured graph is differentiated instead."""


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
    inputs `kept`, then those), the tangents, the inputs at `numbers`, which are no tensors or are what it writes to as
    checkpointed functions do, and the sizes; it gives a gradient or None for each input. `depends` says for each input
    which tangents its gradient is computed from, as bits. `kept_names` are the names of the values saved.
    """

    forward: AtenGraph
    backward: AtenGraph
    kept: tuple[int, ...]
    saved: tuple[torch.fx.Node, ...] = field(default=())
    numbers: tuple[int, ...] = ()
    depends: tuple[int, ...] = ()
    sizes: int = 0
    kept_names: tuple[str, ...] = ()


# ---------------------------------------------------------------- tensors that are made of others


class KeptWhole(Uncompiled):
    """Why a graph on such tensors runs as captured, instead of one on what they are made of."""


@dataclass(frozen=True)
class WrapperPart:
    """One of the plain values that a tensor is made of, or a value by itself: its place among all of them."""

    index: int


@dataclass(frozen=True)
class Beside:
    """What a tensor names among its parts and is no tensor, such as a mesh of devices: the same one in every call."""

    value: Any


@dataclass(frozen=True)
class Own:
    """Where a gradient is made of what its input is made of, such as offsets: the very tensor, by its place among all
    parts of inputs."""

    index: int


@dataclass(frozen=True)
class SizeOf:
    """A size that varies: what a part of the tensor has at `dim`."""

    part: int
    dim: int


RAGGED = -1  # in the place of a ragged size, which its offsets tell


@dataclass(frozen=True)
class Whole:
    """A tensor of class `cls`, whose `__tensor_unflatten__` gets `parts` under `names`. Sizes and strides are numbers,
    RAGGED, a `SizeOf`, or None if no part tells them."""

    cls: Any
    names: tuple[str, ...]
    context: Any
    size: tuple
    stride: tuple
    parts: tuple[Template, ...]


Template = WrapperPart | Own | Beside | Whole


def parts_of(template: Template | None) -> list[int]:
    """The places of all plain values below."""
    if isinstance(template, Whole):
        return [k for part in template.parts for k in parts_of(part)]
    return [template.index] if isinstance(template, WrapperPart) else []


@dataclass(frozen=True)
class Tangent:
    """What comes for the output `output`: its parts at `given` are the backward program's tangents, the others are of
    no use. `facts` are shape (None if it varies), dtype and device of each part."""

    output: int
    template: Template
    facts: tuple
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
