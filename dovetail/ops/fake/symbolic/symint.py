"""Symbolic sizes as PyTorch's dispatcher and meta kernels pass them along: what a SymInt or SymBool of ours points to.

PyTorch computes with such integers through the methods of their node, named as below, and asks `guard_bool` where
the path depends on a comparison.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir import dimforms, dims
from dovetail.ir.dims import Dim
from dovetail.ops.fake.symbolic.number import SYMBOLIC, NumberNode, SymbolicNode, always, needed
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL, UNEQUAL, Sizes


class _Node(SymbolicNode):
    """What sizes and statements about them answer alike."""

    __slots__ = ("sizes",)
    sizes: Sizes
    is_int = is_float = always(False)
    has_hint = always(True)
    nested_int = constant_bool = always(None)

    def clone(self) -> Any:
        return self

    def wrap_int(self, number: int) -> SizeNode:
        return SizeNode(self.sizes, number)

    def wrap_bool(self, truth: bool) -> TruthNode:
        return TruthNode(self.sizes, bool(truth))

    def wrap_float(self, number: float) -> NumberNode:
        return NumberNode(number, number)

    def str(self) -> str:
        if self.sizes.unnamed:
            raise needed()
        return str(self)

    _graph_repr = str


def _arithmetic(function: Callable[[Dim, Dim], Dim]) -> Callable[[Any, Any], SizeNode]:
    return lambda self, other: self._binary(function, other)


def _comparison(sign: str, swapped: bool, offset: int = 0) -> Callable[[Any, Any], TruthNode]:
    return lambda self, other: self._compare(sign, other, swapped, offset)


class SizeNode(_Node):
    """An integer: `dim` of the compilation `sizes`."""

    __slots__ = ("dim",)

    def __init__(self, sizes: Sizes, dim: Dim) -> None:
        self.sizes, self.dim = sizes, dim

    def __str__(self) -> str:
        return str(self.dim)

    __repr__ = __str__

    @property
    def hint(self) -> int:
        return self.sizes.hint(self.dim)

    is_int = always(True)

    def is_constant(self) -> bool:
        return isinstance(self.dim, int)

    def maybe_as_int(self) -> int | None:
        return self.dim if isinstance(self.dim, int) else None

    constant_int = maybe_as_int

    def require_hint(self, fallback: Any = None) -> int:
        return self.hint

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return self.sizes.value(self.dim)

    int_ = guard_int

    def _binary(self, function: Callable[[Dim, Dim], Dim], other: Any) -> SizeNode:
        if type(other) is not SizeNode:
            raise needed()
        sizes, dim = self.sizes, function(self.dim, other.dim)
        return SizeNode(sizes, sizes.resolve(dim) if sizes.facts else dim)

    add, sub, mul = _arithmetic(operator.add), _arithmetic(operator.sub), _arithmetic(operator.mul)

    def floordiv(self, other: Any) -> SizeNode:
        return self._divided(other, dims.floordiv, lambda a, b: dims.floordiv(-a, -b))

    int_floordiv = floordiv

    def mod(self, other: Any) -> SizeNode:
        return self._divided(other, dims.mod, lambda a, b: -dims.mod(-a, -b))

    def _divided(
        self, divisor: Any, function: Callable[[Dim, Dim], Dim], by_negative: Callable[[Dim, Dim], Dim]
    ) -> SizeNode:
        """The algebra divides by positive numbers only."""
        if isinstance(divisor, SizeNode) and isinstance(divisor.dim, int) and divisor.dim < 0:
            return self._binary(by_negative, divisor)
        self._divides(divisor)
        return self._binary(function, divisor)

    def _divides(self, divisor: Any) -> None:
        if not isinstance(divisor, SizeNode) or not self.sizes.holds(AT_LEAST, divisor.dim - 1):
            raise needed()

    def sym_sum(self, nodes: Sequence[Any]) -> SizeNode:
        return functools.reduce(SizeNode.add, nodes)

    def sym_min(self, other: Any) -> SizeNode:
        return self._extreme(other, dims.minimum, True)

    def sym_max(self, other: Any) -> SizeNode:
        return self._extreme(other, dims.maximum, False)

    def _extreme(self, other: Any, function: Callable[[Dim, Dim], Dim], least: bool) -> SizeNode:
        if not isinstance(other, SizeNode):
            raise needed()
        below = self.sizes.known(AT_LEAST, other.dim - self.dim)
        if below is not None:
            return self if below == least else other
        if self.sizes.known(AT_LEAST, self.dim - other.dim):
            return other if least else self
        return self._binary(function, other)

    def neg(self) -> SizeNode:
        return SizeNode(self.sizes, -self.dim)

    def pos(self) -> SizeNode:
        return self

    def pow_by_natural(self, other: Any) -> SizeNode:
        exponent = other.dim if isinstance(other, SizeNode) else None
        if not isinstance(exponent, int):
            raise needed()
        return SizeNode(self.sizes, dims.product([self.dim] * exponent))

    pow = pow_by_natural

    def _compare(self, sign: str, other: Any, swapped: bool, offset: int) -> TruthNode:
        if not isinstance(other, SizeNode):
            raise needed()
        left, right = (other.dim, self.dim) if swapped else (self.dim, other.dim)
        small = any(isinstance(side, int) and side in (0, 1) for side in (left, right))
        alike = not small or dimforms.has_remainder(left - right)
        return TruthNode(self.sizes, (sign, left - right - offset), alike, (left, right))

    eq, ne = _comparison(EQUAL, False), _comparison(UNEQUAL, False)
    ge, gt = _comparison(AT_LEAST, False), _comparison(AT_LEAST, False, 1)
    le, lt = _comparison(AT_LEAST, True), _comparison(AT_LEAST, True, 1)

    def is_contiguous(self, sizes: Sequence[Any], strides: Sequence[Any]) -> TruthNode:
        return self._laid_out(sizes, strides, order=range(len(sizes)))

    def is_non_overlapping_and_dense(self, sizes: Sequence[Any], strides: Sequence[Any]) -> TruthNode:
        """Is there an order of the dimensions in which they are contiguous?"""
        left = [(dim_of(n), dim_of(s)) for n, s in zip(sizes, strides, strict=True) if dim_of(n) != 1]
        step: Dim = 1
        while left:
            fits = next((pair for pair in left if self.sizes.known(EQUAL, pair[1] - step)), None)
            if fits is None:
                return self.wrap_bool(False)
            left.remove(fits)
            step = step * fits[0]
        return self.wrap_bool(True)

    def _laid_out(self, sizes: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> TruthNode:
        """Contiguous in this order, whatever the sizes? (Were a size 0 or 1, other strides would be contiguous too.)"""
        if len(sizes) != len(order):
            return self.wrap_bool(False)
        step: Dim = 1
        for k in reversed(order):
            size = dim_of(sizes[k])
            if size == 0:
                return self.wrap_bool(True)
            if size != 1:
                if not self.sizes.known(EQUAL, dim_of(strides[k]) - step):
                    return self.wrap_bool(False)
                step = step * size
        return self.wrap_bool(True)

    def _channels_last_strides(self, sizes: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> TruthNode:
        """PyTorch's `is_channels_last_strides`, in which no symbolic size is 0 or 1."""
        if len(sizes) != len(order) or dim_of(strides[1]) == 0:
            return self.wrap_bool(False)
        least: Dim = 0
        for k in order:
            size, stride = dim_of(sizes[k]), dim_of(strides[k])
            if size == 0 or not self.sizes.known(AT_LEAST, stride - least):
                return self.wrap_bool(False)
            if k == 0 and least is dim_of(strides[1]):
                return self.wrap_bool(False)
            least = stride * (size if size != 1 else 1)
        return self.wrap_bool(True)

    is_channels_last_contiguous_2d = functools.partialmethod(_laid_out, order=(0, 2, 3, 1))
    is_channels_last_contiguous_3d = functools.partialmethod(_laid_out, order=(0, 2, 3, 4, 1))
    is_channels_last_strides_2d = functools.partialmethod(_channels_last_strides, order=(1, 3, 2, 0))
    is_channels_last_strides_3d = functools.partialmethod(_channels_last_strides, order=(1, 4, 3, 2, 0))


