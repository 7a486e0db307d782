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
            "write to the original tensor, or work on a copy made with .clone()",
        )  # fmt: skip
    return inverse(emit, view, parent, new)


def _by_shape(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.reshape.default, new, list(parent.meta["val"].shape))


def _permute(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    order = [d % len(view.args[0]) for d in view.args[0]]
    return emit(aten.permute.default, new, [order.index(d) for d in range(len(order))])


def _transpose(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.transpose.int, new, *view.args)


def _t(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.t.default, new)


def _unsqueeze(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    rank = new.meta["val"].dim()
    return emit(aten.squeeze.dim, new, view.args[0] % rank)


def _slice(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.slice_scatter.default, parent, new, *view.args)


def _select(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.select_scatter.default, parent, new, *view.args)


def _diagonal(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    named = dict(zip(("offset", "dim1", "dim2"), view.args, strict=False)) | view.kwargs
    return emit(aten.diagonal_scatter.default, parent, new, **named)


def _as_strided(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.as_strided_scatter.default, parent, new, *view.args)


def _split(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    size, dim = view.args[0], (*view.args, view.kwargs.get("dim", 0))[1]
    begin = view.index * size
    return emit(aten.slice_scatter.default, parent, new, dim, begin, begin + new.meta["val"].shape[dim])


def _split_sizes(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    sizes, dim = view.args[0], (*view.args, view.kwargs.get("dim", 0))[1]
    begin = sum(sizes[: view.index])
    return emit(aten.slice_scatter.default, parent, new, dim, begin, begin + new.meta["val"].shape[dim])


def _unbind(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    dim = (*view.args, view.kwargs.get("dim", 0))[0]
    return emit(aten.select_scatter.default, parent, new, dim, view.index)


def _dtype(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return emit(aten.view.dtype, new, parent.meta["val"].dtype)


def _identity(emit: Any, view: TakenView, parent: Any, new: Any) -> Any:
    return new


INVERSES: dict[Any, Inverse] = {
    aten.view.default: _by_shape,
    aten._reshape_alias.default: _by_shape,
    aten._unsafe_view.default: _by_shape,
    aten.reshape.default: _by_shape,
    aten.squeeze.default: _by_shape,
    aten.squeeze.dim: _by_shape,
    aten.squeeze.dims: _by_shape,
    aten.unsqueeze.default: _unsqueeze,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _t,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.diagonal.default: _diagonal,
    aten.as_strided.default: _as_strided,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_sizes,
    aten.unbind.int: _unbind,
    aten.view.dtype: _dtype,
    aten.detach.default: _identity,
    aten.alias.default: _identity,
    aten.view_as_real.default: lambda emit, view, parent, new: emit(aten.view_as_complex.default, new),
    aten.view_as_complex.default: lambda emit, view, parent, new: emit(aten.view_as_real.default, new),
    aten._conj.default: lambda emit, view, parent, new: emit(aten.conj_physical.default, new),
    aten._neg_view.default: lambda emit, view, parent, new: emit(aten.neg.default, new),
}


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
