"""Products of float32 matrices on a GPU by kernels of our own, which multiply on tensor cores.

before:  %y = mm(%x, %w)
after:   %b = stack([%high, %low])  # of %w, laid out along the sum;  %p = dovetail.template([%x, %b], "...")

`choice.py` says which: where cuBLAS would take longer. Either matrix may be the one that is split.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from dovetail.codegen.gpu.products import template as written
from dovetail.ir.aten import AtenGraph
from dovetail.ir.gpus import Rates
from dovetail.ir.products import Product
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.normalize.recording.templates import wanted
from dovetail.ops.fake import on_fakes
from dovetail.ops.own.template import begin, template
from dovetail.options import Options
from dovetail.products.aligned import pad_products, products_of, values
from dovetail.products.choice import GAIN, LARGEST, MOST_PARTS, library, microseconds, rates

aten = torch.ops.aten
_LOG = logging.getLogger("dovetail.perf_hints")
Node = torch.fx.Node
__all__ = "multiply_in_kernels", "pad_products"
#: Numbers that become infinite when they are rounded to TF32 begin here.
_NEARLY_INFINITE = 0x7F7FF000
_INFINITE = 0x7F800000


def multiply_in_kernels(graph: AtenGraph, options: Options) -> None:
    """In place on the graph."""
    if not wanted(options) or torch.backends.cuda.matmul.allow_tf32:
        return
    split: dict[Any, Node] = {}
    with on_fakes():
        for node in products_of(graph):
            product = _chosen(node)
            if product is not None:
                write = GraphWriter(graph.graph, node)
                node.replace_all_uses_with(_written(write, node, product, split))
                graph.graph.erase_node(node)


def _chosen(node: Node) -> Product | None:
    """The fastest way, where it is faster than the library's."""
    rate, bias = rates(node.meta["val"].device), len(node.args) > 2
    left, right = values(node)[-2:]
    if rate is None or left.dtype is not torch.float32:
        return None
    ways = [*_ways(left, right.shape[-1], False, bias, rate), *_ways(right, left.shape[-2], True, bias, rate)]
    best = min(ways, key=lambda p: microseconds(p, rate), default=None)
    if best is None:
        return None
    ours, theirs = microseconds(best, rate), library(best, rate)
    faster = ours * GAIN < theirs
    sizes = f"{best.batch}x{left.shape[-2]}x{right.shape[-1]}x{left.shape[-1]}"
    chosen = "a kernel on tensor cores" if faster else "the library"
    _LOG.info("product %s: about %.0f us by a kernel, %.0f by cuBLAS: %s", sizes, ours, theirs, chosen)
    return best if faster else None


def _ways(given: torch.Tensor, n: int, turned: bool, bias: bool, rate: Rates) -> Iterator[Product]:
    """To multiply a matrix, or one that is on its side (`turned`), by another that is split."""
    a = given.mT if turned else given
    batch, m, k = (a.shape[0] if a.dim() == 3 else 1), *a.shape[-2:]
    layout = _layout(a)
    copied = layout is None
    if layout is None:
        k = -(-k // 4) * 4
        layout = k, m * k, True
    step, of_batch, by_rows = layout
    reach = of_batch * batch + step * (m if by_rows else k)
    if max(2 * batch * n * (k + 32), batch * m * n * MOST_PARTS, reach) > LARGEST:
        return
    strides = (m * k, k, 1)[-a.dim() :] if copied else given.stride()
    for tiles in rate.tiles:
        for parts in range(1, MOST_PARTS + 1 if batch == 1 and not bias else 2):
            found = Product(batch, m, n, k, strides, step, of_batch, by_rows, copied, turned, bias, parts, tiles)
            if found.part * (parts - 1) < found.padded:
                yield found


def _layout(a: torch.Tensor) -> tuple[int, int, bool] | None:
    """Its steps, and whether rows are contiguous rather than columns; None where kernels cannot read it in fours."""
    (m, k), (of_row, along), of_batch = a.shape[-2:], a.stride()[-2:], a.stride(0) if a.dim() == 3 else 0
    step = of_row if along == 1 else along
    contiguous = along == 1 or of_row == 1 and m % 4 == 0
    return (step, of_batch, along == 1) if contiguous and not k % 4 and not step % 4 and not of_batch % 4 else None


def _written(write: GraphWriter, node: Node, product: Product, split: dict[Any, Node]) -> Node:
    p = product
    operands: list[Any] = list(node.args)
    *bias, left, right = operands
    a, b = (right, left) if p.turned else (left, right)
    if p.copied:
        a = _copy(write, a, p)
    key = b, p.turned, p.padded
    if key not in split:
        split[key] = _split(write, b, not p.turned, p)
    made = written(p)
    begin(made, node.meta["val"].device)
    found = write.item(write.call(template, [a, split[key], *bias], made.code()), 0)
    sizes = list(node.meta["val"].shape)
    if p.parts == 1:
        return write.call(aten.view.default, found, sizes)
    return write.call(aten.sum.dim_IntList, write.call(aten.view.default, found, [p.parts, *sizes]), [0])


def _copy(write: GraphWriter, a: Any, product: Product) -> Node:
    """Its rows one behind the other, each filled up with zeros."""
    a = write.call(aten.transpose.int, a, -2, -1) if product.turned else a
    missing = product.k - a.meta["val"].shape[-1]
    if missing:
        return write.call(aten.constant_pad_nd.default, a, [0, missing], 0.0)
    return write.call(aten.clone.default, a, memory_format=torch.contiguous_format)


def _split(write: GraphWriter, b: Node, on_its_side: bool, product: Product) -> Node:
    """The TF32 nearest to each number, and what is missing, whose sum is the number."""
    x = write.call(aten.transpose.int, b, -2, -1) if on_its_side else b
    missing = product.padded - x.meta["val"].shape[-1]
    if missing:
        x = write.call(aten.constant_pad_nd.default, x, [0, missing], 0.0)
    bits = write.call(aten.view.dtype, x, torch.int32)
    size = write.call(aten.bitwise_and.Scalar, bits, 0x7FFFFFFF)
    finite = write.call(aten.lt.Scalar, size, _NEARLY_INFINITE)
    nearest = write.call(aten.where.self, finite, write.call(aten.add.Tensor, bits, 0x1000), bits)
    high = write.call(aten.view.dtype, write.call(aten.bitwise_and.Scalar, nearest, -0x2000), torch.float32)
    zero = write.call(aten.full.default, [], 0.0, dtype=torch.float32, device=b.meta["val"].device)
    exists = write.call(aten.lt.Scalar, size, _INFINITE)
    low = write.call(aten.where.self, exists, write.call(aten.sub.Tensor, x, high), zero)
    halves = write.call(aten.cat.default, [high, low])
    return write.call(aten.view.default, halves, [2, product.batch, product.n, product.padded])
