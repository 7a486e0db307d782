"""Integers that follow from their place in a tensor, and truth values that compare such integers.

    torch.arange(n)[:, None] - 1                        ->    -1 + row
    torch.arange(n) <= torch.arange(n)[:, None]         ->    column - row <= 0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.ir.records import dataclass
from dovetail.ops.calls.schema import facts
from dovetail.ops.fake.rules.layout import is_one
from dovetail.ops.fake.symbolic.size_questions import same

aten = torch.ops.aten
Node = torch.fx.Node


@dataclass(frozen=True)
class Affine:
    """`start` plus `step` times the index, for each (dimension, step); dimensions are counted from the last, -1."""

    start: int
    steps: frozenset[tuple[int, int]] = frozenset()

    def plus(self, other: Affine, times: int = 1) -> Affine:
        sums = dict(self.steps)
        for dim, step in other.steps:
            sums[dim] = sums.get(dim, 0) + times * step
        return Affine(self.start + times * other.start, frozenset((d, s) for d, s in sums.items() if s))

    def at(self, dims: dict[int, int]) -> Affine:
        """With other names for the dimensions; those without one have the index 0."""
        return Affine(self.start, frozenset((dims[d], s) for d, s in self.steps if d in dims))


ALWAYS, NEVER = Affine(0), Affine(1)


def inverted(form: Affine | None) -> Affine | None:
    return None if form is None else Affine(1).plus(form, -1)


def affine(node: Any) -> Affine | None:
    """What integers the tensor holds, whatever its type; None where that is not known."""
    if not isinstance(node, Node):
        # An integer, which every type holds exactly.
        whole = type(node) is int or type(node) is float and abs(node) <= 1 << 24 and node == int(node)
        return Affine(int(node)) if whole else None
    if _dtype(node) is torch.bool:
        return {ALWAYS: Affine(1), NEVER: Affine(0)}.get(below(node))  # type: ignore[arg-type]
    rules = {torch.int64: _INTEGERS, torch.float32: _FILLED}.get(_dtype(node))
    return None if rules is None else _known("affine", rules, node)


def below(node: Any) -> Affine | None:
    """What is at most 0 exactly where the truth values of the tensor are True."""
    if not isinstance(node, Node):
        return (ALWAYS if node else NEVER) if type(node) is bool else None
    return _known("below", _TRUTHS, node) if _dtype(node) is torch.bool else None


def shown(node: Any) -> Affine | None:
    """What is at most 0 where a tensor of floats is 0, and more where it is -inf."""
    if not isinstance(node, Node):
        return {0: ALWAYS, -math.inf: NEVER}.get(node) if type(node) in (int, float) else None
    return _known("shown", _SHOWN, node) if _dtype(node).is_floating_point else None


def _dtype(node: Node) -> Any:
    return getattr(node.meta["val"], "dtype", torch.int8)  # of what is no tensor, none that is looked for


def _shape(node: Any) -> tuple:
    return tuple(node.meta["val"].shape)


def _known(name: str, rules: dict[Any, Callable[[Node], Affine | None]], node: Node) -> Affine | None:
    if name not in node.meta:
        rule = rules.get(node.target)
        form = rule(node) if rule is not None else _moved(node, _OF[name])
        node.meta[name] = None if form is None else _settled(form, _shape(node), name == "affine")
    return node.meta[name]


def _settled(form: Affine, shape: tuple, exact: bool) -> Affine:
    """Without steps along dimensions of size 1, whose only index is 0; and decided, where a form has one sign."""
    form = form.at({d: d for d in range(-len(shape), 0) if not is_one(shape[d])})
    if exact:
        return form
    ends = [step * (max(shape[d] - 1, 0) if type(shape[d]) is int else math.inf) for d, step in form.steps]
    if form.start + sum(e for e in ends if e > 0) <= 0:
        return ALWAYS
    return NEVER if form.start + sum(e for e in ends if e < 0) > 0 else form


# ---------------------------------------------------------------- views and copies


def _moved(node: Node, of: Callable[[Any], Affine | None]) -> Affine | None:
    """Views and copies have the elements of their argument, in other places."""
    source = of(node.args[0]) if _is_moved(node) else None
    if source is None or not source.steps:
        return source
    view = _VIEWS.get(node.target)
    return None if view is None else view(node, source)


def _is_moved(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or not node.args or not isinstance(node.args[0], Node):
        return False
    return node.target in _COPIES or facts(node.target).view and _dtype(node.args[0]) is _dtype(node)


def _same_order(node: Node, form: Affine) -> Affine | None:
    """Dimensions of size 1 come and go."""
    before, after = _shape(node.args[0]), _shape(node)
    old = [k - len(before) for k, size in enumerate(before) if not is_one(size)]
    new = [k - len(after) for k, size in enumerate(after) if not is_one(size)]
    alike = len(old) == len(new) and all(same(before[a], after[b]) for a, b in zip(old, new, strict=True))
    return form.at(dict(zip(old, new, strict=True))) if alike else None


def _permuted(node: Node, form: Affine) -> Affine | None:
    order = node.args[1]
    return form.at({d % len(order) - len(order): k - len(order) for k, d in enumerate(order)})  # type: ignore[arg-type]


def _transposed(node: Node, form: Affine) -> Affine | None:
    count = len(_shape(node))
    axes: Any = node.args[1:] or (-2, -1)
    a, b = (d % count - count for d in axes)
    return form.at({d: b if d == a else a if d == b else d for d in range(-count, 0)})


def _sliced(node: Node, form: Affine) -> Affine | None:
    given: Any = (*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :])
    dim, start, _, step = given
    count = len(_shape(node))
    if type(start or 0) is not int or (start or 0) < 0 or type(step) is not int:
        return None
    place = dim % count - count
    own = dict(form.steps).get(place, 0)
    first = Affine(form.start + own * (start or 0), form.steps - {(place, own)})
    return first.plus(Affine(0, frozenset({(place, own * step)} if own else ())))


_COPIES = (
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.alias.default, aten.detach.default, aten.clone.default,
    aten._to_copy.default,
)  # fmt: skip
_VIEWS: dict[Any, Callable[[Node, Affine], Affine | None]] = {
    **dict.fromkeys(_COPIES, _same_order),
    aten.expand.default: lambda node, form: form,  # sizes of 1 have no step
    aten.permute.default: _permuted,
    **dict.fromkeys((aten.transpose.int, aten.t.default), _transposed),
    aten.slice.Tensor: _sliced,
}


# ---------------------------------------------------------------- integers


def _counted(node: Node) -> Affine | None:
    """`arange(end)`, `arange(start, end)`, with a step."""
    start, _, step = (0, *node.args, 1) if len(node.args) == 1 else (*node.args, 1)[:3]
    if type(start) is not int or type(step) is not int:
        return None
    return Affine(start, frozenset({(-1, step)} if step else ()))


def _added(times: int) -> Callable[[Node], Affine | None]:
    def rule(node: Node) -> Affine | None:
        a, b = map(affine, node.args[:2])
        return None if a is None or b is None or node.kwargs or len(node.args) > 2 else a.plus(b, times)

    return rule


def _joined(node: Node) -> Affine | None:
    """Parts that go on where the one before ends, as in `torch.diff` of what rises evenly."""
    parts: Any = node.args[0]
    count = len(_shape(node))
    dim: Any = node.args[1] if len(node.args) > 1 else 0
    place = dim % count - count
    whole: Affine | None = None
    at = 0
    step = max((dict(f.steps).get(place, 0) for p in parts if (f := affine(p)) is not None), key=abs, default=0)
    for k, part in enumerate(parts):
        form, size = affine(part), _shape(part)[place]
        if form is None or type(size) is not int and k + 1 < len(parts):
            return None
        along = form.plus(Affine(0, frozenset({(place, step)}))) if is_one(size) and step else form
        begun = Affine(along.start - step * at, along.steps)
        if whole is not None and begun != whole:
            return None
        whole, at = begun, at + (size if k + 1 < len(parts) else 0)
    return whole


def _looked_up(node: Node) -> Affine | None:
    """Every dimension by integers that follow from their place, too."""
    source, sizes, indices = affine(node.args[0]), _shape(node.args[0]), list(node.args[1])  # type: ignore[arg-type]
    if source is None or len(indices) != len(sizes):
        return None
    found = Affine(source.start)
    for k, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        place = affine(index)
        if place is None or _dtype(index) is not torch.int64 or not _within(place, _shape(index), size):
            return None
        found = found.plus(place, dict(source.steps).get(k - len(sizes), 0))
    return found


def _within(place: Affine, shape: tuple, size: Any) -> bool:
    """Is every index one of a dimension of this size? Others would be refused, or count from its end."""
    if place.start == 0 and len(place.steps) == 1:
        ((dim, step),) = place.steps
        if step == 1 and same(shape[dim], size):
            return True
    known = all(type(n) is int for n in (*shape, size)) and place.start >= 0 and all(s > 0 for _, s in place.steps)
    return known and place.start + sum(step * (shape[dim] - 1) for dim, step in place.steps) < size


def _number(place: int) -> Callable[[Node], Affine | None]:
    def rule(node: Node) -> Affine | None:
        value = node.args[place]  # a fraction is cut off where integers are filled with it
        return affine(value) if type(value) is int or _dtype(node) is torch.float32 else None

    return rule


_ONES = aten.ones.default, aten.ones_like.default, aten.new_ones.default
_ZEROS = aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default
_FILLED: dict[Any, Callable[[Node], Affine | None]] = {
    **dict.fromkeys(_ONES, lambda node: Affine(1)),
    **dict.fromkeys(_ZEROS, lambda node: Affine(0)),
    **dict.fromkeys((aten.full.default, aten.full_like.default), _number(1)),
    aten.scalar_tensor.default: _number(0),
}
_INTEGERS: dict[Any, Callable[[Node], Affine | None]] = {
    **_FILLED,
    **dict.fromkeys((aten.arange.default, aten.arange.start, aten.arange.start_step), _counted),
    aten.add.Tensor: _added(1),
    aten.sub.Tensor: _added(-1),
    aten.cat.default: _joined,
    aten.cumsum.default: lambda node: Affine(0) if affine(node.args[0]) == Affine(0) else None,  # of nothing
    aten.index.Tensor: _looked_up,
}


# ---------------------------------------------------------------- truth values


def _compared(times: int, strict: int) -> Callable[[Node], Affine | None]:
    """`times` is 1 for "less", -1 for "greater"; `strict` is 1 where the two may not be equal."""

    def rule(node: Node) -> Affine | None:
        a, b = map(affine, node.args[:2])
        return None if a is None or b is None else Affine(strict).plus(a, times).plus(b, -times)

    return rule


def _whether(equal: bool) -> Callable[[Node], Affine | None]:
    """Two that differ by the same number everywhere."""

    def rule(node: Node) -> Affine | None:
        a, b = map(affine, node.args[:2])
        difference = None if a is None or b is None else a.plus(b, -1)
        if difference is None or difference.steps:
            return None
        return ALWAYS if (difference.start == 0) is equal else NEVER

    return rule


def _joint(neutral: Affine, decisive: Affine) -> Callable[[Node], Affine | None]:
    def rule(node: Node) -> Affine | None:
        a, b = map(below, node.args[:2])
        if decisive in (a, b):
            return decisive
        return a if b in (neutral, a) else b if a == neutral else None

    return rule


def _kept(node: Node) -> Affine | None:
    """Where `tril` or `triu` keep an element: column - row - diagonal is at most, or at least, 0."""
    offset: Any = node.args[1] if len(node.args) > 1 else 0
    if type(offset) is not int:
        return None
    form = Affine(-offset, frozenset({(-1, 1), (-2, -1)}))
    return form if node.target is aten.tril.default else Affine(0).plus(form, -1)


_BOTH, _EITHER = _joint(ALWAYS, NEVER), _joint(NEVER, ALWAYS)
_TRIANGLES = aten.tril.default, aten.triu.default
_TRUTHS: dict[Any, Callable[[Node], Affine | None]] = {
    **dict.fromkeys((aten.le.Tensor, aten.le.Scalar), _compared(1, 0)),
    **dict.fromkeys((aten.lt.Tensor, aten.lt.Scalar), _compared(1, 1)),
    **dict.fromkeys((aten.ge.Tensor, aten.ge.Scalar), _compared(-1, 0)),
    **dict.fromkeys((aten.gt.Tensor, aten.gt.Scalar), _compared(-1, 1)),
    **dict.fromkeys((aten.eq.Tensor, aten.eq.Scalar), _whether(True)),
    **dict.fromkeys((aten.ne.Tensor, aten.ne.Scalar), _whether(False)),
    **dict.fromkeys((aten.bitwise_and.Tensor, aten.logical_and.default), _BOTH),
    **dict.fromkeys((aten.bitwise_or.Tensor, aten.logical_or.default), _EITHER),
    **dict.fromkeys((aten.bitwise_not.default, aten.logical_not.default), lambda node: inverted(below(node.args[0]))),
    **dict.fromkeys(_ONES, lambda node: ALWAYS),
    **dict.fromkeys(_ZEROS, lambda node: NEVER),
    **dict.fromkeys((aten.full.default, aten.full_like.default), lambda node: below(node.args[1])),
    **dict.fromkeys(_TRIANGLES, lambda node: _kept(node) if below(node.args[0]) == ALWAYS else None),
}


# ---------------------------------------------------------------- floats that are 0 or -inf


def _choice(of: Any, one: Any, other: Any) -> Affine | None:
    """`where(of, one, other)`"""
    condition, a, b = below(of), shown(one), shown(other)
    if condition in (ALWAYS, NEVER):
        return a if condition == ALWAYS else b
    return {(ALWAYS, NEVER): condition, (NEVER, ALWAYS): inverted(condition)}.get((a, b))  # type: ignore[arg-type]


_SHOWN: dict[Any, Callable[[Node], Affine | None]] = {
    **dict.fromkeys(_ZEROS, lambda node: ALWAYS),
    **dict.fromkeys((aten.full.default, aten.full_like.default), lambda node: shown(node.args[1])),
    aten.scalar_tensor.default: lambda node: shown(node.args[0]),
    aten.where.self: lambda node: _choice(*node.args),
    **dict.fromkeys(
        (aten.masked_fill.Scalar, aten.masked_fill.Tensor),
        lambda node: _choice(node.args[1], node.args[2], node.args[0]),
    ),
    **dict.fromkeys(_TRIANGLES, lambda node: inverted(_kept(node)) if shown(node.args[0]) == NEVER else None),
}
_OF: dict[str, Callable[[Any], Affine | None]] = {"affine": affine, "below": below, "shown": shown}
