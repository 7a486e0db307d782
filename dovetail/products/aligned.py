"""Products of half types on a GPU whose rows do not begin at multiples of 16 bytes, as products of padded matrices.

before:  %y = mm(%x, %w)  # 50257 columns
after:   %p = slice_backward(%w, [768, 50264], 1, 0, 50257, 1)  # zeros behind it
         %q = mm(%x, %p);  %s = slice(%q, 1, 0, 50257);  %y = clone(%s)

cuBLAS reads and writes 16 bytes at once if it can, and is up to seven times slower if it cannot; that a row has free
space behind it is not enough. What makes a matrix writes it padded, and what reads the result reads the padded one,
since copies are parts of kernels. `choice.py` says where it pays.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.gpus import HalfRates
from dovetail.normalize.passes.no_ops import PERMUTATIONS
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.normalize.recording.templates import wanted
from dovetail.ops.fake import on_fakes
from dovetail.options import Options
from dovetail.products.choice import GAIN, half_rates, misaligned, padded_us

aten = torch.ops.aten
_LOG = logging.getLogger("dovetail.perf_hints")
Node = torch.fx.Node
#: The last one has a bias in front of its matrices.
_PRODUCTS = frozenset((aten.mm.default, aten.bmm.default, aten.addmm.default))
_HALVES = torch.float16, torch.bfloat16


def pad_products(graph: AtenGraph, options: Options) -> None:
    """In place on the graph."""
    if not wanted(options):
        return
    padded: dict[tuple[Node, int, int], Node] = {}
    with on_fakes():
        for node in products_of(graph):
            rate = half_rates(node.meta["val"].device)
            if rate is not None and (missing := _missing(node, rate)):
                node.replace_all_uses_with(_written(GraphWriter(graph.graph, node), node, missing, padded))
                graph.graph.erase_node(node)


def products_of(graph: AtenGraph) -> list[Node]:
    """The products whose sizes are known, with no factors, and with a number for each column if they have a bias."""
    return [n for n in graph.graph.nodes if n.op == "call_function" and n.target in _PRODUCTS and _plain(n)]


def _plain(node: Node) -> bool:
    *bias, left, right = values(node)
    if node.kwargs or bias and bias[0].shape != right.shape[1:]:
        return False
    return all(type(n) is int and n > 0 for t in (left, right) for n in t.shape) and all(
        type(s) is int for t in (left, right) for s in t.stride()
    )


def values(node: Node) -> list[torch.Tensor]:
    return [n.meta["val"] for n in node.args]  # type: ignore[union-attr]


def _missing(node: Node, rate: HalfRates) -> tuple[int, int, int] | None:
    """How many rows, elements of the sum and columns to add; None where that is not faster."""
    left, right = values(node)[-2:]
    if left.dtype not in _HALVES:
        return None
    (m, k), n, batch = left.shape[-2:], right.shape[-1], left.shape[0] if left.dim() == 3 else 1
    rows, sums = left.stride(-2) == 1 and m > 1, left.stride(-1) == 1 or right.stride(-2) == 1
    missing = misaligned(m) * rows, misaligned(k) * sums, misaligned(n)
    if not any(missing):
        return None
    plain, padded = padded_us(batch, (m, k, n), missing, rate)
    faster = padded * GAIN < plain
    chosen = "padded" if faster else "as it is"
    _LOG.info("product %dx%dx%dx%d: about %.0f us padded, %.0f else: %s", batch, m, n, k, padded, plain, chosen)
    return missing if faster else None


def _written(
    write: GraphWriter, node: Node, missing: tuple[int, int, int], padded: dict[tuple[Node, int, int], Node]
) -> Node:
    m, k, n = missing
    *bias, left, right = node.args
    operands: list[Any] = [_pad(write, left, m, k, padded), _pad(write, right, k, n, padded)]
    if bias:
        operands.insert(0, _zeros_behind(write, bias[0], -1, n))
    result = write.call(node.target, *operands)
    *_, rows, columns = node.meta["val"].shape
    if m:
        result = write.call(aten.slice.Tensor, result, -2, 0, rows)
    if n:
        result = write.call(aten.slice.Tensor, result, -1, 0, columns)
    if result.meta["val"].stride() == node.meta["val"].stride():
        return result
    return write.call(aten.clone.default, result, memory_format=torch.contiguous_format)


def _pad(write: GraphWriter, matrix: Any, rows: int, columns: int, padded: dict[tuple[Node, int, int], Node]) -> Node:
    """With zeros below and beside it, laid out as it was."""
    if not rows and not columns:
        return matrix
    if matrix.meta["val"].stride(-2) == 1:
        found = _pad(write, _turned(write, matrix), columns, rows, padded)
        return write.call(aten.transpose.int, found, -2, -1)
    key = matrix, rows, columns
    if key not in padded:
        padded[key] = _zeros_behind(write, _zeros_behind(write, matrix, -1, columns), -2, rows)
    return padded[key]


def _turned(write: GraphWriter, matrix: Node) -> Node:
    """The matrix that this one is on its side."""
    if matrix.target in PERMUTATIONS:
        source: Node = matrix.args[0]  # type: ignore[assignment]
        turned, given = matrix.meta["val"].mT, source.meta["val"]
        if (turned.shape, turned.stride()) == (given.shape, given.stride()):
            return source
    return write.call(aten.transpose.int, matrix, -2, -1)


def _zeros_behind(write: GraphWriter, x: Any, dim: int, count: int) -> Any:
    """In pieces, so that what computes it stores it there."""
    if not count:
        return x
    sizes = list(x.meta["val"].shape)
    size = sizes[dim]
    sizes[dim] += count
    return write.call(aten.slice_backward.default, x, sizes, dim, 0, size, 1)
