"""Run a torch-level graph on fake tensors and write down the functional ATen operators it makes.

PyTorch's own layers do the work: composite operators decompose in the dispatcher, and its
functionalization turns mutation and views of mutated tensors into pure operators. A dispatch
mode below them sees each remaining operator once, infers its result and adds a node.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from dovetail.errors import Unsupported
from dovetail.ir.aten import AtenGraph
from dovetail.ops.fake import FakeMode, FakeTensor
from dovetail.ops.fake.tensor import run, to_fake


class Recorder(FakeMode):
    """Adds one node to `graph` for each operator that is executed."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.nodes: dict[int, torch.fx.Node] = {}  # id of a fake -> its node
        self.alive: list[Any] = []  # ids stay unique while the fakes live
        self.constants: dict[str, torch.Tensor] = {}
        self.lifted: dict[int, torch.fx.Node] = {}
        self.last_placeholder: torch.fx.Node | None = None
        self.user: torch.fx.Node | None = None

    def placeholder(self, name: str, fake: Any) -> torch.fx.Node:
        """A graph input; all of them come before the operators."""
        anchor = self.last_placeholder
        with self.graph.inserting_after(anchor) if anchor is not None else self.graph.inserting_before():
            node = self.graph.placeholder(name)
        node.meta["val"] = fake
        self.last_placeholder = node
        self.own(fake, node)
        return node

    def own(self, fake: Any, node: torch.fx.Node) -> None:
        if isinstance(fake, torch.Tensor):
            self.nodes[id(fake)] = node
            self.alive.append(fake)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = run(func, args, kwargs)
        node = self.graph.call_function(func, self.argument(args), {k: self.argument(v) for k, v in kwargs.items()})
        node.meta["val"] = result
        if self.user is not None:
            node.meta["stack"] = self.user.meta.get("stack", ())
        self.results(result, node)
        return result

    def results(self, result: Any, node: torch.fx.Node) -> None:
        if isinstance(result, torch.Tensor):
            self.own(result, node)
        elif isinstance(result, (tuple, list)):
            for k, part in enumerate(result):
                if isinstance(part, torch.Tensor):
                    picked = self.graph.call_function(operator.getitem, (node, k))
                    picked.meta["val"] = part
                    self.own(part, picked)

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            node = self.nodes.get(id(value))
            return self.constant(value) if node is None else node
        if isinstance(value, (tuple, list)):
            return tuple(self.argument(v) for v in value) if type(value) is not list else [self.argument(v) for v in value]
        return value

    def constant(self, value: torch.Tensor) -> torch.fx.Node:
        """A real tensor met on the way becomes an input that is known already."""
        if isinstance(value, FakeTensor):
            raise AssertionError("a fake tensor that no recorded operator made")
        node = self.lifted.get(id(value))
        if node is None:
            node = self.lifted[id(value)] = self.placeholder(f"constant{len(self.constants)}", to_fake(value))
            self.constants[node.name] = value
            self.alive.append(value)
        return node


def record(module: torch.fx.GraphModule, fakes: Sequence[Any]) -> AtenGraph:
    """The functional form of `module` on inputs like `fakes`, before any pass."""
    recorder = Recorder()
    inputs = [_detached(f) if isinstance(f, torch.Tensor) else f for f in fakes]
    places = [recorder.placeholder(f"input{k}", f) for k, f in enumerate(inputs)]
    with _ambient_state(), recorder, _functionalization():
        wrapped = [torch._to_functional_tensor(f) if isinstance(f, torch.Tensor) else f for f in inputs]
        results = _execute(module, wrapped, recorder)
        flat, _ = pytree.tree_flatten(results)
        return _finish(recorder, inputs, places, wrapped, flat)


def _detached(fake: FakeTensor) -> FakeTensor:
    return FakeTensor(fake.size(), fake.stride(), fake.dtype, fake.device, fake.storage_offset())


@contextmanager
def _functionalization() -> Iterator[None]:
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()


@contextmanager
def _ambient_state() -> Iterator[None]:
    """What the graph's own nodes may switch (grad mode) is put back."""
    grad = torch.is_grad_enabled()
    try:
        yield
    finally:
        torch._C._set_grad_enabled(grad)


def _execute(module: torch.fx.GraphModule, inputs: list[Any], recorder: Recorder) -> Any:
    env: dict[torch.fx.Node, Any] = {}
    supply = iter(inputs)

    def value(node: torch.fx.Node) -> Any:
        return env[node]

    for node in module.graph.nodes:
        recorder.user = node
        if node.op == "placeholder":
            env[node] = next(supply)
        elif node.op == "get_attr":
            env[node] = _attribute(module, node.target)
        elif node.op == "output":
            return torch.fx.node.map_arg(node.args[0], value)
        else:
            args = torch.fx.node.map_arg(node.args, value)
            kwargs = torch.fx.node.map_arg(node.kwargs, value)
            env[node] = _call(module, node, args, kwargs)
    raise AssertionError("a graph without an output")


def _call(module: torch.fx.GraphModule, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
    if node.op == "call_function":
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return module.get_submodule(node.target)(*args, **kwargs)


def _attribute(module: torch.fx.GraphModule, target: str) -> Any:
    found: Any = module
    for part in target.split("."):
        found = getattr(found, part)
    if isinstance(found, torch.Tensor):
        return torch._to_functional_tensor(found)
    return found


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _inner(value: torch.Tensor) -> torch.Tensor:
    torch._sync(value)
    return torch._from_functional_tensor(value)


def _finish(
    recorder: Recorder, inputs: list[Any], places: list[torch.fx.Node], wrapped: list[Any], flat: list[Any]
) -> AtenGraph:
    storages = {_storage(w): k for k, w in enumerate(wrapped) if isinstance(w, torch.Tensor)}
    mutated = []
    for k, (old, w) in enumerate(zip(inputs, wrapped, strict=True)):
        if isinstance(w, torch.Tensor) and torch._is_functional_tensor(w):
            new = _inner(w)
            if new is not old:
                if tuple(new.shape) != tuple(old.shape):
                    raise Unsupported("input-resized", "an input tensor is resized in place",
                                      "resize it outside the compiled function")
                mutated.append((k, recorder.argument(new)))
    nodes: list[Any] = []
    aliases: dict[int, int] = {}
    for k, out in enumerate(flat):
        if not isinstance(out, torch.Tensor):
            nodes.append(out)
            continue
        if not torch._is_functional_tensor(out):
            nodes.append(recorder.argument(out))
            continue
        owner = storages.get(_storage(out))
        nodes.append(recorder.argument(_inner(out)))
        if owner is not None:
            aliases[k] = owner
    recorder.graph.output(tuple(nodes))
    return AtenGraph(recorder.graph, tuple(mutated), aliases, dict(recorder.constants))
