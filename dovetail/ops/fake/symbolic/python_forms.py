"""Functions of PyTorch written out for symbolic sizes, where its C++ code computes with plain ones on the way.

before:  kron(a, b)
after:   (a[:, None, :, None] * b[None, :, None, :]).reshape(...)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from dovetail.ops.fake.rules.layout import axis, broadcast
from dovetail.ops.fake.symbolic.number import needed
from dovetail.ops.fake.symbolic.size_questions import hint


def kron(a: Any, b: Any) -> Any:
    """Each element of `a` times all of `b`; the one with fewer dimensions gets more in front."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        raise needed()
    rank = max(a.dim(), b.dim())
    shapes = [(*[1] * (rank - t.dim()), *t.shape) for t in (a, b)]
    first, second = (t.reshape(shape) for t, shape in zip((a, b), shapes, strict=True))
    for d in range(rank):
        first, second = first.unsqueeze(2 * d + 1), second.unsqueeze(2 * d)
    return (first * second).reshape([n * m for n, m in zip(*shapes, strict=True)])


def linspace(
    start: Any, end: Any, steps: Any, *, out: Any = None, dtype: Any = None, layout: Any = torch.strided,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Any:  # fmt: skip
    """From both ends towards the middle, as PyTorch's kernel does it."""
    made = torch.get_default_dtype() if dtype is None else dtype
    plain = all(isinstance(n, (int, float)) for n in (start, end)) and out is None and layout is torch.strided
    if not plain or made not in (torch.float32, torch.float64):
        raise needed()
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    place = torch.arange(steps, device=device)
    first, last = (torch.full((), n, dtype=made, device=device) for n in (start, end))
    step = (last - first) / torch.full((), torch.sym_max(steps - 1, 1), dtype=made, device=device)
    rising, falling = first + step * place, last - step * (steps - 1 - place)
    found = torch.where(place < torch.sym_max(steps // 2, 1), rising, falling)
    return found.requires_grad_() if requires_grad else found


def take_along_dim(x: Any, indices: Any, dim: Any = None) -> Any:
    """`gather` of what is broadcast in the other dimensions."""
    if not isinstance(indices, torch.Tensor) or not isinstance(dim, int) or x.dim() != indices.dim() or not x.dim():
        raise needed()
    at = axis(dim, x.dim())
    shapes = [[1 if d == at else n for d, n in enumerate(t.shape)] for t in (x, indices)]
    common = broadcast([tuple(shape) for shape in shapes])
    x, indices = (t.expand([*common[:at], t.shape[at], *common[at + 1 :]]) for t in (x, indices))
    return x.gather(at, indices)


def fill_diagonal_(x: Any, fill_value: Any, wrap: bool = False) -> Any:
    """Of a matrix, without going round."""
    if x.dim() != 2 or wrap:
        raise needed()
    x.diagonal().fill_(fill_value)
    return x


def multi_dot(tensors: Any, *, out: Any = None) -> Any:
    """In the order that takes the fewest multiplications in this call."""
    if out is not None or len(tensors) < 2 or any(t.dim() != 2 for t in tensors):
        raise needed()
    sizes = [hint(t.shape[0]) for t in tensors] + [hint(tensors[-1].shape[1])]

    @cache
    def best(i: int, j: int) -> tuple[int, int]:
        """What the product of tensors i to j costs, and where it is split."""
        costs = [
            (best(i, k)[0] + best(k + 1, j)[0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
        ]
        return min(costs, default=(0, i))

    def product(i: int, j: int) -> Any:
        return tensors[i] if i == j else product(i, best(i, j)[1]) @ product(best(i, j)[1] + 1, j)

    return product(0, len(tensors) - 1)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.kron: kron, torch.linspace: linspace, torch.take_along_dim: take_along_dim,
    torch.linalg.multi_dot: multi_dot,
}  # fmt: skip
#: Methods of tensors, by name.
METHODS: dict[str, Callable[..., Any]] = {
    "kron": kron, "take_along_dim": take_along_dim, "fill_diagonal_": fill_diagonal_,
}  # fmt: skip
