"""Print an AtenGraph: one operator a line, with its result's type."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.aten import AtenGraph


def aten_text(aten: AtenGraph) -> str:
    """Readable, stable text; not parsed back."""
    lines = []
    for node in aten.graph.nodes:
        kind = _type(node.meta.get("val"))
        if node.op == "placeholder":
            known = " = constant" if node.name in aten.constants else ""
            lines.append(f"input %{node.name}: {kind}{known}")
        elif node.op == "output":
            for position, new in aten.mutated:
                lines.append(f"mutate input{position} <- %{new.name}")
            for k, position in aten.aliases.items():
                lines.append(f"alias output{k} of input{position}")
            lines.append(f"return {node.args[0]}")
        else:
            target = str(node.target) if isinstance(node.target, torch._ops.OpOverload) else node.target.__name__
            arguments = [_argument(a) for a in node.args] + [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
            lines.append(f"%{node.name}: {kind} = {target}({', '.join(arguments)})")
    return "\n".join(lines) + "\n"


def _argument(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return f"%{value.name}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_argument, value)) + "]"
    return repr(value)


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        sizes = ", ".join(map(str, value.size()))
        strides = "" if value.is_contiguous() else f" strides {tuple(value.stride())}"
        return f"{dtype}[{sizes}]{strides}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(_type, value)) + ")"
    return type(value).__name__