class TruthNode(_Node):
    """A statement about sizes: known, `(sign, dim)` for `dim sign 0`, or `("and" | "or", left, right)`."""

    __slots__ = ("claim", "alike", "sides")

    def __init__(
        self, sizes: Sizes, claim: Any, alike: bool | None = None, sides: tuple[Dim, Dim] | None = None
    ) -> None:
        """`alike`: are the two sides expected to be equal? So they are unless a size, not a remainder, is 0 or 1."""
        self.sizes, self.claim, self.alike, self.sides = sizes, claim, alike, sides

    def __str__(self) -> str:
        return str(self.claim)

    __repr__ = __str__

    @property
    def hint(self) -> bool:
        return _hint(self.sizes, self.claim)

    is_bool = always(True)

    def is_constant(self) -> bool:
        return isinstance(self.claim, bool)

    def constant_bool(self) -> bool | None:
        return self.claim if isinstance(self.claim, bool) else None

    def guard_bool(self, file: str, line: int) -> bool:
        """Asked by C++ code; Python asks `bool_`.

        That sizes differ, or are not 0 or 1, it wants to know for the sake of shortcuts and layouts: what it does for
        sizes in general is right for these too. Compound questions are whether a tensor is contiguous.
        """
        if not isinstance(self.claim, bool) and self.claim[0] in (EQUAL, UNEQUAL) and not _holds_equal(self):
            return self.claim[0] == UNEQUAL
        if not isinstance(self.claim, bool) and self.claim[0] in ("and", "or"):
            return _known(self.sizes, self.claim) is True
        return self.bool_()

    def bool_(self) -> bool:
        return self._learned(_decide(self.sizes, self.claim, self.alike))

    def _learned(self, answer: bool) -> bool:
        if self.sides is not None and self.claim[0] == (EQUAL if answer else UNEQUAL):
            self.sizes.equate(*self.sides)
        return answer

    def expect_true(self, file: str, line: int) -> bool:
        """What a check states about unbacked sizes is relied on, however unlikely."""
        claim = self.claim
        plain = not isinstance(claim, bool) and claim[0] not in ("and", "or") and _known(self.sizes, claim) is None
        if plain and self.sizes.is_unbacked(self.sizes.resolve(claim[1])):
            return self._learned(self.sizes.expect(claim[0], self.sizes.resolve(claim[1]), True))
        return self.bool_()

    expect_size = expect_true

    def statically_known_true(self, file: str, line: int) -> bool:
        return _known(self.sizes, self.claim) is True

    #: Who asks these is right to go on with either answer: shortcuts, and what is to be checked later.
    guard_size_oblivious = guard_or_false = statically_known_true

    def guard_or_true(self, file: str, line: int) -> bool:
        return _known(self.sizes, self.claim) is not False

    def and_(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.sizes, ("and", self.claim, other.claim))

    def or_(self, other: TruthNode) -> TruthNode:
        return TruthNode(self.sizes, ("or", self.claim, other.claim))

    sym_and, sym_or = and_, or_

    def sym_not(self) -> TruthNode:
        return TruthNode(self.sizes, _negated(self.claim))


