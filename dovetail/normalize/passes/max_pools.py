"""Write out small max pools on a GPU, where nobody asks for the places of the maxima.

before:  %p = max_pool2d_with_indices(%x, [2, 2], [2, 2]);  %y = getitem(%p, 0)
after:   %y = maximum(maximum(%x[.., ::2, ::2], %x[.., ::2, 1::2]), maximum(%x[.., 1::2, ::2], ...))

One kernel, with what follows, that reads each element as fast as memory gives it: PyTorch's keeps count of places (3x3
on 32x64x112x112 with the channels last, H200: 123 us).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.devices import traits
from dovetail.normalize.passes.dead_code import remove_dead
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.fake import on_fakes
from dovetail.ops.lowering.pools import pair

aten = torch.ops.aten
Node = torch.fx.Node
_POOL = aten.max_pool2d_with_indices.default
#: Elements of a window at most: each is one read in the kernel.
LARGEST = 16


def write_out_pools(graph: AtenGraph) -> None:
    """In place on the graph."""
    pools = [n for n in graph.graph.nodes if n.op == "call_function" and n.target is _POOL]
    with on_fakes():
        for node in pools:
            results = list(node.users)
            if not results or any(user.target is not operator.getitem or user.args[1] for user in results):
                continue
            made = _maximum(GraphWriter(graph.graph, node), node)
            if made is not None and made.meta["val"].stride() == results[0].meta["val"].stride():
                for result in results:
                    result.replace_all_uses_with(made)
    if pools:
        remove_dead(graph)


def _maximum(write: GraphWriter, pool: Node) -> Node | None:
    """The largest of each window, None where it is not written out."""
    given: tuple = (*pool.args, *_DEFAULTS[len(pool.args) - 2 :])
    x, window, stride, padding, dilation, up = given
    window, padding, dilation = map(pair, (window, padding, dilation))
    stride = pair(stride) if stride else window
    image = x.meta["val"]
    plain = image.dim() == 4 and image.dtype.is_floating_point and traits(image.device).pools
    if not plain or up or math.prod(window) > LARGEST or not all(type(n) is int for n in image.shape):
        return None
    if any(padding):
        x = write.call(aten.constant_pad_nd.default, x, [padding[1], padding[1], padding[0], padding[0]], -math.inf)
    reach = [s * (n - 1) + 1 for s, n in zip(stride, pool.meta["val"][0].shape[2:], strict=True)]

    def part(offsets: tuple[int, ...]) -> Node:
        found = x
        for k in range(2):
            first = offsets[k] * dilation[k]
            found = write.call(aten.slice.Tensor, found, 2 + k, first, first + reach[k], stride[k])
        return found

    parts = map(part, itertools.product(*map(range, window)))
    return functools.reduce(lambda one, other: write.call(aten.maximum.default, one, other), parts)


_DEFAULTS: tuple = ([], [0], [1], False)  # of what follows image and window
