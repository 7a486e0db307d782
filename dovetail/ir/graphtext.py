"""A captured graph as Python text, each statement under the line of the user's program that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
import torch.fx
from torch.fx.graph import magic_methods

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def code_text(graph: torch.fx.Graph) -> str:
    """Python that can be run, without types and lines."""
    return str(graph.python_code("self").src)


def graph_text(graph: torch.fx.Graph) -> str:
    """For the reader. Works on a graph that is still growing."""
    parameters = ", ".join(["self", *(_declared(node) for node in graph.nodes if node.op == "placeholder")])
    return "\n".join([f"def forward({parameters}):", *(f"    {line}" for line in _statements(graph))]) + "\n"


def _statements(graph: torch.fx.Graph) -> Iterator[str]:
    place = None
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        stack = node.meta.get("stack")
        here = f"# File: {stack[-1].filename}:{stack[-1].line} in {stack[-1].function}" if stack else place
        if here != place:
            place = here
            yield f"{here}, code: {stack[-1].source()}"
        yield f"return {argument(node.args[0])}" if node.op == "output" else f"{_declared(node)} = {_call(node)}"


def _declared(node: torch.fx.Node) -> str:
    """The node's name and what is known of its value."""
    fake = node.meta.get("fake")
    return f'{node.name}: "{described(fake)}"' if isinstance(fake, torch.Tensor) else node.name


def described(value: torch.Tensor) -> str:
    """`f32[4, 8][8, 1]cpu`: sizes, strides, device."""
    sizes, strides = (", ".join(map(str, numbers)) for numbers in (value.shape, value.stride()))
    return f"{short(value.dtype)}[{sizes}][{strides}]{value.device}"


def _call(node: torch.fx.Node) -> str:
    args = [argument(value) for value in node.args]
    named = [f"{name}={argument(value)}" for name, value in node.kwargs.items()]
    if node.op == "get_attr":
        return f"self.{node.target}"
    if node.op == "call_module":
        return f"self.{node.target}({', '.join([*args, *named])})"
    if node.op == "call_method":
        return f"{args[0]}.{node.target}({', '.join([*args[1:], *named])})"
    module, name = _named(node.target)
    if module == "_operator" and name in magic_methods and not named:
        return magic_methods[name].format(*args)
    if (module, name) == ("builtins", "getattr") and len(args) == 2:
        return f"{args[0]}.{node.args[1]}"
    return f"{module + '.' if module else ''}{name}({', '.join([*args, *named])})"


def _named(target: Any) -> tuple[str, str]:
    """The module in which a function is found, and its name there."""
    name = getattr(target, "__name__", None) or str(target)
    if getattr(torch, name, None) is target:
        return "torch", name
    if getattr(torch.nn.functional, name, None) is target:
        return "torch.nn.functional", name
    if isinstance(target, torch._ops.OpOverload):
        return "torch.ops", str(target)
    return getattr(target, "__module__", None) or "", name  # of an operator, the C module's


def argument(value: Any) -> str:
    """A node's argument in Python's spelling; of a tensor, which a node would stand for, no data."""
    if isinstance(value, torch.fx.Node):
        return value.name
    if isinstance(value, torch.Tensor):
        return described(value)
    if isinstance(value, slice):
        return f"slice({', '.join(map(argument, (value.start, value.stop, value.step)))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {argument(v)}" for key, v in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(map(argument, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    if isinstance(value, type) or callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)


@cache
def short(dtype: torch.dtype) -> str:
    """`f32`, `bf16`, `i64`, `bool`."""
    name = str(dtype).removeprefix("torch.")
    kind = name.rstrip("0123456789")
    return name if kind not in _SHORT or kind == name else _SHORT[kind] + name[len(kind) :]
