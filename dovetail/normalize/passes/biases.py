"""Leave the bias of a product on a GPU to the kernel that reads the product.

before:  %a = addmm(%bias, %x, %w);              %v = view(%a, ...);  %y = gelu(%v)
after:   %p = mm(%x, %w);  %a = add(%p, %bias);  %v = view(%a, ...);  %y = gelu(%v)

The sum costs nothing there, and cuBLAS chooses faster kernels where it need not add (ConvNeXt-T in float32 on an H200:
2.7 ms of products instead of 3.2). Not in half types: a product would be rounded twice. Behind cuDNN's convolutions
PyTorch adds the bias in a kernel of its own, in any type (in ConvNeXt-T, 22 kernels of 6 us), and sums its gradient in
another (25 of 12 us in a diffusion model's step):

before:  %g = convolution_backward(%t, %x, %w, ..., [True, True, True]);   %bias = getitem(%g, 2)
after:   %g = convolution_backward(%t, %x, %w, ..., [True, True, False]);  %bias = sum(%t, [0, 2, 3])
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.ir.devices import on_host, traits
from dovetail.normalize.passes.writer import GraphWriter
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake import on_fakes
from dovetail.ops.fake.rules.images import backend

aten = torch.ops.aten
Node = torch.fx.Node


def add_biases_apart(graph: AtenGraph) -> None:
    """In place on the graph."""
    with on_fakes():
        for node in [n for n in graph.graph.nodes if n.op == "call_function" and n.target in _APART]:
            made = _APART[node.target](GraphWriter(graph.graph, node), node)
            if made is not None:
                node.replace_all_uses_with(made)
                graph.graph.erase_node(node)


def _product(write: GraphWriter, node: Node) -> Node | None:
    if not _plain(node) or not all(map(_adds_for_nothing, node.users)):
        return None
    bias, left, right = node.args
    return write.call(aten.add.Tensor, write.call(aten.mm.default, left, right), bias)


def _convolution(write: GraphWriter, node: Node) -> Node | None:
    x, weight, bias, *rest = node.args
    if bias is None or not by_cudnn(node):
        return None
    found = write.add(node.target, (x, weight, None, *rest), {}, node.meta["val"])
    sizes = [-1, *[1] * (node.meta["val"].dim() - 2)]
    return write.call(aten.add.Tensor, found, write.call(aten.view.default, bias, sizes))


def _gradients(write: GraphWriter, node: Node) -> Node | None:
    args: list[Any] = list(node.args)
    gradient, mask = args[0], args[-1]
    image, found = gradient.meta["val"], node.meta["val"]
    if not mask[2] or traits(image.device).convolutions != "cuDNN":
        return None
    biases = [user for user in node.users if user.args[1] == 2]
    made = write.add(node.target, (*args[:-1], [*mask[:2], False]), {}, (*found[:2], None))
    for bias in biases:
        total = write.call(aten.sum.dim_IntList, gradient, [k for k in range(image.dim()) if k != 1])
        bias.replace_all_uses_with(total)
        write.graph.erase_node(bias)
    return made


_APART = {
    aten.addmm.default: _product, aten.convolution.default: _convolution, aten.convolution_backward.default: _gradients,
}  # fmt: skip


def by_cudnn(convolution: Node) -> bool:
    """Is it given to cuDNN, which computes no bias there?"""
    x, weight = (n.meta["val"] for n in convolution.args[:2])  # type: ignore[union-attr]
    return traits(x.device).convolutions == "cuDNN" and backend(x, weight, None, *convolution.args[3:], None) in _CUDNN


_CUDNN = (torch._C._ConvBackend.Cudnn, torch._C._ConvBackend.CudnnTranspose)  # type: ignore[attr-defined]


def _plain(node: Node) -> bool:
    product, bias = node.meta["val"], node.args[0].meta["val"]  # type: ignore[union-attr]
    return not node.kwargs and not on_host(product) and product.dtype is torch.float32 and bias.dim() == 1


def _adds_for_nothing(user: Node) -> bool:
    """Is it a kernel's computation, or a view that only such computations read?"""
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    if facts(user.target).view:
        return bool(user.users) and all(map(_adds_for_nothing, user.users))
    return torch.Tag.pointwise in user.target.tags
