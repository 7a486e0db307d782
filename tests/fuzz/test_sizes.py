"""Random programs that compute with sizes and numbers in Python and use the results as bounds, sizes and values.

Each is compiled as sizes change, and equals eager at all of them, 0 and 1 among them.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
import torch

import dovetail

LINES = (
    "{v} = {t}[:{e}]", "{v} = {t}[{e}:]", "{v} = torch.zeros(max({e}, 0), 2) + 1", "{v} = {t}.reshape(-1)",
    "{v} = torch.cat([{t}, {t}], 0)", "{v} = {t} * ({e})", "{v} = {t}.sum(-1)", "{v} = torch.arange(abs({e}))",
    "{v} = {t}.unsqueeze(0).expand(max({e}, 0), *{t}.shape)", "{v} = {t}.flip(0)", "{n} = {e}", "r.append(({e}, {f}))",
    "r.append(f'{{{e}}}')", "{v} = {t} + 1 if {e} > {f} else {t} - 1", "{v} = {t}.new_full((abs({e}) % 5,), {f})",
    "{v} = {t}.repeat(2, *([1] * ({t}.dim() - 1)))", "{v} = torch.nn.functional.pad({t}, (abs({e}) % 4, 1))",
    "{v} = {t}[..., : max({e}, 1)]", "{v} = {t}.flatten()[: {e}]", "{v} = torch.stack([{t}, {t}], {t}.dim() - 1)",
)  # fmt: skip


def integer(draw: random.Random, names: list[str], depth: int = 2) -> str:
    if depth == 0 or draw.random() < 0.35:
        return draw.choice([*names, "1", "2", "3"])
    a, b = integer(draw, names, depth - 1), integer(draw, names, depth - 1)
    sign = draw.choice(["+", "+", "*", "-", "//", "%", "min", "max"])
    if sign in ("min", "max"):
        return f"{sign}({a}, {b})"
    return f"(({a}) {sign} {draw.choice('234')})" if sign in ("//", "%") else f"({a} {sign} {b})"


def program(draw: random.Random) -> str:
    names, tensors = ["a", "b", "n", "y.shape[0]", "len(x)", "x.numel()"], ["x", "y"]
    lines = ["def f(x, y, n):", "    a, b = x.shape", "    r = []"]
    for k in range(draw.randint(2, 6)):
        parts = {"t": draw.choice(tensors), "e": integer(draw, names), "f": integer(draw, names)}
        line = draw.choice(LINES).format(v=f"t{k}", n=f"n{k}", **parts)
        lines.append(f"    {line}")
        tensors += [f"t{k}"] if line.startswith("t") else []
        names += [f"n{k}"] if line.startswith("n") else []
    return "\n".join([*lines, f"    return r, {', '.join(tensors[-3:])}, {integer(draw, names)}"])


def same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b)
    elif not isinstance(theirs, Exception):
        assert ours == theirs


def outcome(fn: Any, *args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return error


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("seed", range(40))
def test_computing_with_sizes(seed: int, backend: str) -> None:
    draw, space = random.Random(seed), {"torch": torch}
    exec(program(draw), space)
    compiled = dovetail.compile(space["f"], backend=backend)
    some = [[draw.randint(0, 7) for _ in range(4)] for _ in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows, columns, length, n in ([4, 6, 5, 3], [5, 7, 6, 4], *some):
            args = torch.randn(rows, columns), torch.randn(length), n
            same(outcome(compiled, *args), outcome(space["f"], *args))
    assert not compiled._dovetail_dispatcher.failed
