"""Which graphs may be followed by the program in plain Python when they raise: nothing that they did may show.

Then the program itself says what happens: effects before the error, handlers around it, the line it comes from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any

import torch
import torch.fx

from dovetail.capture.tables.graph_functions import RANDOM, graph_functions, impure, storage_of
from dovetail.ir.captured import AGAIN, UNDONE
from dovetail.ir.nodes import in_place, name_of, namespace_of
from dovetail.ir.settings import SETTERS
from dovetail.ir.source import Source
from dovetail.ops.calls.higher_order import Apply
from dovetail.ops.fake.wrapped import is_wrapper
from dovetail.ops.own.check import check, classes


class Repeatable(Enum):
    """`UNDONE`: where the runtime knows that nothing has been written yet, and random numbers can be drawn again."""

    ALWAYS = auto()
    UNDONE = auto()
    NEVER = auto()


def repeatable(graph: torch.fx.Graph, subgraphs: Mapping[str, Any]) -> Repeatable:
    """By what it changes beside tensors that it has made and the grad mode. The user's own code may change anything,
    and a collective that one process makes twice meets another one of the others. `subgraphs` are modules that its
    nodes call, such as a checkpoint's: what they do shows as well."""
    nodes = [n for each in (graph, *_within(graph, subgraphs)) for n in each.nodes]
    makers = makers_of(nodes)
    calls = [n for n in nodes if n.op.startswith("call")]
    if not all(_of_pytorch(n) and n.kwargs.get("generator") is None for n in calls):
        return Repeatable.NEVER
    if any(getattr(n.target, "__name__", n.target) == "backward" for n in calls):
        return Repeatable.NEVER
    if any(is_wrapper(n.meta.get("fake")) for n in nodes):
        return Repeatable.NEVER  # memory may be shared in ways that only the class knows
    return Repeatable.UNDONE if shows(calls, makers) else Repeatable.ALWAYS


def shows(calls: Iterable[torch.fx.Node], makers: dict[int, torch.fx.Node]) -> bool:
    """Does one of these nodes change something beside what the graph has made?"""
    return any(impure(n) and not harmless(n, makers) for n in calls)


def _within(graph: torch.fx.Graph, subgraphs: Mapping[str, Any]) -> list[torch.fx.Graph]:
    """The graphs of modules, and those that stand for the forward of a user's `autograd.Function`."""
    functions = [n.target.graphs.forward for n in graph.nodes if isinstance(n.target, Apply) and n.target.graphs]
    modules = [m for each in (*subgraphs.values(), *functions) for m in each.modules()]
    return [m.graph for m in modules if isinstance(m, torch.fx.GraphModule)]


def makers_of(nodes: Iterable[torch.fx.Node]) -> dict[int, torch.fx.Node]:
    """The nodes whose results tensors are, by the identity of their fakes."""
    makers: dict[int, torch.fx.Node] = {}
    for node in nodes:
        makers.setdefault(id(node.meta.get("fake")), node)
    return makers


def _of_pytorch(node: torch.fx.Node) -> bool:
    target = node.target
    if namespace_of(target):
        return namespace_of(target) in ("aten", "prims", "dovetail")
    module = getattr(target, "__module__", None) or ""
    return node.op == "call_method" or target in graph_functions() or module.split(".")[0] in OURS


OURS = ("_operator", "builtins", "math", "dovetail", "torch")


_CHECKS = frozenset(("_assert_async", "_check", "assumed"))
#: They write to running statistics where this argument, with this default, is true.
_NORMS = {"batch_norm": ("training", False), "instance_norm": ("use_input_stats", True)}


def harmless(node: torch.fx.Node, makers: dict[int, torch.fx.Node]) -> bool:
    """Does it change nothing but what the graph has made, and the grad mode?"""
    name = name_of(node)
    if name == "embedding":
        return node.kwargs.get("max_norm") is None and (len(node.args) < 4 or node.args[3] is None)
    if name == "scaled_dot_product_attention" and _argument(node, 4, "dropout_p", 0.0) == 0:
        return True
    if node.meta.get("random"):
        return False
    if name in RANDOM:  # with nothing to draw
        return True
    if name in _NORMS:
        return _argument(node, 5, *_NORMS[name]) is False
    checks = name in _CHECKS or node.target in (check, classes)
    if node.target is torch._C._set_grad_enabled or checks or node.meta.get("renews"):
        return True
    if node.target in SETTERS:
        return True
    written = node.args[0] if node.args and in_place(node) else None
    return isinstance(written, torch.fx.Node) and made_inside(written, makers)


def _argument(node: torch.fx.Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def made_inside(node: torch.fx.Node, makers: dict[int, torch.fx.Node]) -> bool:
    """Is it known that the tensor has memory that the graph has made? A gradient that it reads may be the caller's."""
    maker = makers.get(storage_of(node))
    return maker is not None and maker.op.startswith("call") and maker.target is not getattr


def guarded_call(
    lines: list[str], header: str, before: list[str], repeated: Repeatable, blocks: list[Source]
) -> list[str]:
    """These lines, which run the graph, and others that go on in plain Python if it raises.

    No handler runs then: errors have no context. `header` are the parameters of the residual; `before` is done before
    the program is repeated. `blocks`: as below. Where nothing is raised this costs nothing.
    """
    if not lines:
        return []
    kept = [] if repeated is Repeatable.ALWAYS else [f"        if not {UNDONE}(_e): {_left(blocks)}"]
    return [
        "while True:", "    try:", *(f"        {line}" for line in lines), "        break",
        "    except Exception as _e:", *kept, "        _failed = _e",
        *(f"    {line}" for line in before),
        f"    return {AGAIN}({', '.join(['_failed', *_passed_on(header)])})",
    ]  # fmt: skip


def leaving_call(lines: list[str], blocks: list[Source]) -> list[str]:
    """The same for a graph whose error leaves as it is: out of the `with` blocks, too, that it begins in."""
    if not lines or not blocks:
        return lines
    return ["try:", *(f"    {line}" for line in lines), f"except BaseException as _e: {_left(blocks)}"]


def _left(blocks: list[Source]) -> str:
    return f"{LEAVE}(_e, {', '.join(source.expr() for source in reversed(blocks))})" if blocks else "raise"


LEAVE = "_leave_blocks"


def leave(error: BaseException, *exits: Any) -> None:
    """Leave `with` blocks by an error, the innermost first. None can stop it: nobody knows what would follow."""
    for exit_block in exits:
        try:
            exit_block(type(error), error, error.__traceback__)
        except BaseException as raised:
            error = raised
    raise error


def reraise(error: Exception, *args: Any, **kwargs: Any) -> Any:
    """Raises the error, whatever it is given."""
    raise error


NOBODY = {AGAIN: reraise, UNDONE: lambda error: False}  # where nobody knows how to run the program


def _passed_on(header: str) -> list[str]:
    """The arguments of a call that hands on these parameters."""
    found = ast.parse(f"lambda {header}: 0", mode="eval").body.args  # type: ignore[attr-defined]
    texts = [a.arg for a in (*found.posonlyargs, *found.args)]
    texts += [f"*{found.vararg.arg}"] if found.vararg else []
    texts += [f"{a.arg}={a.arg}" for a in found.kwonlyargs]
    return texts + ([f"**{found.kwarg.arg}"] if found.kwarg else [])
