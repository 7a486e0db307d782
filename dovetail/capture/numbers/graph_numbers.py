"""Numbers that the graph takes from tensors and computes with, where `capture_scalar_outputs` asks for it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.fx import Node

from dovetail.capture.numbers import size_values
from dovetail.capture.tables.graph_functions import impure
from dovetail.capture.values.base import Const, Value
from dovetail.capture.values.containers import ListValue
from dovetail.capture.values.scalar import Claim, GraphNumber
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.literals import has_text

if TYPE_CHECKING:
    from dovetail.capture.session import Session

LONGEST_LIST = 64

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod,
}  # fmt: skip
DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos}

#: Native functions of one number, and the type that they give; None: the argument's.
FUNCTIONS: dict[Any, type | None] = {
    float: float, int: int, abs: None, math.floor: int, math.ceil: int, math.trunc: int,
    **dict.fromkeys(
        (math.sqrt, math.exp, math.log, math.log2, math.log10, math.sin, math.cos, math.tan, math.tanh, math.fabs),
        float,
    ),
}  # fmt: skip


def item(s: Session, tensor: TensorValue) -> Value | None:
    """`tensor.item()` as a node; None where numbers do not stay in the graph, or it is no int or float."""
    fake = tensor.fake
    if not s.options.capture_scalar_outputs or fake.numel() != 1 or fake.dtype is torch.bool or fake.is_complex():
        return None
    node = s.graph.call_method("item", (tensor.node,))
    return _number(s, node, float if fake.is_floating_point() else int)


def listed(s: Session, tensor: TensorValue, read: Callable[[Any, int], Any]) -> Value | None:
    """`tensor.tolist()` of a short vector or a single number; `read` takes an item."""
    if tensor.fake.dim() == 0:
        return item(s, tensor)
    if not s.options.capture_scalar_outputs or tensor.fake.dim() > 1 or len(tensor.fake) > LONGEST_LIST:
        return None
    if tensor.fake.dtype is torch.bool or tensor.fake.is_complex():
        return None
    return ListValue([item(s, read(tensor, k)) for k in range(len(tensor.fake))])


def binary(s: Session, name: str, left: Value, right: Value) -> Value | None:
    """`left op right` of numbers, one of them in the graph."""
    size = size_values.binary(s, name if name in ARITHMETIC else name[1:], left, right)
    if size is not None:
        return size
    function = ARITHMETIC.get(name) or ARITHMETIC.get(name[1:])
    if function is None and all(isinstance(v, (GraphNumber, Claim)) or _plain(v) for v in (left, right)):
        return _unknown(s)
    if function is None or not all(isinstance(v, GraphNumber) or _constant(v) for v in (left, right)):
        return None
    kind = float if function is operator.truediv or float in (left.cls, right.cls) else int
    if isinstance(right, Const) and right.value == 0 and function in DIVISIONS:
        try:
            function(left.cls(1), right.value)
        except ZeroDivisionError as error:  # a graph without a use for the quotient would not compute it
            return s.throw_native(error)
    return _number(s, s.graph.call_function(function, (_argument(left), _argument(right))), kind)


def unary(s: Session, name: str, value: GraphNumber | Claim) -> Value | None:
    size = size_values.unary(s, name, value)
    if size is not None:
        return size
    function = UNARY.get(name)
    if function is None or isinstance(value, Claim):
        return _unknown(s)
    return _number(s, s.graph.call_function(function, (value.node,)), value.kind)


def call(s: Session, function: Any, args: list[Any]) -> Value | None:
    """`function(number)` for a native function."""
    size = size_values.call(s, function, args)
    if size is not None:
        return size
    if len(args) != 1 or not isinstance(args[0], GraphNumber) or function not in FUNCTIONS:
        return None
    kind = FUNCTIONS[function] or args[0].kind
    if function is args[0].kind:
        return args[0]
    return _number(s, s.graph.call_function(function, (args[0].node,)), kind)


def raising(graph: Any, outputs: list[Any]) -> list[Any]:
    """The numbers that nobody uses and that Python may raise an error for: the graph returns them, so it computes them.

        5 / t.item()        raises where the tensor holds 0, whoever wants the quotient
    """
    found, live = [], set(outputs)
    for node in reversed(graph.nodes):
        if node not in live and node.meta.get("raises"):
            found.append(node)
        if node in live or node.meta.get("raises") or impure(node):
            live.update(node.all_input_nodes)
    return found


def needed(s: Session) -> Any:
    """The value decides what the program does next; never returns."""
    return s.unsupported(
        "data-dependent-branch", "the code branches on a number that a tensor holds",
        "Use torch.where or torch.cond, or move the branch out of the compiled function.",
    )


def _unknown(s: Session) -> NoReturn:
    """What is done needs the number itself; never returns."""
    s.unsupported(
        "data-dependent-value", "the code computes something with a number that a tensor holds that no graph does",
        "Keep the computation in tensors, or move it out of the compiled function.",
    )


def _plain(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, bool, complex)


def _constant(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float) and has_text(value.value)


def in_graph(s: Session, number: Any) -> Any:
    """`number`, if a graph can hold it: graphs are text that PyTorch writes."""
    if not has_text(number):
        s.unsupported("graph-argument", "an integer of so many digits cannot be part of a graph")
    return number


def _argument(value: Any) -> Any:
    return value.node if isinstance(value, GraphNumber) else value.value


def _number(s: Session, node: Any, kind: type) -> GraphNumber:
    node.meta.update(fake=kind(1), stack=s.stack(), raises=_may_raise(node))
    return GraphNumber(node, kind)


def _may_raise(node: Any) -> bool:
    if node.op != "call_function" or node.target in TOTAL:
        return False
    return node.target not in DIVISIONS or isinstance(node.args[1], Node)


#: Of the functions above, those that have a result for every number.
TOTAL = frozenset((*ARITHMETIC.values(), *UNARY.values(), abs, float, math.fabs, math.tanh)) - {*DIVISIONS}
