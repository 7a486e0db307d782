"""A captured graph with inputs, and the smaller ones that can be made of it.

Nothing is said here about which of them fail. Each is whole: its nodes are fed by inputs of the kind that the nodes had
which are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from dovetail.diagnostics.dataless import metadata, tensor
from dovetail.ir.copies import copied, copies
from dovetail.ir.records import dataclass

Nodes = dict[torch.fx.Node, torch.fx.Node]  # those of a graph, and what stands for each in another


@dataclass(frozen=True)
class Candidate:
    """A graph module and its inputs: tensors, of which only the metadata matters, and numbers. `data`: what is in the
    tensors matters, too."""

    module: torch.fx.GraphModule
    inputs: tuple
    data: bool = False

    @cached_property
    def calls(self) -> list[torch.fx.Node]:
        return [n for n in self.module.graph.nodes if n.op.startswith("call")]

    @cached_property
    def size(self) -> int:
        """Operators, then bytes of inputs: what is to become small."""
        bytes_ = sum(t.numel() * t.element_size() for t in self.inputs if isinstance(t, torch.Tensor))
        return len(self.calls) * 2**40 + bytes_

    @cached_property
    def values(self) -> Mapping[torch.fx.Node, Any]:
        """What each node gives in PyTorch."""
        found: dict[torch.fx.Node, Any] = {}

        class Noting(torch.fx.Interpreter):
            def run_node(noting, n: torch.fx.Node) -> Any:
                value = super().run_node(n)
                found[n] = copied(value) if self.data else value  # something may be written to it later
                return value

        Noting(self.module).run(*copies(self.inputs)[0])
        return found

    def like(self, module: torch.fx.GraphModule, inputs: tuple) -> Candidate:
        return Candidate(module, inputs, self.data)


def _extend(
    graph: torch.fx.Graph, new: Nodes, nodes: Iterable[torch.fx.Node],
    change: Callable[[Any], Any] | None = None, outside: Mapping[torch.fx.Node, Any] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Copy the nodes to the end of `graph`. `change` is applied to their constants; `outside` has the values of nodes
    that nothing stands for."""
    for node in nodes:
        made = new[node] = graph.node_copy(node, lambda n: new[n] if n in new else outside[n])
        if change is not None and node.op.startswith("call"):
            made.args = _mapped(made.args, change)
            made.kwargs = {name: _mapped(value, change) for name, value in made.kwargs.items()}


def without(found: Candidate, gone: Collection[torch.fx.Node]) -> Candidate | None:
    """Those nodes become inputs; None where one is needed that gives neither a tensor nor a number."""
    values = found.values
    graph, inputs = torch.fx.Graph(), list(found.inputs)
    new: Nodes = {}
    _extend(graph, new, (n for n in found.module.graph.nodes if n.op == "placeholder"))
    for node in (n for n in found.module.graph.nodes if n in gone):
        if all(user in gone for user in node.users):
            continue
        value = values.get(node)
        if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
            new[node] = graph.placeholder(node.name)
            new[node].meta["fake"] = node.meta.get("fake")
            plain = value.detach().requires_grad_(value.requires_grad)
            shape, stride, dtype, device, *_ = metadata(value)
            inputs.append(plain if found.data else tensor(shape, stride, dtype, device, value.requires_grad))
        elif not isinstance(value, (int, float, bool)):
            return None
    rest = [n for n in found.module.graph.nodes if n not in new and n not in gone]
    _extend(graph, new, rest, outside=values)
    return tidied(found.like(torch.fx.GraphModule(found.module, graph), tuple(inputs)))


def tidied(found: Candidate) -> Candidate:
    """Without operators and inputs that nobody needs."""
    graph = found.module.graph
    graph.eliminate_dead_code()
    kept = []
    for node, value in zip([n for n in graph.nodes if n.op == "placeholder"], found.inputs, strict=True):
        if node.users:
            kept.append(value)
        else:
            graph.erase_node(node)
    found.module.recompile()
    return found.like(found.module, tuple(kept))


def ending_at(found: Candidate, node: torch.fx.Node) -> Candidate | None:
    """What leads to one node, whose value is the result."""
    if not isinstance(found.values.get(node), torch.Tensor):
        return None
    before, after = _divided(list(found.module.graph.nodes), node)
    graph = torch.fx.Graph()
    new: Nodes = {}
    _extend(graph, new, [*before, node, *(n for n in after if n.op == "placeholder")])
    graph.output((new[node],))
    return tidied(found.like(torch.fx.GraphModule(found.module, graph), found.inputs))


