"""Questions about sizes and strides that must not make a compilation rely on anything.

How a result is laid out is ours to choose; so are shortcuts. What is asked here is answered for every call that the
facts allow (`same`, `surely_less`), or by what holds when no size is as small as 0 or 1 (`general`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from dovetail.ir import dimvalues
from dovetail.ir.dims import Dim
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL, UNEQUAL, Sizes
from dovetail.ops.fake.symbolic.symint import dim_of, is_size, symint


def symbolic(values: Iterable[Any]) -> bool:
    """Is one of these sizes not a plain int?"""
    return any(issubclass(kind, torch.SymInt) for kind in {*map(type, values)} - _PLAIN)


_PLAIN = frozenset((int,))


def sizes_behind(values: Iterable[Any]) -> Sizes | None:
    """The compilation whose symbols occur; None where all are plain."""
    return next((v.node.sizes for v in values if is_size(v)), None)


def same(a: Any, b: Any) -> bool:
    """Equal in every call?"""
    if type(a) is int and type(b) is int:
        return a == b
    sizes = sizes_behind((a, b))
    if sizes is None:
        return bool(a == b)
    left, right = dim_of(a), dim_of(b)
    difference = left - right
    if isinstance(difference, int) or sizes.known(EQUAL, difference) is not True:
        return difference == 0
    sizes.equate(left, right)
    return True


def different(a: Any, b: Any) -> bool:
    """Unequal in every call?"""
    sizes = sizes_behind((a, b))
    return bool(a != b) if sizes is None else sizes.known(UNEQUAL, dim_of(a) - dim_of(b)) is True


def all_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Are they as many, and each the same as its counterpart?"""
    return len(a) == len(b) and all(map(same, a, b))


def surely_less(a: Any, b: Any) -> bool:
    """Less in every call?"""
    if type(a) is int and type(b) is int:
        return a < b
    sizes = sizes_behind((a, b))
    return bool(a < b) if sizes is None else sizes.known(AT_LEAST, dim_of(b) - dim_of(a) - 1) is True


def never_more(a: Any, b: Any) -> bool:
    """At most as large in every call?"""
    if type(a) is int and type(b) is int:
        return a <= b
    sizes = sizes_behind((a, b))
    return bool(a <= b) if sizes is None else sizes.known(AT_LEAST, dim_of(b) - dim_of(a)) is True


def is_unbacked(value: Any) -> bool:
    """Is it a size that is only known when the program runs?"""
    return is_size(value) and value.node.sizes.is_unbacked(dim_of(value))


def expected(condition: Any) -> bool:
    """Does it hold? An unbacked size is relied on to be such that it does."""
    return condition.node.expect_true("", 0) if isinstance(condition, torch.SymBool) else bool(condition)


def stretched(size: Any, other: Any) -> bool:
    """Is the size 1, and therefore like the other, from which it may differ? Relies on the answer."""
    if not is_unbacked(size):
        return hint(size) == 1 and bool(size == 1)
    sizes = size.node.sizes
    return not sizes.likely(EQUAL, dim_of(size) - dim_of(other), True) and expected(size == 1)


def general(value: Any) -> int:
    """The value in this call, were no symbol less than 2: what decides the order of strides."""
    if type(value) is int or not is_size(value):
        return value
    return dimvalues.typical(dim_of(value))


def empty(sizes: Iterable[Any]) -> bool:
    """Is a size 0 in every call?"""
    return any(type(n) is int and n == 0 for n in sizes)


def hint(value: Any) -> int:
    """The value in the call that is captured: for costs."""
    return value.node.hint if is_size(value) else value


def plain(value: Any) -> Any:
    """An int where the size has turned out to be one."""
    dim = dim_of(value) if is_size(value) else value
    return dim if isinstance(dim, int) else value


def dim_or_node(value: Any) -> Any:
    """A size as graphs hold it: an int, or the node behind a SymInt."""
    found = plain(value)
    return found if isinstance(found, int) else found.node


def rewrapped(sizes: Sizes | None, dim: Dim) -> Any:
    """The Dim as PyTorch's functions take it."""
    return dim if isinstance(dim, int) else symint(sizes, dim)  # type: ignore[arg-type]


def takes_sizes(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Does a symbolic size take part?"""
    return any(map(_has_size, args)) or bool(kwargs) and any(map(_has_size, kwargs.values()))


def _has_size(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value._has_symbolic_sizes_strides
    if isinstance(value, (tuple, list)):
        return any(map(_has_size, value))
    return isinstance(value, torch.SymInt)
