"""Attention masks that hide nothing, by what is known of integers and truth values without computing them.

    (arange(n)[:, None] >= 0).expand(b, 1, n, n)    ->    no mask

Libraries make them where they may not look at values, as in compiled code. PyTorch would choose a kernel that reads
masks, on GPUs often one that keeps all scores in memory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.normalize.record import Recorder
from dovetail.ops.fake.layout import is_one
from dovetail.ops.fake.relations import same
from dovetail.ops.schema import facts

aten = torch.ops.aten
Node = torch.fx.Node
Bounds = tuple[Any, Any]  # the least and the largest value at most
_UNKNOWN: Bounds = (-math.inf, math.inf)
_EITHER: Bounds = (0, 1)


def without_idle_mask(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Arguments and keywords for `scaled_dot_product_attention`: those given, with no mask if theirs hides nothing."""
    named = dict(zip(_NAMES, args[3:], strict=False)) | kwargs
    mask = named.get("attn_mask")
    if len(args) < 3 or not isinstance(mask, torch.Tensor) or mask.requires_grad or named.get("is_causal"):
        return args, kwargs
    idle = (1, 1) if mask.dtype is torch.bool else (0, 0)
    if not _fits(mask, *args[:2]) or bounds(recorder.node_of(recorder.handle(mask))) != idle:
        return args, kwargs
    return args[:3], {**named, "attn_mask": None}


_NAMES = ("attn_mask", "dropout_p", "is_causal")  # after query, key and value


def _fits(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> bool:
    """Would eager take it? It raises for sizes that do not match."""
    scores = (*query.shape[:-1], key.shape[-2])
    sizes = zip(reversed(mask.shape), reversed(scores), strict=False)
    return mask.dim() <= len(scores) and all(is_one(m) or same(m, n) for m, n in sizes)


def bounds(node: Any) -> Bounds:
    """Of the elements of a tensor, or of a number; NaN counts as unknown."""
    if not isinstance(node, Node):
        return (node, node) if isinstance(node, (bool, int, float)) and not math.isnan(node) else _UNKNOWN
    if "bounds" not in node.meta:
        rule = _RULES.get(node.target, _moved)
        node.meta["bounds"] = rule(node)
    return node.meta["bounds"]


def _moved(node: Node) -> Bounds:
    """Views and copies have the elements of their argument."""
    if not isinstance(node.target, torch._ops.OpOverload) or not isinstance(node.args[0] if node.args else None, Node):
        return _UNKNOWN
    moves = facts(node.target).view or node.target in _COPIES
    before, after = _dtype(node.args[0]), _dtype(node)
    return bounds(node.args[0]) if moves and (before == after or before is torch.bool) else _UNKNOWN


def _dtype(node: Any) -> Any:
    return getattr(node.meta["val"], "dtype", None) if isinstance(node, Node) else None


def _counted(node: Node) -> Bounds:
    """`arange(end)`, `arange(start, end)`, with a step: an end that varies is as large as it may be."""
    start, end, step = (0, *node.args, 1) if len(node.args) == 1 else (*node.args, 1)[:3]
    if _dtype(node) is not torch.int64 or type(start) is not int or type(step) is not int or step < 0:
        return _UNKNOWN
    return start, end - 1 if type(end) is int else math.inf


def _filled(place: int) -> Callable[[Node], Bounds]:
    def rule(node: Node) -> Bounds:
        value = node.args[place]
        exact = isinstance(value, bool) or _dtype(node) in (torch.int64, torch.float32) and type(value) in (int, float)
        whole = _dtype(node) is not torch.int64 or type(value) is not float
        return bounds(value) if exact and whole else _UNKNOWN

    return rule


def _sum(node: Node) -> Bounds:
    (a, b), (c, d) = map(bounds, node.args[:2])
    exact = _dtype(node) is torch.int64 and not node.kwargs and math.isfinite(a) and math.isfinite(c)
    return (a + c, b + d) if exact else _UNKNOWN


def _compared(relation: Callable[[Any, Any], bool]) -> Callable[[Node], Bounds]:
    def rule(node: Node) -> Bounds:
        (a, b), (c, d) = map(bounds, node.args[:2])
        outcomes = {relation(a, d), relation(b, c)}  # these relations are monotonic: the extremes decide
        return _EITHER if len(outcomes) > 1 or math.isinf(a) and math.isinf(b) else (int(*outcomes),) * 2

    return rule


def _both(node: Node) -> Bounds:
    if any(_dtype(part) is not torch.bool for part in node.args):
        return _UNKNOWN
    (a, b), (c, d) = map(bounds, node.args[:2])
    return max(0, min(a, c)), min(1, b, d)


def _one_of(node: Node) -> Bounds:
    if any(_dtype(part) is not torch.bool for part in node.args):
        return _UNKNOWN
    (a, b), (c, d) = map(bounds, node.args[:2])
    return max(0, a, c), min(1, max(b, d))


def _chosen(node: Node) -> Bounds:
    condition, *values = map(bounds, node.args)
    if condition in ((1, 1), (0, 0)):
        return values[0] if condition[0] else values[1]
    return min(values[0][0], values[1][0]), max(values[0][1], values[1][1])


_COPIES = frozenset((aten.clone.default, aten._to_copy.default))
_RULES: dict[Any, Callable[[Node], Bounds]] = {
    aten.arange.default: _counted,
    aten.arange.start: _counted,
    aten.arange.start_step: _counted,
    aten.full.default: _filled(1),
    aten.full_like.default: _filled(1),
    aten.scalar_tensor.default: _filled(0),
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), lambda node: (1, 1)),
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), lambda node: (0, 0)),
    aten.add.Tensor: _sum,
    **dict.fromkeys((aten.ge.Scalar, aten.ge.Tensor), _compared(operator.ge)),
    **dict.fromkeys((aten.gt.Scalar, aten.gt.Tensor), _compared(operator.gt)),
    **dict.fromkeys((aten.le.Scalar, aten.le.Tensor), _compared(operator.le)),
    **dict.fromkeys((aten.lt.Scalar, aten.lt.Tensor), _compared(operator.lt)),
    **dict.fromkeys((aten.bitwise_and.Tensor, aten.logical_and.default), _both),
    **dict.fromkeys((aten.bitwise_or.Tensor, aten.logical_or.default), _one_of),
    aten.where.self: _chosen,
}
