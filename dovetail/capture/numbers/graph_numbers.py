"""Numbers that the graph takes from tensors and computes with, where `capture_scalar_outputs` asks for it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.fx import Node

from dovetail.capture.numbers.input_numbers import is_number
from dovetail.capture.tables.graph_functions import impure
from dovetail.capture.tables.operator_names import ARITHMETIC, BINARY, COMPARE
from dovetail.capture.values.base import Args, Const, NotNative, Session, Value
from dovetail.capture.values.number import Precedence, SymbolicNumber
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.literals import has_text

DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
SHIFTS, BITWISE = ("lshift", "rshift"), ("and", "or", "xor")
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos}

#: Native functions of one number, and the type that they give; None: the argument's.
FUNCTIONS: dict[Any, type | None] = {
    float: float, int: int, abs: None, round: int, math.floor: int, math.ceil: int, math.trunc: int,
    **dict.fromkeys(
        (math.sqrt, math.exp, math.log, math.log2, math.log10, math.sin, math.cos, math.tan, math.tanh, math.fabs),
        float,
    ),
}  # fmt: skip


class InGraph(SymbolicNumber):
    """What only the graph knows: the program cannot decide by it."""

    __slots__ = ()

    def key(self) -> Any:
        raise NotNative(self)

    def describe(self) -> str:
        return "a number that a tensor holds"

    def binary(self, s: Session, name: str, left: Value, right: Value) -> Value | None:
        both = all(isinstance(v, InGraph) or _plain(v) for v in (left, right))
        return _unknown(s) if both and name != "matmul" else None

    def unary(self, s: Session, name: str) -> Value | None:
        return _unknown(s)

    def compare(self, s: Session, sign: str, left: Value, right: Value) -> Value | None:
        both = all(isinstance(v, InGraph) or is_number(v) for v in (left, right))
        return needed(s) if both else None

    def known(self, s: Session) -> bool | None:
        """Its truth, where something tells of it; None where it is open."""
        return None

    def truth(self, s: Session) -> bool | None:
        known = self.known(s)
        return needed(s) if known is None else known


class GraphNumber(InGraph):
    """A number that the graph computes from a tensor (`t.item()`); its value is not known while capturing."""

    __slots__ = ("node", "kind")
    precedence = Precedence.GRAPH

    def __init__(self, node: Node, kind: type) -> None:
        super().__init__()
        self.node, self.kind = node, kind

    @property
    def cls(self) -> type:  # type: ignore[override]
        return self.kind

    def binary(self, s: Session, name: str, left: Value, right: Value) -> Value | None:
        if not all(isinstance(v, GraphNumber) or _constant(v) for v in (left, right)):
            return None if name in ARITHMETIC else super().binary(s, name, left, right)
        function, kind = BINARY[name], _kind(name, left, right)
        if kind is None:
            return super().binary(s, name, left, right)
        if isinstance(right, Const) and right.value == 0 and function in DIVISIONS:
            try:
                function(left.cls(1), right.value)
            except ZeroDivisionError as error:  # a graph without a use for the quotient would not compute it
                return s.throw_native(error)
        return _number(s, function, (_argument(left), _argument(right)), kind)

    def unary(self, s: Session, name: str) -> Value | None:
        function = UNARY.get(name)
        kind = int if self.kind is bool else self.kind
        return _unknown(s) if function is None else _number(s, function, (self.node,), kind)

    def compare(self, s: Session, sign: str, left: Value, right: Value) -> Value | None:
        if not all(isinstance(v, GraphNumber) or _constant(v) for v in (left, right)):
            return super().compare(s, sign, left, right)
        return _number(s, COMPARE[sign][0], (_argument(left), _argument(right)), bool)

    def apply(self, s: Session, function: Any, args: Args) -> Value | None:
        own = int if self.kind is bool else self.kind
        plain = all(isinstance(v, GraphNumber) or _constant(v) for v in args)
        if plain and function in (max, min) and len({v.cls for v in args}) == 1 < len(args):
            return _number(s, function, tuple(map(_argument, args)), self.kind)
        if plain and function is round and len(args) == 2 and args[0] is self and args[1].cls is int:
            return _number(s, round, tuple(map(_argument, args)), own)
        if len(args) != 1 or function not in FUNCTIONS:
            return None
        if function is self.kind:
            return self
        return _number(s, function, (self.node,), FUNCTIONS[function] or own)

    def as_argument(self, s: Session, numbers: bool) -> tuple[Any, Any] | None:
        return (self.node, self.kind(1)) if numbers and s.graph is s.root else None


def takes(s: Session, fake: torch.Tensor) -> bool:
    """Are the tensor's elements numbers of the graph, once the program reads them?"""
    return s.options.capture_scalar_outputs and not fake.is_complex()


def item(s: Session, tensor: TensorValue) -> Value | None:
    """`tensor.item()` as a node; None where numbers do not stay in the graph, or it is no int, bool or float."""
    fake = tensor.fake
    if not takes(s, fake) or fake.numel() != 1:
        return None
    kind = float if fake.is_floating_point() else bool if fake.dtype is torch.bool else int
    return _made(s, s.graph.call_method("item", (tensor.node,)), kind)


def raising(graph: Any, outputs: list) -> list:
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
    return s.unsupported("data-dependent-branch", "the code branches on a number that a tensor holds")


def _unknown(s: Session) -> NoReturn:
    """What is done needs the number itself; never returns."""
    s.unsupported(
        "data-dependent-value", "the code computes something with a number that a tensor holds that no graph does",
        "Keep the computation in tensors, or move it out of the compiled function.",
    )


def _plain(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, bool, complex)


def _constant(value: Any) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, bool) and has_text(value.value)


def in_graph(s: Session, number: Any) -> Any:
    """`number`, if a graph can hold it: graphs are text that PyTorch writes."""
    if not has_text(number):
        s.unsupported("graph-argument", "an integer of so many digits cannot be part of a graph")
    return number


def _kind(name: str, left: Value, right: Value) -> type | None:
    """The type of the result, where it follows from those of the operands."""
    kinds = {left.cls, right.cls}
    if name in ARITHMETIC:
        return float if name == "truediv" or float in kinds else int
    if name in BITWISE:
        return None if float in kinds else bool if kinds == {bool} else int
    power = right.value if isinstance(right, Const) and right.cls is int else -1
    if power < 0 or name not in (*SHIFTS, "pow"):
        return None
    if left.cls is float:
        return float if name == "pow" else None
    return int


def _argument(value: Any) -> Any:
    return value.node if isinstance(value, GraphNumber) else value.value


def _number(s: Session, function: Any, args: tuple, kind: type) -> GraphNumber:
    return _made(s, s.graph.call_function(function, args), kind)


def _made(s: Session, node: Any, kind: type) -> GraphNumber:
    node.meta.update(fake=kind(1), stack=s.stack(), raises=_may_raise(node))
    return GraphNumber(node, kind)


def _may_raise(node: Any) -> bool:
    if node.op != "call_function" or node.target in TOTAL:
        return False
    return node.target not in DIVISIONS or isinstance(node.args[1], Node)


#: Of the functions above, those that have a result for every number.
_TOTAL = map(BINARY.__getitem__, (*ARITHMETIC, *BITWISE, *SHIFTS))
_COMPARED = (function for function, _, _ in COMPARE.values())
TOTAL = frozenset((*_TOTAL, *_COMPARED, *UNARY.values(), abs, float, max, min, math.fabs, math.tanh)) - {*DIVISIONS}
