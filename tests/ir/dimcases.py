"""Random size expressions, each with the plain Python function that it must agree with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol

Env = dict[Symbol, int]
Meaning = Callable[[Env], int]

#: Two loop ranges of fixed extents, one whose extent is a size, and two sizes.
I, J = dims.symbol("i", 0, 6), dims.symbol("j", 0, 4)
N, M = dims.symbol("n", 2), dims.symbol("m", 0)
K = dims.symbol("k", 0, N)
SYMBOLS = tuple(map(dims.as_symbol, (I, J, N, M, K)))


@dataclass(frozen=True)
class Case:
    dim: Dim
    meaning: Meaning
    text: str


def environments() -> Iterator[Env]:
    """Every value of the symbols in a small box, the sizes' lower bounds included."""
    i, j, n, m, k = SYMBOLS
    for vi, vj, vn, vm in itertools.product((0, 1, 3, 5), range(4), (2, 3, 5), (0, 1, 4)):
        for vk in range(vn):
            yield {i: vi, j: vj, n: vn, m: vm, k: vk}


ENVIRONMENTS = list(environments())


def _atom(rng: random.Random) -> Case:
    if rng.random() < 0.25:
        number = rng.randint(-6, 12)
        return Case(number, lambda env: number, str(number))
    dim = rng.choice((I, I, J, J, K, N, M))
    symbol = dims.as_symbol(dim)
    return Case(dim, lambda env: env[symbol], symbol.name)


def _divisor(rng: random.Random) -> Case:
    """Something positive."""
    if rng.random() < 0.8:
        number = rng.choice((1, 2, 3, 4, 6, 8, 12))
        return Case(number, lambda env: number, str(number))
    if rng.random() < 0.5:
        return Case(N, lambda env: env[SYMBOLS[2]], "n")
    return Case(N * 2, lambda env: env[SYMBOLS[2]] * 2, "(n*2)")


def _linear(rng: random.Random) -> Case:
    """What indices look like: ranges with strides that nest."""
    a, b, c = rng.choice((1, 2, 4, 8, 12)), rng.choice((1, 2, 4)), rng.randint(-2, 9)
    i, j = SYMBOLS[:2]
    return Case(I * a + J * b + c, lambda env: env[i] * a + env[j] * b + c, f"(i*{a} + j*{b} + {c})")


def generate(rng: random.Random, depth: int) -> Case:
    """An expression at most `depth` operators deep."""
    if depth == 0:
        return _linear(rng) if rng.random() < 0.3 else _atom(rng)
    kind = rng.choice(("add", "add", "sub", "mul", "floordiv", "floordiv", "mod", "mod", "min", "max", "recombine"))
    a = generate(rng, depth - 1)
    if kind == "recombine":
        d = _divisor(rng)
        whole = dims.floordiv(a.dim, d.dim) * d.dim + dims.mod(a.dim, d.dim)
        return Case(whole, a.meaning, f"({a.text} // {d.text} * {d.text} + {a.text} % {d.text})")
    b = _divisor(rng) if kind in ("floordiv", "mod") else generate(rng, rng.randint(0, depth - 1))
    build, compute, sign = _KINDS[kind]
    return Case(build(a.dim, b.dim), lambda env: compute(a.meaning(env), b.meaning(env)), f"({a.text} {sign} {b.text})")


_KINDS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int], str]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b, "+"),
    "sub": (lambda a, b: a - b, lambda a, b: a - b, "-"),
    "mul": (lambda a, b: a * b, lambda a, b: a * b, "*"),
    "floordiv": (dims.floordiv, lambda a, b: a // b, "//"),
    "mod": (dims.mod, lambda a, b: a % b, "%"),
    "min": (dims.minimum, min, "min"),
    "max": (dims.maximum, max, "max"),
}
