"""Leave the bias of a matrix product on a GPU to the kernel that reads the product.

before:  %a = addmm(%bias, %x, %w);              %v = view(%a, ...);  %y = gelu(%v)
after:   %p = mm(%x, %w);  %a = add(%p, %bias);  %v = view(%a, ...);  %y = gelu(%v)

The sum costs nothing there, and cuBLAS chooses faster kernels where it need not add (ConvNeXt-T in float32 on an H200:
2.7 ms of products instead of 3.2). Not in half types: a product would be rounded twice.
"""

from __future__ import annotations

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph
from dovetail.normalize.passes.writer import Writer
from dovetail.ops.fake import FakeMode
from dovetail.ops.schema import facts

aten = torch.ops.aten
Node = torch.fx.Node


def add_biases_apart(graph: AtenGraph) -> None:
    """In place on the graph."""
    with torch.no_grad(), FakeMode():
        for node in [n for n in graph.graph.nodes if n.op == "call_function" and n.target is aten.addmm.default]:
            if _plain(node) and all(map(_adds_for_nothing, node.users)):
                write, (bias, left, right) = Writer(graph.graph, node), node.args
                node.replace_all_uses_with(write.call(aten.add.Tensor, write.call(aten.mm.default, left, right), bias))
                graph.graph.erase_node(node)


def _plain(node: Node) -> bool:
    product, bias = node.meta["val"], node.args[0].meta["val"]  # type: ignore[union-attr]
    return not node.kwargs and product.device.type != "cpu" and product.dtype is torch.float32 and bias.dim() == 1


def _adds_for_nothing(user: Node) -> bool:
    """Is it a kernel's computation, or a view that only such computations read?"""
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    if facts(user.target).view:
        return bool(user.users) and all(map(_adds_for_nothing, user.users))
    return torch.Tag.pointwise in user.target.tags
