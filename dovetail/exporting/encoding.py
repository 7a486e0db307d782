"""Graphs and their arguments as JSON, and back.

    %add = torch.add(%x, 2, alpha=1.0)
    {"name": "add", "op": "call_function", "target": "torch.add", "args": [{"node": "x"}, 2], "kwargs": {"alpha": 1.0}}

A function is written by the name under which one of `SPACES` has it. Reading takes nothing else, and of methods and
attributes those of tensors that are no internals of Python's, so no file can name what loads or runs code.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.amp.autocast_mode
import torch.fx
import torch.masked
import torch.nn.functional
from torch.amp.autocast_mode import is_autocast_available

from dovetail.errors import InvalidArgument
from dovetail.exporting import trees
from dovetail.exporting.values import ValueDecoder, ValueEncoder
from dovetail.ops.calls import higher_order

#: Where the functions of graphs are found. The first that has one names it.
SPACES: dict[str, Any] = {
    "operator": operator,
    "math": math,
    "torch.nn.functional": torch.nn.functional,
    "torch": torch._C._VariableFunctions,
    "torch.functional": torch.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.masked": torch.masked,
    "torch._C._nn": torch._C._nn,
}
AUTOCAST = "torch.amp.autocast_mode._enter_autocast"
#: And those that are alone where they are.
SINGLE: dict[str, Any] = {
    "getattr": getattr,
    "torch.Size": torch.Size,
    "torch.sym_min": torch.sym_min,
    "torch.sym_max": torch.sym_max,
    "torch.sym_int": torch.sym_int,
    "torch.sym_float": torch.sym_float,
    "round": round,
    "torch._check": torch._check,
    "torch.autograd.grad": torch.autograd.grad,
    "torch.is_grad_enabled": torch.is_grad_enabled,
    "torch._C._set_grad_enabled": torch._C._set_grad_enabled,
    AUTOCAST: torch.amp.autocast_mode._enter_autocast,
    "torch.amp.autocast_mode._exit_autocast": torch.amp.autocast_mode._exit_autocast,
}
OPERATORS = "torch.ops."
#: Functions that take graphs. A checkpoint keeps nothing of its settings but that it is one.
WITH_GRAPHS: tuple[Any, ...] = (
    *higher_order.TRANSFORMS.values(), *higher_order.IMMEDIATE.values(), higher_order.call, higher_order.scan,
)
SINGLE |= {f"dovetail.{function.__name__}": function for function in (*higher_order.OPERATOR_OF, *WITH_GRAPHS)}
CHECKPOINT = higher_order.Checkpoint({"use_reentrant": False})
SINGLE["dovetail.checkpoint"] = CHECKPOINT


#: Functions that are found there, but lead out of a graph.
OUTSIDE = (operator.call, torch.from_file)


@cache
def _names() -> dict[int, str]:
    """The names of functions by their identities."""
    found = {id(function): name for name, function in SINGLE.items()}
    for space, module in SPACES.items():
        for name in dir(module):
            if is_function(getattr(module, name)):
                found.setdefault(id(getattr(module, name)), f"{space}.{name}")
    return found


def is_function(value: Any) -> bool:
    """Is it one that a graph can call?"""
    return callable(value) and not isinstance(value, type) and not any(value is other for other in OUTSIDE)


def is_member(name: str) -> bool:
    """Is it a method or an attribute of tensors, and none that leads to their class, or to code?"""
    sign = name != "__call__" and any(each in vars(operator) for each in (name, name.replace("__r", "__", 1)))
    return hasattr(torch.Tensor, name) and (sign or not name.startswith("_"))


def function_name(target: Any) -> str | None:
    """The name under which files have the function; None for one that they cannot hold."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"{OPERATORS}{target}"  # without an overload: whichever fits
    return _names().get(id(target))


