"""What normalize hands on: a functional graph of ATen operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

import torch
import torch.fx

from dovetail.ir.records import dataclass

#: `x.data` as a view operator: a tensor of the same memory that knows nothing of `x`.
DATA = operator.attrgetter("data")


@dataclass(frozen=True)
class ViewStep:
    """One view operator, to be replayed on a real tensor: `operator(t, *args, **kwargs)`, then `[index]`.

    `grad` is the grad mode that it was made in.
    """

    operator: Any
    args: tuple[Any, ...] = ()
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
    how much further its counter goes than by the one write to what is mutated.
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


class Subprogram:
    """An operator of ours, which may run graphs, as branches or loops do; stands where an OpOverload would.

    `run(callables, *args, **kwargs)` does what the operator does, given a callable for each of `graphs`, which takes
    the graph's inputs and gives its outputs. It returns a list; every tensor in it has memory of its own.
    """

    def __init__(self, name: str, graphs: tuple[AtenGraph, ...], run: Callable[..., list[Any]]) -> None:
        self.graphs, self.run = graphs, run
        self.built: tuple[Any, ...] = ()  # what the graphs have become (assembly.Built), None where PyTorch runs one
        self.callables: tuple[Callable[..., Any], ...] = ()
        self.__name__ = self._name = f"dovetail::{name}"
        self._schema = torch._C.parse_schema(f"dovetail::{name}(Tensor[] inputs) -> Tensor[]")
        self.tags: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self.run(self.callables, *args, **kwargs)

    def __str__(self) -> str:
        return self._name.replace("::", ".")


def subprograms(aten: AtenGraph) -> Iterator[Subprogram]:
    """Those that the graph itself calls."""
    for node in aten.graph.nodes:
        if isinstance(node.target, Subprogram):
            yield node.target


def results_of(aten: AtenGraph) -> list[Any]:
    """What the results look like."""
    end = next(node for node in reversed(aten.graph.nodes) if node.op == "output")
    return [n.meta.get("val") if isinstance(n, torch.fx.Node) else n for n in end.args[0]]
