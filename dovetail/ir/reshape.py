"""Shapes: how elements lie in rows, and two shapes of the same elements, dimension by dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.ir import dims
from dovetail.ir.dims import Dim

Chunk = tuple[tuple[int, ...], tuple[int, ...]]


def contiguous_strides(sizes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides as PyTorch gives them: a size of 0 counts as 1."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * (1 if size == 0 else size)
    return tuple(reversed(strides))


def chunks(old: Sequence[Dim], new: Sequence[Dim]) -> list[Chunk]:
    """Runs of dimensions of both shapes that hold the same number of elements, shortest first.

    Dimensions of size 1 belong to no run.
    """
    left = [d for d, size in enumerate(old) if size != 1]
    right = [d for d, size in enumerate(new) if size != 1]
    found: list[Chunk] = []
    while left and right:
        a, b = [left.pop(0)], [right.pop(0)]
        p, q = old[a[0]], new[b[0]]
        while p != q and (left or right):
            if left and (not right or _less(p, q)):
                a.append(left.pop(0))
                p = p * old[a[-1]]
            else:
                b.append(right.pop(0))
                q = q * new[b[-1]]
        found.append((tuple(a), tuple(b)))
    return found


def reshaped_strides(
    steps: Sequence[Dim], new: Sequence[Dim], runs: Sequence[Chunk], joined: Callable[[int, int], bool]
) -> tuple[Dim, ...] | None:
    """How memory with the strides `steps` looks in the shape `new`; None where that takes a copy.

    `runs` are the chunks of both shapes; `joined`: is a dimension of the old one walked on into the next?
    """
    strides = list(contiguous_strides(new))
    for ours, theirs in runs:
        if not all(map(joined, ours, ours[1:])):
            return None
        step = steps[ours[-1]]
        for d in reversed(theirs):
            strides[d] = step
            step = step * new[d]
    for d in range(len(strides) - 2, -1, -1):  # size 1: as if it stepped over what follows
        if new[d] == 1:
            strides[d] = strides[d + 1] * new[d + 1]
    return tuple(strides)


def _less(p: Dim, q: Dim) -> bool:
    if isinstance(p, int) and isinstance(q, int):
        return p < q
    return dims.known_less(p, q) or p != 0 and dims.floordiv(q, p) * p == q
