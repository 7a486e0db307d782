"""Which graphs may be followed by the program in plain Python when they raise: nothing that they did may show.

Then the program itself says what happens: effects before the error, handlers around it, the line it comes from.
"""

from __future__ import annotations

import ast
from typing import Any

import torch
import torch.fx

from dovetail.capture.torchtable import IN_PLACE_OPERATORS, graph_functions, impure, storage_of
from dovetail.ir.captured import AGAIN


def repeatable(graph: torch.fx.Graph) -> bool:
    """Does the graph change nothing but tensors that it has made, and the grad mode? The user's own code may."""
    outside = {storage_of(n) for n in graph.nodes if n.op == "placeholder"}
    calls = [n for n in graph.nodes if n.op.startswith("call")]
    return all(_of_pytorch(n) and (not impure(n) or _harmless(n, outside)) for n in calls)


def _of_pytorch(node: torch.fx.Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims", "dovetail")
    module = getattr(target, "__module__", None) or ""
    return node.op == "call_method" or target in graph_functions() or module.split(".")[0] in OURS


OURS = ("_operator", "builtins", "math", "dovetail", "torch")


def _harmless(node: torch.fx.Node, outside: set[int]) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name == "embedding":
        return node.kwargs.get("max_norm") is None and (len(node.args) < 4 or node.args[3] is None)
    if node.meta.get("random") or name in ("_assert_async", "backward"):
        return name == "_assert_async"
    if node.target is torch._C._set_grad_enabled:
        return True
    in_place = node.target in IN_PLACE_OPERATORS or name == "__setitem__" or name.endswith("_") and name[-2:] != "__"
    written = node.args[0] if in_place and node.args else None
    return isinstance(written, torch.fx.Node) and storage_of(written) not in outside | {0}


def guarded_call(text: str, header: str, before: list[str]) -> list[str]:
    """Lines that run the graph, and go on in plain Python if it raises. No handler runs then: errors have no context.

    `header` are the parameters of the residual; `before` is done before the program is repeated.
    Where nothing is raised this costs nothing.
    """
    return [
        "while True:", "    try:", f"        {text}", "        break", "    except Exception as _e: _failed = _e",
        *(f"    {line}" for line in before),
        f"    return {AGAIN}({', '.join(['_failed', *_passed_on(header)])})",
    ]  # fmt: skip


def reraise(error: Exception, *args: Any, **kwargs: Any) -> Any:
    """What AGAIN does where nobody knows how to run the program."""
    raise error


def _passed_on(header: str) -> list[str]:
    """The arguments of a call that hands on these parameters."""
    found = ast.parse(f"lambda {header}: 0", mode="eval").body.args  # type: ignore[attr-defined]
    texts = [a.arg for a in (*found.posonlyargs, *found.args)]
    texts += [f"*{found.vararg.arg}"] if found.vararg else []
    texts += [f"{a.arg}={a.arg}" for a in found.kwonlyargs]
    return texts + ([f"**{found.kwarg.arg}"] if found.kwarg else [])
