"""Attention that a program has written out: the steps from two operands of a product to those of another.

    softmax(dropout(q @ k.mT * 0.125 + bias).masked_fill(hidden, -inf)) @ v      ->      Chain(q, k, v, 0.125, ...)

Steps are nodes of the captured graph, each with one user, the next. What each of them does is read off its arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from dovetail.ir.records import dataclass

Node = torch.fx.Node
Rule = Callable[["Chain", Node], Any]
#: Numbers that hide: exponentials of scores that they take the place of are zero beside those of any others.
LEAST = -1e4
MOST_BIASES = 4  # each doubles the ways that may lead to a product


@dataclass
class Chain:
    """`biases` are added to scores; `hidden` has masks, whether they are true where scores are hidden, and by what."""

    steps: list[Node] = field(default_factory=list)
    query: Node | None = None
    key: Node | None = None
    value: Node | None = None
    orders: tuple[str, str] = ("", "")  # equations of the two products, where they are einsums
    transposed: bool = True  # is the key the product's second operand, transposed?
    scale: float = 1.0
    biases: list[Node] = field(default_factory=list)
    hidden: list[tuple[Node, bool, float]] = field(default_factory=list)
    dropout: float = 0.0
    softmax: Node | None = None
    dimension: Any = None


def chain_of(node: Node) -> Chain | None:
    """What ends with this product, if its first operand is a softmax of such scores."""
    chain = Chain()
    operands = _product(node)
    if operands is None:
        return None
    equation, probabilities, chain.value = operands
    chain.orders = ("", equation)
    found = _walk(chain, probabilities, node, _AFTER)
    if found is None or not _softmax(chain, found):
        return None
    scores = _argument(found, 0, "input")
    start = _walk(chain, scores, found, _BEFORE) if isinstance(scores, Node) else None
    operands = _product(start) if start is not None else None
    if start is None or operands is None:
        return None
    chain.orders = (operands[0], equation)
    _, chain.query, chain.key = operands
    chain.steps.append(start)
    return chain


def _argument(node: Node, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _name(node: Node) -> Any:
    """A function, or the name of a method without what says that it is in place."""
    if node.op == "call_method":
        return str(node.target).strip("_")
    return node.target if node.op == "call_function" else None


def _product(node: Node) -> tuple[str, Node, Node] | None:
    """An equation, if there is one, and the operands."""
    name = _name(node)
    args: list[Any] = list(node.args)
    equation: Any = args.pop(0) if name is torch.einsum and args else ""
    if name not in PRODUCTS or not isinstance(equation, str) or len(args) != 2 or node.kwargs:
        return None
    left, right = args
    return (equation.replace(" ", ""), left, right) if isinstance(left, Node) and isinstance(right, Node) else None


PRODUCTS = frozenset((torch.matmul, operator.matmul, torch.bmm, torch.einsum, "matmul", "bmm"))


def _walk(chain: Chain, node: Any, user: Node, rules: Mapping[Any, Rule]) -> Node | None:
    """Follows steps backwards for as long as a rule takes them; the first node that none does. Each step is for the
    next one alone."""
    while isinstance(node, Node) and _users(node) == {user}:
        rule = rules.get(_name(node))
        before = rule(chain, node) if rule is not None else None
        if before is None:
            return node
        chain.steps.append(node)
        node, user = before, node
    return None


def _users(node: Node) -> set[Node]:
    """Those that do something: a dropout that gives what it is given is followed by nothing."""
    return {user for user in node.users if user.users or user.target not in _DROPOUTS}


def _softmax(chain: Chain, node: Node) -> bool:
    if _name(node) not in (F.softmax, torch.softmax, "softmax"):
        return False
    place = 3 if _name(node) is F.softmax else 2
    dtype = _argument(node, place, "dtype")
    chain.softmax, chain.dimension = node, _argument(node, 1, "dim")
    chain.steps.append(node)
    return dtype in (None, torch.float32)


# ---------------------------------------------------------------- steps: what they are made of, or None


def _cast(chain: Chain, node: Node) -> Any:
    """Between floating-point types: scores are computed in float32 or in the operands' type."""
    return node.args[0]


