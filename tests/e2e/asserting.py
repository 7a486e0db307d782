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


def raising(x: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(x).all():
        raise ValueError("not finite")
    if (x < -1).any():
        raise RuntimeError
    return x.sqrt()


def every_element(x: torch.Tensor) -> torch.Tensor:
    torch._check_tensor_all(x >= 0)
    torch._check_tensor_all_with(ValueError, x < 4, lambda: "4 and more {}")
    return x.sqrt()


def told_to(x: torch.Tensor) -> torch.Tensor:
    torch._assert((x >= 0).all(), "negative")
    return x.sqrt()


def in_a_block(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.cos()
        assert x[0] > 0, "first"
    return y * 2


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        if x.sum() < 0:
            raise ValueError("negative")
        assert x[1] > 0, "second"
    except ValueError:
        return x - 1
    except AssertionError:
        return x * 2
    return x + 1


def at_last(x: torch.Tensor) -> torch.Tensor:
    try:
        assert x[0] > 0, "first"
        y = x * 2
    finally:
        x.add_(1)
    return y


def told(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > 0, f"{x.sum():.1f}"
    return x + 1


class NotPositive(ValueError):
    pass


def shown(x: torch.Tensor, name: str = "x") -> torch.Tensor:
    y = x * 2
    if (x < 0).any():
        raise NotPositive(f"{name} of {list(x.shape)} has", x.min().item())
    x.add_(1)
    return y


def counted(x: torch.Tensor) -> torch.Tensor:
    tokens, features = (x > 0).sum(), x.numel()
    if tokens != features - 1:
        raise ValueError("tokens: {}, features: {}".format(tokens, features)) from None
    return x + tokens


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    f.__name__: f
    for f in (
        first, every, neither, both, inner, twice, size, written, raising, every_element, told_to, in_a_block, caught,
        at_last, told, shown, counted,
    )
}


def written_inside(x: torch.Tensor) -> torch.Tensor:
    try:
        x.add_(1)
        assert x.sum() > 0, "negative"
    except AssertionError:
        return x - 1
    return x + 1


def written_after(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        assert x[0] > 0, "first"
    leaf = x.clone().requires_grad_()
    leaf.sin().sum().backward()
    return leaf.grad + x


def told_later(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    assert x.sum() > 0, f"{x.sum():.1f}"
    return x + 1


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for k, part in enumerate(x.split(1)):
        try:
            assert part > 0, f"part {k}"
        except AssertionError as error:
            raise RuntimeError("no part") from error
    return x.sqrt()


def usual(x: torch.Tensor) -> torch.Tensor:
    try:
        assert x.sum() > -9, "small" if len(x) else "empty"
        y = x + 1
        raise ValueError(f"{len(x)}")
    except ValueError:
        return y


def undecided(x: torch.Tensor) -> torch.Tensor:
    assert x > 0, "all"
    return x + 1


#: These end the graph.
BREAKING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    f.__name__: f for f in (written_inside, written_after, told_later, in_a_loop, usual, undecided)
}
