"""The inverse of a view: the parent's value after the view has been written to.

    v = aten.select(p, 0, 1); v <- new        p <- aten.select_scatter(p, new, 0, 1)
    v = aten.permute(p, [1, 0]); v <- new     p <- aten.permute(new, [1, 0])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from dovetail.errors import Unsupported
from dovetail.normalize.recording.aliases import TakenView, same_steps
from dovetail.ops.fake.rules.layout import dense_order, share_places

aten = torch.ops.aten

#: (emit, view, parent node, new node) -> node. `emit(operator, *args)` adds a node.
Inverse = Callable[..., Any]


def scatter(emit: Callable[..., Any], view: TakenView, parent: Any, new: Any) -> Any:
    """Raises Unsupported for a view that cannot be written through."""
    inverse = INVERSES.get(view.operator)
    if inverse is None:
        raise Unsupported(
            "write-through-view", f"an in-place operation writes to the result of {view.operator}",
            "Write to the original tensor, or work on a copy made with .clone().",
        )  # fmt: skip
    return inverse(emit, view, parent, new)


def _by(operator: Any) -> Inverse:
    """An operator on the new value that undoes the view with the view's own arguments."""
    return lambda emit, view, parent, new: emit(operator, new, *view.args)


def _into(operator: Any) -> Inverse:
    """An operator that puts the new value into the parent, at the place that the view's arguments say."""
    return lambda emit, view, parent, new: emit(operator, parent, new, *view.args)


def _by_shape(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.reshape.default, new, list(parent.meta["val"].shape))


def _permute(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    order = [d % len(view.args[0]) for d in view.args[0]]
    return emit(aten.permute.default, new, [order.index(d) for d in range(len(order))])


def _unsqueeze(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    rank = new.meta["val"].dim()
    return emit(aten.squeeze.dim, new, view.args[0] % rank)


def _diagonal(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    named = dict(zip(("offset", "dim1", "dim2"), view.args, strict=False)) | view.kwargs
    return emit(aten.diagonal_scatter.default, parent, new, **named)


def _split(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    """Into pieces of one size, or of several."""
    sizes, dim = view.args[0], (*view.args, view.kwargs.get("dim", 0))[1]
    begin = sum(sizes[: view.index]) if isinstance(sizes, (list, tuple)) else view.index * sizes
    return emit(aten.slice_scatter.default, parent, new, dim, begin, begin + new.meta["val"].shape[dim])


def _unbind(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    dim = (*view.args, view.kwargs.get("dim", 0))[0]
    return emit(aten.select_scatter.default, parent, new, dim, view.index)


INVERSES: dict[Any, Inverse] = {
    **dict.fromkeys((aten.view.default, aten._reshape_alias.default, aten._unsafe_view.default), _by_shape),
    **dict.fromkeys((aten.reshape.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _by_shape),
    aten.unsqueeze.default: _unsqueeze,
    aten.permute.default: _permute,
    aten.transpose.int: _by(aten.transpose.int),
    aten.t.default: _by(aten.t.default),
    aten.slice.Tensor: _into(aten.slice_scatter.default),
    aten.select.int: _into(aten.select_scatter.default),
    aten.diagonal.default: _diagonal,
    aten.as_strided.default: _into(aten.as_strided_scatter.default),
    **dict.fromkeys((aten.split.Tensor, aten.split_with_sizes.default), _split),
    aten.unbind.int: _unbind,
    aten.view.dtype: lambda emit, view, parent, new: emit(aten.view.dtype, new, parent.meta["val"].dtype),
    **dict.fromkeys((aten.detach.default, aten.alias.default), lambda emit, view, parent, new: new),
    aten.view_as_real.default: _by(aten.view_as_complex.default),
    aten.view_as_complex.default: _by(aten.view_as_real.default),
    aten._conj.default: _by(aten.conj_physical.default),
    aten._neg_view.default: _by(aten.neg.default),
}


def settled(emit: Callable[..., Node], view: Any, node: Node) -> Node:
    """What the view is taken of. A new value of a tensor that was conjugated lazily is not, so its conjugate may be."""
    lazy = view is aten.view_as_real.default and node.meta["val"].is_conj()
    return emit(aten.clone.default, node) if lazy else node


def laid_out(emit: Callable[..., Node], node: Node, like: torch.Tensor) -> Node:
    """The value with the strides of `like`, if no elements share a place."""
    val = node.meta["val"]
    if same_steps(val, like):
        return node
    order = dense_order(like.shape, like.stride())
    if order is None and share_places(like.shape, like.stride()):
        return node
    if order is None:
        kind = {"dtype": like.dtype, "device": like.device}
        gaps = emit(aten.empty_strided.default, list(like.shape), list(like.stride()), **kind)
        return emit(aten.copy.default, gaps, node)
    if order == tuple(range(len(order))):
        return emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    node = emit(aten.permute.default, node, list(order))
    node = emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    return emit(aten.permute.default, node, [order.index(d) for d in range(len(order))])
