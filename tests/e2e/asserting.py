"""Programs with assertions; pytest rewrites those of the tests' own files."""

from __future__ import annotations

from collections.abc import Callable

import torch


def first(x: torch.Tensor) -> torch.Tensor:
    assert x[0] == 3, "first must be {3}"
    return x.cos()


def every(x: torch.Tensor) -> torch.Tensor:
    assert (x >= 0).all()
    return x.sqrt()


def neither(x: torch.Tensor) -> torch.Tensor:
    assert not (x < 0).any(), "negative"
    return x.sqrt()


def both(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > 0 and x[0] > 0, "positive"
    return x + 1


def inner(x: torch.Tensor) -> torch.Tensor:
    return neither(x * 2) + every(x)


def twice(x: torch.Tensor) -> torch.Tensor:
    for k in range(2):
        assert x[k] > -1, "small"
        x = x + 1
    return x


def size(x: torch.Tensor) -> torch.Tensor:
    chosen = x[x > 0]
    assert chosen.shape[0] <= 3, "too many"
    return chosen * 2


def written(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    assert x[0] > 0, "after the write"
    return x * 2


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    f.__name__: f for f in (first, every, neither, both, inner, twice, size, written)
}


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        assert x.sum() > 0, "negative"
    except AssertionError:
        return x - 1
    return x + 1


def told(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > 0, f"{x.sum():.1f}"
    return x + 1


def undecided(x: torch.Tensor) -> torch.Tensor:
    assert x > 0, "all"
    return x + 1


#: These end the graph.
BREAKING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {f.__name__: f for f in (caught, told, undecided)}