def _dropout(chain: Chain, node: Node) -> Any:
    rate, training = _argument(node, 1, "p", 0.5), _argument(node, 2, "training", True)
    inplace = _argument(node, 3, "inplace", False)
    if type(rate) not in (int, float) or type(training) is not bool or inplace is not False or chain.dropout:
        return None
    chain.dropout = float(rate) if training else 0.0
    return node.args[0] if node.args else None


def _scaled(inverse: bool) -> Rule:
    def rule(chain: Chain, node: Node) -> Any:
        left, right = _two(node)
        if isinstance(right, Node) and not inverse:
            left, right = right, left
        if not isinstance(left, Node) or type(right) not in (int, float) or not right > 0:
            return None
        chain.scale *= 1 / right if inverse else right
        return left

    return rule


def _before_scale(rule: Rule) -> Rule:
    """What comes after a mask that scores are multiplied with is another function."""
    return lambda chain, node: rule(chain, node) if chain.scale == 1.0 else None


def _added(chain: Chain, node: Node) -> Any:
    """A bias, and the operand that leads to a product."""
    left, right = _two(node)
    if not isinstance(left, Node) or not isinstance(right, Node) or len(chain.biases) == MOST_BIASES:
        return None
    if not _leads(chain, left, node):
        left, right = right, left
    chain.biases.append(right)
    return left


def _leads(chain: Chain, node: Node, user: Node) -> bool:
    """To a product, by steps alone?"""
    trial = Chain(biases=[*chain.biases, user])
    found = _walk(trial, node, user, _BEFORE)
    return found is not None and _product(found) is not None


def _filled(chain: Chain, node: Node) -> Any:
    mask, number = _argument(node, 1, "mask"), _number(_argument(node, 2, "value"))
    if not isinstance(mask, Node) or number is None or not number <= LEAST:
        return None
    chain.hidden.append((mask, True, number))
    return node.args[0]


def _chosen(chain: Chain, node: Node) -> Any:
    """torch.where(shown, scores, number), or the other way round."""
    if len(node.args) != 3 or node.kwargs or node.op == "call_method":
        return None
    mask: Any
    mask, left, right = node.args
    hides = _number(right) is None
    scores, number = (right, _number(left)) if hides else (left, _number(right))
    if not isinstance(mask, Node) or number is None or not number <= LEAST:
        return None
    chain.hidden.append((mask, hides, number))
    return scores


def _two(node: Node) -> tuple[Any, Any]:
    """Arguments of an operator."""
    left, right = node.args if len(node.args) == 2 and not node.kwargs else (None, None)
    return left, right


def _number(value: Any) -> float | None:
    """What is known before the program runs."""
    if isinstance(value, Node) and value.target in (torch.full, torch.tensor):
        given: tuple[Any, ...] = value.args
        value = given[-1] if value.target is torch.tensor or not given[0] else None
    return float(value) if type(value) in (int, float) else None


_DROPOUTS = (F.dropout, torch.dropout)
_CASTS = dict.fromkeys(("to", "float", "half", "bfloat16", "type_as", "type"), _cast)
_AFTER: Mapping[Any, Rule] = {**_CASTS, **dict.fromkeys(_DROPOUTS, _dropout)}
_MULTIPLIED = dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul"), _scaled(False))
_DIVIDED = dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div", "truediv"), _scaled(True))
_BEFORE: Mapping[Any, Rule] = {
    **_CASTS, **_MULTIPLIED, **_DIVIDED,
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add"), _before_scale(_added)),
    **dict.fromkeys((torch.masked_fill, "masked_fill"), _before_scale(_filled)),
    torch.where: _before_scale(_chosen),
}  # fmt: skip
