"""Nested containers of tensors, between symbolic values, arguments of nodes and what native code sees."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.tensors import autograd_engine
from dovetail.capture.tensors.operations import run_native, to_graph, unzipped
from dovetail.capture.values.base import Args, Kwargs, Session, Value
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, TupleValue
from dovetail.ops.calls import higher_order


def pair(s: Session, value: Value) -> tuple[Any, Any]:
    """(argument of a node, what native code gets: the same nest with fakes). Named tuples stay what they are."""
    if isinstance(value, SequenceValue):
        pairs = [pair(s, v) for v in value.all(s)]
        make = _maker(value.cls)
        return make(p[0] for p in pairs), make(p[1] for p in pairs)
    if isinstance(value, DictValue):
        return unzipped({k.native(): pair(s, v) for k, v in value.pairs(s)})
    return to_graph(s, value)


def _maker(cls: type) -> Callable[[Any], Any]:
    if issubclass(cls, tuple) and hasattr(cls, "_make"):
        return cls._make
    return list if issubclass(cls, list) else tuple


def pairs(s: Session, args: Args, kwargs: Kwargs) -> tuple[Any, Any, Any, Any]:
    """(arguments, keyword arguments) of a node, then the same with fakes."""
    given = [pair(s, a) for a in args]
    named, fakes = unzipped({k: pair(s, v) for k, v in kwargs.items()})
    return tuple(g[0] for g in given), named, [g[1] for g in given], fakes


def inside(region: Region, native: Any) -> Value:
    """The value, in the region, of an argument that native code passes: its tensors become parameters."""
    s = region.s
    if isinstance(native, torch.Tensor):
        return region.placeholder(native)
    return _container(s, native, lambda _, item: inside(region, item)) or s.from_native(native)


def _container(s: Session, native: Any, make: Callable[[Any, Any], Value]) -> Value | None:
    """The value of a container that holds what `make` gives for each key, or index, and item; None: it is none."""
    if isinstance(native, dict):
        value = DictValue(type(native))
        for key, item in native.items():
            value.entries[key] = (s.from_native(key), make(key, item))
        return value
    if not isinstance(native, (tuple, list)) or isinstance(native, torch.Size):
        return None
    items = [make(k, item) for k, item in enumerate(native)]
    return ListValue(items) if isinstance(native, list) else TupleValue(items, type(native))


def result(s: Session, node: torch.fx.Node, native: Any) -> Value:
    """The value of a node that gives nested containers."""
    read = [n.meta.get("fake") for n in node.all_input_nodes]
    leaves = [f for f in read if isinstance(f, torch.Tensor) and not f.is_inference()]
    autograd_engine.note_views(s, node, native, leaves)
    node.meta["fake"] = native

    def picked(key: Any, item: Any) -> Value:
        wanted = isinstance(native, dict) or _has_tensors(item)
        return result(s, _pick(s, node, key), item) if wanted else s.from_native(item)

    if isinstance(native, types.FunctionType):
        return GraphFunction(node, native)
    return _container(s, native, picked) or s.tensor_result(node, native)


class GraphFunction(Value):
    """A function that a node gives, such as the second result of `torch.func.vjp`; nodes call it."""

    __slots__ = ("native_function", "node")
    cls = types.FunctionType

    def __init__(self, node: torch.fx.Node, native: Any) -> None:
        super().__init__()
        self.node, self.native_function = node, native

    def call(self, s: Session, args: Args, kwargs: Kwargs) -> Value:
        given, named, fakes, fake_kwargs = pairs(s, args, kwargs)
        native = run_native(s, self.native_function, fakes, fake_kwargs)
        node = s.graph.create_node("call_function", higher_order.call, (self.node, *given), named)
        node.meta["stack"] = s.stack()
        return result(s, node, native)


def nest(s: Session, native: Any) -> Value:
    """The value of containers that hold values."""
    if isinstance(native, Value):
        return native
    found = _container(s, native, lambda _, item: nest(s, item))
    assert found is not None, native
    return found


def _has_tensors(native: Any) -> bool:
    return any(isinstance(leaf, (torch.Tensor, types.FunctionType)) for leaf in pytree.tree_leaves(native))


def _pick(s: Session, node: torch.fx.Node, key: Any) -> torch.fx.Node:
    made = s.graph.call_function(operator.getitem, (node, key))
    made.meta["stack"] = node.meta["stack"]
    return made


def outside(s: Session, native: Any) -> None:
    """Tensors that a region made are from now on results of the node that runs it."""
    for leaf in pytree.tree_leaves(native):
        found = s.objects.by_fake.get(id(leaf))
        if found is not None and found.node.graph not in s.open_graphs:
            del s.objects.by_fake[id(leaf)]
