"""Compute once what the CPU makes of numbers alone, and any device of integers; checks of what that shows are gone.

before:  %n = full([], 64.0);  %m = mul(%n, 3);  %s = sqrt(%m);  %y = div(%x, %s)      %x: on a GPU
after:   %s = full([], 13.856406211853027, device=gpu);  %y = div(%x, %s)

Models divide by `torch.sqrt(torch.tensor(size))`. PyTorch's own operators compute it here, so it is the number that
eager would have. On a GPU a program that the CPU takes part in has no CUDA graph, and one that looks at a number there
waits for it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.devices import HOST, on_host
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.effects import has_effect
from dovetail.ops.fake import on_fakes
from dovetail.ops.own.check import check

aten = torch.ops.aten
Node = torch.fx.Node


#: Elements of what is computed on the way to a number.
SMALL = 64


def is_literal(tensor: torch.Tensor) -> bool:
    """Is it one number on the CPU, that `full` can tell?"""
    return tensor.dim() == 0 and on_host(tensor) and _is_plain(tensor)


def _is_plain(tensor: torch.Tensor) -> bool:
    strided = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    return strided and tensor.dtype in _DTYPES and not tensor.requires_grad


_DTYPES = frozenset((
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
))  # fmt: skip
_LITERALS = frozenset((aten.full.default, aten.scalar_tensor.default))
#: Operators that take a number from the CPU for elements elsewhere, beside those that compute each by itself.
_FILLING = frozenset((
    aten.fill.Tensor, aten.masked_fill.Tensor, aten.index_fill.int_Tensor, aten.index_put.default,
))  # fmt: skip


def compute_literals(graph: AtenGraph) -> None:
    """In place on the graph."""
    known: dict[Node, torch.Tensor] = {}
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        found = _literal(node) if node.target in _LITERALS else _computed(node, known)
        if node.target is check and _holds(node, known):
            graph.graph.erase_node(node)
        elif found is None:
            _bring(node, known)
        elif node.target is aten.full.default or found.dim():
            known[node] = found
        else:
            number = _full(node, found, node.meta["val"].device)
            node.replace_all_uses_with(number)
            known[number] = found


def _literal(node: Node) -> torch.Tensor | None:
    *sizes, number = node.args
    value = node.meta["val"]
    if any(sizes) or type(number) not in (bool, int, float) or value.dtype not in _DTYPES:
        return None
    return torch.full((), number, dtype=value.dtype, device=HOST)  # type: ignore[arg-type]


def _computed(node: Node, known: dict[Node, torch.Tensor]) -> torch.Tensor | None:
    """None where the operator computes on a GPU what it may round otherwise there. A copy to there does not."""
    value, given = node.meta.get("val"), node.all_input_nodes
    if not given or any(n not in known for n in given) or not isinstance(value, torch.Tensor) or has_effect(node):
        return None
    if node.target is not aten._to_copy.default and not all(_is_on_host(n) or _is_exact(n) for n in (node, *given)):
        return None
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
    device = {"device": HOST} if "device" in kwargs else {}
    try:
        with torch.no_grad():
            found = node.target(*args, **{**kwargs, **device})  # type: ignore[operator]
    except (RuntimeError, NotImplementedError):  # it will raise when the graph runs
        return None
    if not isinstance(found, torch.Tensor) or not _is_plain(found):
        return None
    exact = found.numel() <= SMALL and not found.is_floating_point()
    return found.detach() if found.dim() == 0 or exact else None


def _holds(node: Node, known: dict[Node, torch.Tensor]) -> bool:
    """Is it known that the condition is true?"""
    (condition, *_) = node.args
    return condition in known and bool(known[condition])  # type: ignore[index]


def _bring(node: Node, known: dict[Node, torch.Tensor]) -> None:
    """To a GPU, where an operator there computes each element by itself, or fills some, with numbers from the CPU."""
    value: Any = node.meta.get("val")
    if node.target not in _FILLING and torch.Tag.pointwise not in node.target.tags:  # type: ignore[union-attr]
        return
    for given in () if not isinstance(value, torch.Tensor) or on_host(value) else node.all_input_nodes:
        if given in known and not known[given].dim() and _is_on_host(given):
            node.replace_input_with(given, _full(node, known[given], value.device))


def _full(place: Node, number: torch.Tensor, device: torch.device) -> Node:
    value = number.item()
    with on_fakes():
        write = GraphWriter(place.graph, place)
        return write.call(aten.full.default, [], value, dtype=number.dtype, device=device)


def _is_on_host(node: Node) -> bool:
    return on_host(node.meta["val"])


def _is_exact(node: Node) -> bool:
    return node.meta["val"].dtype in _DTYPES and not node.meta["val"].dtype.is_floating_point
