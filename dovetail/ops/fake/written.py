"""Functions of PyTorch written out for symbolic sizes, where its C++ code computes with plain ones on the way.

before:  kron(a, b)
after:   (a[:, None, :, None] * b[None, :, None, :]).reshape(...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.ops.fake.number import needed


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


_FORMS: dict[Any, Callable[..., Any]] = {torch.kron: kron}
WRITTEN = frozenset(_FORMS)


def written(function: Any, args: Any, kwargs: Any) -> Any:
    """`function(*args, **kwargs)` with symbolic sizes, for one of WRITTEN."""
    return _FORMS[function](*args, **kwargs)