class Encoder(ValueEncoder):
    """Raises InvalidArgument for what files cannot hold."""

    def module(self, module: Any) -> dict[str, Any]:
        """A graph that a function takes, with those inside it."""
        structure = getattr(module, "structure", None)
        return {
            "graph": self.graph(module.graph),
            "graphs": {name: self.module(inner) for name, inner in module.named_children()},
            "structure": None if structure is None else trees.written(structure, "the result of a function"),
        }

    def graph(self, graph: torch.fx.Graph) -> list[dict[str, Any]]:
        return [self._node(node) for node in graph.nodes]

    def _node(self, node: torch.fx.Node) -> dict[str, Any]:
        target = node.target if isinstance(node.target, str) else function_name(node.target)
        found: dict[str, Any] = {"name": node.name, "op": node.op, "target": target}
        found |= {"args": [self.value(a) for a in node.args]} if node.args else {}
        found |= {"kwargs": {k: self.value(v) for k, v in node.kwargs.items()}} if node.kwargs else {}
        return found | ({"line": node.stack_trace} if node.stack_trace else {})

    def value(self, value: Any) -> Any:
        """One argument of a node, or a constant."""
        return {"node": value.name} if isinstance(value, torch.fx.Node) else super().value(value)


class Decoder(ValueDecoder):
    """Reads what an Encoder wrote; raises InvalidArgument, which begins with `what`.

    `device`: the one that is read for all others. `names` are what the graph may have as its module's attributes.
    """

    def __init__(self, what: str, device: torch.device | None = None, names: Collection[str] = ()) -> None:
        super().__init__(what, device)
        self.names = names
        self.nodes: dict[str, torch.fx.Node] = {}

    def module(self, written: dict[str, Any]) -> torch.fx.GraphModule:
        root = torch.nn.Module()
        for name, inner in written["graphs"].items():
            root.add_module(name, Decoder(self.what, self.device).module(inner))
        graph = Decoder(self.what, self.device, written["graphs"]).graph(written["graph"])
        made = torch.fx.GraphModule(root, graph)
        if written["structure"] is not None:
            made.__dict__["structure"] = trees.read(written["structure"], self.what)
        return made

    def graph(self, written: list[dict[str, Any]]) -> torch.fx.Graph:
        graph = torch.fx.Graph()
        for each in written:
            target = each["target"] if each["op"] != "call_function" else self._function(each["target"])
            args = tuple(self.value(a) for a in each.get("args", ()))
            kwargs = {k: self.value(v) for k, v in each.get("kwargs", {}).items()}
            self._check(each["op"], target, args, kwargs)
            if target is SINGLE[AUTOCAST] and self.device is not None and is_autocast_available(self.device.type):
                args = (self.device.type, *args[1:])
            self.nodes[each["name"]] = node = graph.create_node(each["op"], target, args, kwargs, each["name"])
            node.target = node.name if node.op == "placeholder" else target
            node.stack_trace = each.get("line")
        graph.lint()
        return graph

    def _check(self, op: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """All of this becomes text that is run."""
        if op not in ("placeholder", "get_attr", "call_function", "call_method", "output"):
            raise InvalidArgument(f"{self.what}: no graph has a {op}")
        if op == "get_attr" and target not in self.names:
            raise InvalidArgument(f"{self.what}: there is no {target} here")
        member = target if op == "call_method" else args[1] if target is getattr else "T"
        if not is_member(member):
            raise InvalidArgument(f"{self.what}: tensors have no {member} that a graph may use")
        if not all(name.isidentifier() for name in kwargs):
            raise InvalidArgument(f"{self.what}: there are no arguments that are called {', '.join(kwargs)}")

    def _function(self, name: str) -> Any:
        if name in SINGLE:
            return SINGLE[name]
        if name.startswith(OPERATORS):
            return self._operator(name)
        space, _, last = name.rpartition(".")
        found = getattr(SPACES.get(space), last, None)
        if not is_function(found):
            raise InvalidArgument(f"{self.what}: there is no {name} here")
        return found

    def _operator(self, name: str) -> Any:
        try:
            namespace, operation, *overload = name.removeprefix(OPERATORS).split(".")
            found = getattr(getattr(torch.ops, namespace), operation)
            found = getattr(found, *overload) if overload else found
        except (AttributeError, ValueError, TypeError):
            found = None
        if function_name(found) != name or operation == "from_file":
            raise InvalidArgument(f"{self.what}: there is no operator {name}; import the library that has it")
        return found

    def value(self, written: Any) -> Any:
        is_node = isinstance(written, dict) and "node" in written
        return self.nodes[written["node"]] if is_node else super().value(written)
