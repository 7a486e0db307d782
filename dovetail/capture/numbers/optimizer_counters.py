"""Numbers that an optimizer keeps in tensors (counts of steps, rates) where its code decides by their value.

    if rho_t > 5.0:         rho_t follows from the count of steps, which is there before the graph runs

The number is computed in plain Python, from the tensor outside, and a decision is a guard on its outcome, as for any
number from outside. Tensors of the user's own are left alone: what they hold is not expected to stay as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.capture.numbers.graph_memory import graph_memory
from dovetail.capture.numbers.input_numbers import InputNumber
from dovetail.capture.state.module_globals import in_optimizer
from dovetail.capture.tables.operator_names import BINARY, COMPARISONS, FIELD
from dovetail.capture.values.base import Const, Session, Value
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.devices import on_host
from dovetail.ir.literals import literal
from dovetail.ir.source import Computed, Source

Node = torch.fx.Node

ARITHMETIC: dict[Any, str] = {BINARY[name]: name for name in (*FIELD, "pow")}


def number(s: Session, tensor: TensorValue) -> Value | None:
    """The number that the tensor holds now; None where it is not known before the graph runs."""
    if not in_optimizer(s) or tensor.fake.dim() or tensor.fake.dtype is torch.bool or tensor.node.graph is not s.root:
        return None
    return _value(s, tensor.node, None)


def outcome(s: Session, tensor: TensorValue) -> bool | None:
    """`bool(tensor)`."""
    if not in_optimizer(s) or tensor.fake.dim() or tensor.node.graph is not s.root:
        return None
    sign = COMPARISONS.get(tensor.node.target)
    if sign is None:
        found = number(s, tensor)
        return None if found is None else s.truth(found)
    left, right = (_operand(s, a, tensor.node) for a in tensor.node.args)
    if left is None or right is None:
        return None
    return s.truth(s.compare(sign, left, right))


def _value(s: Session, node: Node, before: Node | None) -> Value | None:
    """The number in the node's tensor; `before`: as it was before that node ran."""
    given = _input(s, node) or _made(s, node)
    if given is not None:
        real, source, placeholder = given
        return _from_outside(s, real, source, placeholder, before)
    fake = node.meta.get("fake")
    if not isinstance(fake, torch.Tensor) or fake.dtype is not torch.float64 or graph_memory(s).written(node, before):
        return None
    if node.op == "call_method" and node.target == "to":
        return _operand(s, node.args[0], node)
    if node.op == "call_function" and node.target is operator.neg:
        inner = _operand(s, node.args[0], node)
        return None if inner is None else s.unary("neg", inner)
    name = ARITHMETIC.get(node.target) if node.op == "call_function" else None
    if name is None:
        return None
    left, right = (_operand(s, a, node) for a in node.args)
    return None if left is None or right is None else s.binary(name, left, right)


def _operand(s: Session, argument: Any, user: Node) -> Value | None:
    if not isinstance(argument, Node):
        return Const(argument) if type(argument) in (int, float) else None
    source = next((source for source, node in s.taken.numbers.items() if node is argument), None)
    if source is not None:
        return InputNumber(s, argument.meta["fake"], source)
    return _value(s, argument, user)


def _input(s: Session, node: Node) -> tuple[torch.Tensor, Source, Node] | None:
    """The tensor outside whose memory the node's tensor is, the path to it and its placeholder."""
    found = graph_memory(s).input(node)
    if found is None:
        return None
    placeholder, given = found
    value = s.objects.by_fake.get(id(given.fake))
    real = None if value is None else value.origin
    if real is None or real.dim() or not on_host(real) or real.requires_grad or node.meta["fake"].dim():
        return None
    return real, given.source, placeholder


#: What makes the tensors of a state from numbers alone.
MAKERS = (torch.zeros, torch.ones, torch.full, torch.tensor, torch.as_tensor)


def _made(s: Session, node: Node) -> tuple[torch.Tensor, None, Node] | None:
    """The same of one that the graph makes of constants."""
    maker = graph_memory(s).maker(node)
    if maker is None or maker.target not in MAKERS or maker.all_input_nodes or maker.meta["fake"].dim():
        return None
    with torch._C._DisableTorchDispatch():
        return maker.target(*maker.args, **maker.kwargs), None, maker  # type: ignore[arg-type]


def _from_outside(
    s: Session, real: torch.Tensor, source: Source | None, placeholder: Node, before: Node | None
) -> Value | None:
    """What the tensor holds, with what has been added to it until then."""
    with torch._C._DisableTorchDispatch():
        changed, template = real.detach().clone(), "{}"
        for write in graph_memory(s).written(placeholder, before):
            added = _added(s, write, real.dtype)
            if added is None:
                return None
            number, factor = added
            changed = changed.add(number, alpha=factor)
            text = literal(number)
            template = f"{template}.add({text}, alpha={literal(factor)})" if factor != 1 else f"({template} + {text})"
        found = changed.item()
    return Const(found) if source is None else InputNumber(s, found, Computed(f"{template}.item()", (source,)))


ADDING: tuple[Callable[..., Any] | str, ...] = (operator.iadd, "add_", torch._foreach_add_)


def _added(s: Session, node: Node, dtype: torch.dtype) -> tuple[float, float] | None:
    """The number that the node adds in place and its factor; None if it does anything else."""
    if node.target not in ADDING or len(node.args) != 2 or not node.kwargs.keys() <= {"alpha"}:
        return None
    number, factor = node.args[1], node.kwargs.get("alpha", 1)
    fake = number.meta.get("fake") if isinstance(number, Node) else None
    if isinstance(fake, torch.Tensor) and fake.dtype is dtype and not fake.dim():
        made = _value(s, number, node)  # type: ignore[arg-type]
        number = made.value if type(made) is Const else number
    return (number, factor) if {type(number), type(factor)} <= {int, float} else None  # type: ignore[return-value]