def bypassed(found: Candidate) -> Iterator[Candidate]:
    """With one operator left out whose result is like one of its arguments."""
    for node in found.calls:
        value = found.values.get(node)
        for argument in node.all_input_nodes:
            if isinstance(value, torch.Tensor) and _alike(value, found.values.get(argument)):
                yield _bypassing(found, node, argument)
                break


def _bypassing(found: Candidate, node: torch.fx.Node, argument: torch.fx.Node) -> Candidate:
    before, after = _divided(list(found.module.graph.nodes), node)
    graph = torch.fx.Graph()
    new: Nodes = {}
    _extend(graph, new, before)
    new[node] = new[argument]
    _extend(graph, new, after)
    return tidied(found.like(torch.fx.GraphModule(found.module, graph), found.inputs))


def _divided(nodes: list[torch.fx.Node], node: torch.fx.Node) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """Those before the node, and those after it."""
    place = nodes.index(node)
    return nodes[:place], nodes[place + 1 :]


def _alike(value: torch.Tensor, other: Any) -> bool:
    return isinstance(other, torch.Tensor) and other.shape == value.shape and other.dtype == value.dtype


def with_smaller_sizes(found: Candidate) -> Iterator[Candidate]:
    """With one size, wherever its number stands, made smaller: first 1, then 2, then half."""
    sizes = {n for t in found.inputs if isinstance(t, torch.Tensor) for n in t.shape if n > 1}
    for size in sorted(sizes, reverse=True):
        for less in dict.fromkeys(n for n in (1, 2, size // 2) if n < size):
            yield _with_numbers(found, size, less)


def _with_numbers(found: Candidate, old: int, new: int) -> Candidate:
    def number(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(number, value)) if type(value) in (tuple, list) else torch.Size(map(number, value))
        return new if type(value) is int and value == old else value

    def given(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or old not in value.shape:
            return value
        shape = tuple(map(number, value.shape))
        if found.data:  # as much of it as there is room for
            part = value.detach()[tuple(slice(0, size) for size in shape)]
            return part.clone().requires_grad_(value.requires_grad)
        order = sorted(range(value.dim()), key=lambda k: value.stride(k), reverse=True)
        plain = torch.empty([shape[k] for k in order], device="meta").stride()
        strides = tuple(plain[order.index(k)] for k in range(value.dim()))
        return tensor(shape, strides, value.dtype, str(value.device), value.requires_grad)

    graph = torch.fx.Graph()
    _extend(graph, {}, found.module.graph.nodes, number)
    return found.like(torch.fx.GraphModule(found.module, graph), tuple(map(given, found.inputs)))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(item, change) for item in value)
    return value if isinstance(value, torch.fx.Node) else change(value)


def with_plain_inputs(found: Candidate) -> Iterator[Candidate]:
    """In float32 throughout; without gradients; densely laid out."""
    half = [t.dtype for t in found.inputs if isinstance(t, torch.Tensor) and t.is_floating_point()]
    for dtype in dict.fromkeys(d for d in half if d != torch.float32):
        yield _with_dtype(found, dtype)
    if any(isinstance(t, torch.Tensor) and t.requires_grad for t in found.inputs):
        yield found.like(found.module, tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in found.inputs))
    if any(isinstance(t, torch.Tensor) and not t.is_contiguous() for t in found.inputs):

        def dense(t: torch.Tensor) -> torch.Tensor:
            return t.detach().contiguous().requires_grad_(t.requires_grad)

        yield found.like(found.module, tuple(dense(t) if isinstance(t, torch.Tensor) else t for t in found.inputs))


def _with_dtype(found: Candidate, old: torch.dtype) -> Candidate:
    def plain(value: Any) -> Any:
        return torch.float32 if value is old else value

    graph = torch.fx.Graph()
    _extend(graph, {}, found.module.graph.nodes, plain)

    def cast(t: torch.Tensor) -> torch.Tensor:
        return t.detach().to(plain(t.dtype)).requires_grad_(t.requires_grad)

    return found.like(
        torch.fx.GraphModule(found.module, graph),
        tuple(cast(t) if isinstance(t, torch.Tensor) else t for t in found.inputs),
    )
