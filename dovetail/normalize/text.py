"""An AtenGraph as text.

    graph(%x: f32[4, 8], %w: f32[8])
      %add = aten.add.Tensor(%x, %w)                         f32[4, 8]
      %sum, %1 = ...
      mutates %x <- %add
      return (%add is %x, ...)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from dovetail.ir.aten import AtenGraph, Returned
from dovetail.ir.devices import on_host
from dovetail.ir.graphtext import short
from dovetail.ir.stores import remembered


def aten_text(aten: AtenGraph) -> str:
    """One line a node; strides are shown where they are not row-major."""
    nodes = list(aten.graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder"]
    names = ", ".join(
        f"%{n.name}: {describe(n.meta.get('val'))}{' constant' if n.name in aten.constants else ''}" for n in inputs
    )
    lines = [f"graph({names})"]
    for node in nodes:
        if node.op == "call_function":
            call = f"  %{node.name} = {target_name(node.target)}({_arguments(node)})"
            lines.append(f"{call:<70} {describe(node.meta.get('val'))}")
        elif node.op == "output":
            lines += [f"  mutates %{inputs[k].name} <- %{value.name}" for k, value in aten.mutated]
            lines.append(f"  return ({', '.join(map(argument, node.args[0]))})")
    lines += [f"  output {_returned(each, inputs)}" for each in aten.returned if each.origin != "result" or each.steps]
    return "\n".join(lines) + "\n"


def _returned(each: Returned, inputs: list[torch.fx.Node]) -> str:
    """How an output that is no plain result is made."""
    start = f"%{inputs[each.value].name}" if each.origin == "input" else f"{each.origin} {each.value}"
    return ", ".join([start, *(target_name(step.operator) for step in each.steps)])


def target_name(target: Any) -> str:
    """`aten.add.Tensor`; `aten.relu` for the default overload."""
    if isinstance(target, torch._ops.OpOverload):
        return _operator_name(target)
    return getattr(target, "__name__", str(target))


@remembered(5000)
def _operator_name(target: torch._ops.OpOverload) -> str:
    return str(target).removesuffix(".default")


def _arguments(node: torch.fx.Node) -> str:
    given = [argument(a) for a in node.args]
    given += [f"{name}={argument(value)}" for name, value in node.kwargs.items() if value is not None]
    return ", ".join(given)


_ITSELF = (int, float, bool, type(None), str)


def argument(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return f"%{value.name}"
    if type(value) in _ITSELF:
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(argument, value))}]"
    if isinstance(value, torch.dtype):
        return short(value)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    return repr(value)


def describe(val: Any) -> str:
    if isinstance(val, torch.Tensor):
        sizes = ", ".join(map(str, val.shape))
        strides = "" if val.is_contiguous() else f" strides {tuple(val.stride())}"
        device = "" if on_host(val) else f" {val.device}"
        return f"{short(val.dtype)}[{sizes}]{strides}{device}"
    if isinstance(val, (tuple, list)):
        return f"({', '.join(map(describe, val))})"
    return type(val).__name__
