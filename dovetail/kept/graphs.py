"""Captured graphs as bytes, for when PyTorch must run them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from dovetail.ir.lazy_module import LazyGraphModule
from dovetail.ir.records import dataclass
from dovetail.kept.meshes import is_mesh
from dovetail.kept.objects import Unkept
from dovetail.kept.packing import pack, unpack
from dovetail.ops.calls.higher_order import Apply
from dovetail.ops.calls.whole_call import WholeCall


@dataclass(frozen=True)
class PackedValue:
    """In the place of a node: its number."""

    number: int


@dataclass(frozen=True)
class Applied:
    """In the place of an `Apply`: the number of its class among the objects of the program, those of `fixed`."""

    cls: int
    fixed: dict[int, int]
    count: int
    graphs: Any


def pack_graph(module: torch.fx.GraphModule, own: Collection[Any] = ()) -> tuple[bytes, list]:
    """The graph, and the program's objects in it. Raises Unkept for one that runs code of which guards know nothing."""
    objects: list = []
    written = _written(module, objects)
    return pack(written, own, objects if any(map(is_mesh, objects)) else ()), objects


def unpack_graph(data: bytes, objects: Sequence[Any]) -> torch.fx.GraphModule:
    return _read(unpack(data, objects), objects)


def _written(module: torch.fx.GraphModule, objects: list) -> Any:
    numbers: dict[torch.fx.Node, Any] = {node: PackedValue(k) for k, node in enumerate(module.graph.nodes)}
    rows = []
    for node in module.graph.nodes:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), numbers.__getitem__)
        target = _applied(node.target, objects) if isinstance(node.target, Apply) else node.target
        if isinstance(target, WholeCall):
            objects += [leaf for leaf in tree_leaves((target.args, target.kwargs)) if is_mesh(leaf)]
        rows.append((node.op, node.name, target, args, kwargs, node.stack_trace))
    inner: dict[str, Any] = dict(module.named_children())
    if any(node.op == "get_attr" and node.target not in inner for node in numbers):
        raise Unkept("its graph has a tensor of its own")
    return rows, {name: _written(each, objects) for name, each in inner.items()}, getattr(module, "structure", None)


def _applied(target: Apply, objects: list) -> Applied:
    """A function of the program's own whose forward and backward were traced."""
    found = target.graphs
    if found is None:
        raise Unkept(f"{target.cls.__qualname__} runs as it is, and no guard knows what its code relies on")
    first = len(objects)
    objects += [target.cls, *target.fixed.values()]
    graphs = replace(found, forward=_written(found.forward, objects), backward=_written(found.backward, objects))
    return Applied(first, {k: first + 1 + n for n, k in enumerate(target.fixed)}, target.count, graphs)


def _apply(written: Applied, objects: Sequence[Any]) -> Apply:
    graphs = replace(
        written.graphs, forward=_read(written.graphs.forward, objects), backward=_read(written.graphs.backward, objects)
    )
    return Apply(objects[written.cls], {k: objects[n] for k, n in written.fixed.items()}, written.count, graphs)


def _read(written: Any, objects: Sequence[Any]) -> torch.fx.GraphModule:
    rows, inner, structure = written
    graph, nodes, root = torch.fx.Graph(), list[torch.fx.Node](), torch.nn.Module()
    for op, name, target, args, kwargs, stack in rows:
        args, kwargs = torch.fx.node.map_aggregate(
            (args, kwargs), lambda each: nodes[each.number] if type(each) is PackedValue else each
        )
        target = _apply(target, objects) if type(target) is Applied else target
        node = graph.create_node(op, target, args, kwargs, name)
        node.target, node.stack_trace = target, stack
        nodes.append(node)
    for name, each in inner.items():
        root.add_module(name, _read(each, objects))
    made = LazyGraphModule(root, graph)
    if structure is not None:
        made.__dict__["structure"] = structure
    return made