def _negated(claim: Any) -> Any:
    if isinstance(claim, bool):
        return not claim
    if claim[0] in ("and", "or"):
        return "or" if claim[0] == "and" else "and", _negated(claim[1]), _negated(claim[2])
    sign, dim = claim
    return (AT_LEAST, -dim - 1) if sign == AT_LEAST else (UNEQUAL if sign == EQUAL else EQUAL, dim)


def _holds_equal(node: TruthNode) -> bool:
    """Are the two sides of an equation equal in this call?"""
    return node.sizes.likely(EQUAL, node.sizes.resolve(node.claim[1]), node.alike)


def _known(sizes: Sizes, claim: Any) -> bool | None:
    if isinstance(claim, bool):
        return claim
    if claim[0] not in ("and", "or"):
        return sizes.known(*claim)
    left, right = _known(sizes, claim[1]), _known(sizes, claim[2])
    decisive = claim[0] == "or"
    if left is decisive or right is decisive:
        return decisive
    return None if left is None or right is None else not decisive


def _hint(sizes: Sizes, claim: Any) -> bool:
    if isinstance(claim, bool):
        return claim
    if claim[0] in ("and", "or"):
        return (all if claim[0] == "and" else any)(_hint(sizes, c) for c in claim[1:])
    return sizes.likely(*claim)


def _decide(sizes: Sizes, claim: Any, alike: bool | None = None) -> bool:
    """Relies on as little as settles it."""
    known = _known(sizes, claim)
    if known is not None:
        return known
    if claim[0] not in ("and", "or"):
        sign, dim = claim
        return sizes.holds(sign, dim, alike)
    decisive = claim[0] == "or"
    for part in sorted(claim[1:], key=lambda c: _known(sizes, c) is None):
        if _hint(sizes, part) is decisive:
            return _decide(sizes, part)
    for part in claim[1:]:
        _decide(sizes, part)
    return not decisive


def symint(sizes: Sizes, dim: Dim) -> Any:
    """The dim for PyTorch's functions: a plain int where it is one."""
    return dim if isinstance(dim, int) else torch.SymInt(SizeNode(sizes, dim))


def is_size(value: Any) -> bool:
    """Is it a symbolic size (and no number of unknown use), for PyTorch's functions or as an argument in a graph?"""
    return isinstance(value, torch.SymInt) and type(value.node) is SizeNode or type(value) is SizeNode


def dim_of(value: Any) -> Dim:
    """The Dim behind a size that PyTorch or a fake tensor gives, in terms of the fewest symbols."""
    if isinstance(value, int):
        return value
    node = value if isinstance(value, SizeNode) else value.node
    return node.sizes.resolve(node.dim)


def final_of(value: Any) -> Dim:
    """The same for code generation, when nothing more will be learned: symbols know the least value that they have."""
    dim = dim_of(value)
    if isinstance(dim, int):
        return dim
    node = value if isinstance(value, SizeNode) else value.node
    return node.sizes.raised(dim)


def concrete(value: Any) -> Any:
    """The value for PyTorch's functions: numbers that vary replaced by their hints, sizes out of a graph by SymInts."""
    if type(value) is SizeNode:
        return symint(value.sizes, value.sizes.resolve(value.dim))
    if isinstance(value, SYMBOLIC):
        return value.node.hint if isinstance(value.node, NumberNode) else value
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(concrete, value))
    return value
