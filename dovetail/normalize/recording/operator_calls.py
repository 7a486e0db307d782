"""One call of an operator: its arguments as the schema orders them and as nodes, and what is written to."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
import torch.fx

from dovetail.errors import Unsupported
from dovetail.normalize.recording.aliases import Handle, same_steps
from dovetail.ops.calls.schema import Facts, bound
from dovetail.ops.fake.errors.eager_trials import takes_out
from dovetail.ops.fake.rules.layout import dense_order
from dovetail.ops.fake.symbolic.number import SYMBOLIC, NumberNode, place_of
from dovetail.ops.fake.symbolic.size_questions import dim_or_node, surely_less

aten = torch.ops.aten
Node = torch.fx.Node


def out_of_place(func: Any) -> Any:
    """aten.transpose_ -> aten.transpose.int: overload names differ."""
    packet = getattr(aten, func._schema.name.removeprefix("aten::").removesuffix("_"))
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next(o for o in overloads if [(a.name, str(a.type)) for a in o._schema.arguments] == wanted)


def replace_val(node: Node, old: Any, new: Any) -> None:
    """In the metadata of a node and of the one that it was picked from."""
    val = node.meta["val"]
    if val is old:
        node.meta["val"] = new
        if node.target is operator.getitem:
            replace_val(node.args[0], old, new)  # type: ignore[arg-type]
    elif isinstance(val, (tuple, list)):
        node.meta["val"] = [new if v is old else v for v in val]


def node_name(func: Any) -> str:
    return func._schema.name.rpartition("::")[2] if isinstance(func, torch._ops.OpOverload) else "item"


def placed(value: Any) -> Any:
    """Symbolic numbers replaced by their nodes, sizes by what they stand for."""
    if isinstance(value, SYMBOLIC):
        return place_of(value) if isinstance(value.node, NumberNode) else dim_or_node(value)
    if type(value) in (list, tuple):
        return type(value)([placed(v) for v in value])
    if type(value) is dict:
        return {k: placed(v) for k, v in value.items()}
    return value


def vals(value: Any) -> Any:
    if isinstance(value, Node):
        return value.meta["val"]
    if isinstance(value, (tuple, list)):
        return type(value)([vals(v) for v in value])
    if isinstance(value, dict):
        return {k: vals(v) for k, v in value.items()}
    return value


def in_schema_order(func: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments as the schema orders them; keyword-only ones stay named."""
    if not kwargs:
        return args, kwargs
    named, places = bound(func, args, kwargs), _by_position(func)
    last = max((k for k, (name, _) in enumerate(places) if name in named), default=-1)
    given = tuple([named.pop(name, default) for name, default in places[: last + 1]])
    return given, named


@cache
def _by_position(func: Any) -> list[tuple[str, Any]]:
    """The arguments that are not given by name alone, and their defaults; those come before the others."""
    return [(a.name, a.default_value) for a in func._schema.arguments if not a.kwarg_only]


def own_results(known: Facts, result: Any) -> list:
    """The results that are no written argument."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [r for r, owner in zip(results, known.returned, strict=False) if owner is None]


def in_order(func: Any, args: tuple, kwargs: dict[str, Any], known: Facts) -> bool:
    """Does what is written to lie in the order of its places? Random numbers are drawn in that of its memory."""
    named = bound(func, args, kwargs)
    return all(named[name].is_contiguous() for name in known.written)


def accept_out(func: Any, args: Any, kwargs: Any, out: Any, val: Any) -> None:
    """Element-wise operators convert to the dtype of out=, or refuse to; what others do is for eager to say."""
    if not isinstance(out, torch.Tensor) or out.dtype == val.dtype:
        return
    if torch.Tag.pointwise not in func.tags or not takes_out(func, args, kwargs):
        raise Unsupported("out-dtype", f"{func} is given an out= tensor of {out.dtype} for a result of {val.dtype}",
                          "Give a tensor of the result's dtype.")


def absolute(args: tuple, kwargs: dict[str, Any], handle: Handle, stem: Handle) -> tuple:
    """as_strided's arguments with an explicit offset, so that it can start from the stem."""
    named = bound(aten.as_strided.default, args, kwargs)
    offset = named.get("storage_offset")
    start = handle.tensor.storage_offset() if offset is None else offset
    return stem.tensor, named["size"], named["stride"], start


def relative(args: tuple, base: torch.Tensor, value: torch.Tensor) -> tuple:
    """as_strided's arguments for `value`, which stands in for the memory of `base`."""
    size, stride, offset = args
    start = offset - base.storage_offset()
    last = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    dense = dense_order(base.shape, base.stride()) is not None and same_steps(value, base)
    if not dense or not surely_less(-1, start) or not surely_less(last, base.numel()):
        raise Unsupported(
            "as-strided-outside", "as_strided reaches memory that is no element of its tensor, which is written to",
            "Use slices and views instead of as_strided.",
        )  # fmt: skip
    return size, stride, start + value.storage_offset()
