"""Which size symbols a graph mentions, and which of them its inputs tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.fx

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.dimvalues import bind
from dovetail.ops.fake.symbolic.symint import SizeNode, dim_of, is_size


def sizes_in(value: Any) -> Iterator[Any]:
    """Every size in an argument or in the metadata of a result."""
    if is_size(value):
        yield value
    elif isinstance(value, torch.Tensor):
        if value._has_symbolic_sizes_strides:
            yield from filter(is_size, (*value.shape, *value.stride()))
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from sizes_in(inner)
    elif isinstance(value, dict):
        yield from sizes_in(list(value.values()))


def told_by(values: Iterable[tuple[str, Any]]) -> dict[Symbol, str]:
    """Where the symbols' values are found, given a Python expression for each input."""
    pairs: list[tuple[str, Dim]] = []
    for text, value in values:
        if is_size(value):
            pairs.append((text, dim_of(value)))
        elif isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides:
            pairs += [(f"{text}.size({k})", dim_of(size)) for k, size in enumerate(value.shape)]
            pairs += [(f"{text}.stride({k})", dim_of(step)) for k, step in enumerate(value.stride())]
    return bind(pairs)


def unknown_sizes(graph: torch.fx.Graph) -> list[SizeNode]:
    """One for each symbol that the graph mentions and that cannot be told from its inputs."""
    told = told_by((n.name, n.meta.get("val")) for n in graph.nodes if n.op == "placeholder")
    found: dict[Symbol, SizeNode] = {}
    for node in graph.nodes:
        for size in sizes_in([node.args, node.kwargs, node.meta.get("val")]):
            for symbol in sorted(dims.symbols(dim_of(size))):
                if symbol not in told and symbol not in found:
                    sizes = (size if isinstance(size, SizeNode) else size.node).sizes
                    found[symbol] = SizeNode(sizes, dims.of_atom(symbol))
    return list(found.values())
