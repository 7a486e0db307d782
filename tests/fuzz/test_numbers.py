"""Random programs over numbers that change: attributes, items, arithmetic, comparisons and tensors, against eager."""

from __future__ import annotations

import copy
import linecache
import random
from typing import Any

import pytest
import torch

import dovetail

FORMS = (
    "({a} + {b})", "({a} * {b})", "({a} - {b})", "({a} / ({b} or 1))", "({a} // ({b} or 1))", "max({a}, {b})",
    "({a} if {a} > {b} else {b})", "abs({a})",
)  # fmt: skip
STATEMENTS = (
    "o.value = {e}", "d['lr'] = {e}", "x = x * {e}", "x = x + {e}", "x = x.clamp(min={e})",
    "x = torch.where(x > {e}, x, {f})", "x = x - {f} if {e} > {f} else x + 1",
)  # fmt: skip


class Holder:
    def __init__(self) -> None:
        self.value: Any = 1.5


def expression(r: random.Random, depth: int, names: list[str]) -> str:
    if depth == 0 or r.random() < 0.25:
        return r.choice([*names, "2", "0.5", "3", "-1"])
    return r.choice(FORMS).format(a=expression(r, depth - 1, names), b=expression(r, depth - 1, names))


def program(seed: int) -> str:
    r, names = random.Random(seed), ["s", "k", "o.value", "d['lr']"]
    lines = ["def f(x, s, k, o, d):"]
    for n in range(r.randrange(3, 8)):
        e, f = expression(r, 2, names), expression(r, 1, names)
        if r.random() < 0.2:
            lines.append(f"    t{n} = {e}")
            names.append(f"t{n}")
        else:
            lines.append("    " + r.choice(STATEMENTS).format(e=e, f=f))
    return "\n".join([*lines, f"    return x, {expression(r, 2, names)}, o.value"])


def outcome(fn: Any, *args: Any) -> Any:
    try:
        return fn(*args)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        near = {"rtol": 1e-3, "atol": 1e-4, "equal_nan": True}
        return found.dtype is expected.dtype and torch.allclose(found, expected, **near)
    if isinstance(expected, tuple):
        return isinstance(found, tuple) and all(map(same, found, expected))
    return repr(found) == repr(expected)


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_programs(start: int) -> None:
    for seed in range(start, start + 10):
        text, name = program(seed), f"<numbers {seed}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(text, name, "exec"), scope)
        compiled = dovetail.compile(scope["f"], backend="eager")
        r, mine, theirs = random.Random(seed), (Holder(), {"lr": 0.1}), (Holder(), {"lr": 0.1})
        for call in range(7):
            s: Any = r.choice([2, True, 0.0, -0.0, float("inf")]) if call == 4 else round(r.uniform(-2, 3), 2)
            k, x = r.randrange(-3, 5), torch.linspace(-1, 1, 4)
            expected, found = outcome(scope["f"], x, s, k, *mine), outcome(compiled, x, s, k, *theirs)
            assert same(found, expected), f"seed {seed}, call {call}: {(s, k)}\n{text}"
            if isinstance(expected, tuple):
                assert repr((mine[0].value, mine[1])) == repr((theirs[0].value, theirs[1])), f"seed {seed}\n{text}"
            mine, theirs = copy.deepcopy(mine), copy.deepcopy(mine)
