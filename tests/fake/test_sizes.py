"""What is relied on about symbolic sizes, against brute force: wherever the facts hold, so does every answer."""

from __future__ import annotations

import itertools
import operator
import random
from typing import Any

import pytest

from dovetail.guards.sizes import needed
from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.dimvalues import evaluate
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL, UNEQUAL, Sizes
from dovetail.ops.fake.symbolic.symint import SizeNode

SMALL = range(8)


def expression(rng: random.Random, symbols: list[Dim], depth: int) -> Dim:
    """What programs make of sizes."""
    if depth == 0:
        return rng.choice(symbols) if rng.random() < 0.8 else rng.randrange(5)
    a, b = expression(rng, symbols, depth - 1), expression(rng, symbols, depth - 1)
    divisor = rng.choice((2, 3, 4))
    return rng.choice((
        a + b, a - b, a * 2, a * b if depth == 1 else a + 1, dims.floordiv(a, divisor), dims.mod(a, divisor),
        dims.minimum(a, b), dims.maximum(a, b), dims.maximum(a - 1, 0), dims.minimum(a, 3),
    ))  # fmt: skip


def true(sign: str, value: int) -> bool:
    return {EQUAL: value == 0, UNEQUAL: value != 0, AT_LEAST: value >= 0}[sign]


def environments(sizes: Sizes, symbols: list[Symbol]) -> list[dict[Symbol, int]]:
    """The small sizes that the facts allow."""
    every = (dict(zip(symbols, values, strict=True)) for values in itertools.product(SMALL, repeat=len(symbols)))
    return [env for env in every if all(true(f.sign, evaluate(f.dim, env)) for f in sizes.facts)]


def same(sizes: Sizes, left: Dim, right: Dim) -> bool:
    """As a program asks."""
    return SizeNode(sizes, left).eq(SizeNode(sizes, right)).bool_()


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_answers_hold_wherever_the_facts_do(start: int) -> None:
    for seed in range(start, start + 50):
        rng = random.Random(seed)
        sizes = Sizes()
        made = [sizes.symbol(f"s{k}", rng.choice((0, 1, 2, 3, 5, 6))) for k in range(3)]
        asked: list[tuple[str, Dim, bool]] = []
        for _ in range(rng.randrange(1, 6)):
            dim = expression(rng, made, rng.randrange(3))
            if rng.random() < 0.15:
                asked.append((EQUAL, dim - sizes.value(dim), True))
            elif rng.random() < 0.3:
                other = expression(rng, made, rng.randrange(2)) if rng.random() < 0.5 else sizes.hint(dim)
                asked.append((EQUAL, dim - other, same(sizes, dim, other)))
            else:
                sign = rng.choice((EQUAL, UNEQUAL, AT_LEAST))
                asked.append((sign, dim, sizes.holds(sign, dim)))
        symbols = [dims.as_symbol(m) for m in made]
        allowed = environments(sizes, symbols)
        assert {s: sizes.hints[s] for s in symbols} in allowed, f"seed {seed}: the call itself"
        for env in allowed:
            for sign, dim, answer in asked:
                assert true(sign, evaluate(dim, env)) == answer, f"seed {seed}: {dim} {sign} 0 at {env}"
                assert evaluate(sizes.resolve(dim), env) == evaluate(dim, env), f"seed {seed}: {dim} at {env}"
                raised = dims.substitute(sizes.resolve(dim), sizes.lows)
                named = {low: env[s] for s in symbols for low in dims.symbols(sizes.lows.get(s, 0))}
                assert evaluate(raised, env | named) == evaluate(dim, env), f"seed {seed}: {dim} at {env}"


#: What is asked at the hints n=4, m=6, and what is relied on.
ASKED: list[tuple[Any, list[str]]] = [
    (lambda s, n, m: s.holds(EQUAL, n * 8 * m), ["m >= 1", "n >= 1"]),
    (lambda s, n, m: s.holds(UNEQUAL, dims.maximum(n - 1, 0)), ["n >= 2"]),
    (lambda s, n, m: s.holds(EQUAL, dims.maximum(1 - n, 0)), ["n >= 1"]),
    (lambda s, n, m: s.holds(AT_LEAST, dims.floordiv(m, 4) - 1), ["m >= 4"]),
    (lambda s, n, m: s.holds(AT_LEAST, n * 96 - 32), ["n >= 1"]),
    (lambda s, n, m: s.holds(EQUAL, n * 3 - 12), ["n == 4"]),
    (lambda s, n, m: s.value(n * m), ["m == 6", "n == 4"]),
    (lambda s, n, m: (s.holds(EQUAL, n), s.holds(EQUAL, n), s.holds(AT_LEAST, n - 1)), ["n >= 1"]),
    (lambda s, n, m: (s.holds(AT_LEAST, n - 3), s.holds(AT_LEAST, n - 2), s.holds(EQUAL, n - 1)), ["n >= 3"]),
    (lambda s, n, m: (s.holds(EQUAL, m - n - 2), s.holds(EQUAL, m * 2 - n * 2 - 4)), ["m == n + 2"]),
    (lambda s, n, m: s.holds(AT_LEAST, n + m), []),
    (lambda s, n, m: (s.holds(AT_LEAST, n - 4), s.holds(AT_LEAST, 4 - n), s.holds(EQUAL, m * n - 24)),
     ["n >= 4", "n <= 4", "n == 4", "m == 6"]),
    (lambda s, n, m: (s.holds(AT_LEAST, m - n), s.holds(AT_LEAST, m * n - n * n), s.holds(AT_LEAST, m * 3 - n * 3)),
     ["m >= n"]),
    (lambda s, n, m: s.holds(UNEQUAL, n * 200704 - 1), []),  # no size can be
    (lambda s, n, m: (s.holds(AT_LEAST, n - 1), s.holds(EQUAL, n * m - n * dims.minimum(m, 64))),
     ["n >= 1", "m <= 64"]),
    (lambda s, n, m: (s.holds(AT_LEAST, n - 1), s.holds(UNEQUAL, n * m - n)), ["n >= 1", "m != 1"]),
    (lambda s, n, m: s.holds(AT_LEAST, dims.minimum(n, m) - 2), ["n >= 2", "m >= 2"]),
    (lambda s, n, m: s.holds(AT_LEAST, dims.minimum(n + m, 40) - m), ["m <= 40"]),
    (lambda s, n, m: s.holds(AT_LEAST, 64 - dims.maximum(n, m)), ["n <= 64", "m <= 64"]),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "facts"), ASKED)
def test_facts_are_few_and_plain(ask: Any, facts: list[str]) -> None:
    sizes = Sizes()
    n, m = sizes.symbol("n", 4), sizes.symbol("m", 6)
    ask(sizes, n, m)
    assert [str(f) for f in sizes.facts] == facts


def test_what_is_compared_with_a_number_is_that_number() -> None:
    """The difference may be written in a way that does not show it."""
    sizes = Sizes()
    n = sizes.symbol("n", 4)
    length = dims.minimum(n - 2, 1) - dims.minimum(n - 2, 0)
    assert same(sizes, length, 1)
    assert sizes.resolve(length) == 1


def test_what_only_the_program_checks_settles_nothing_that_guards_are_about() -> None:
    sizes = Sizes()
    n, late = sizes.symbol("n", 4), sizes.unbacked_symbol("a mask")
    assert sizes.expect(AT_LEAST, 1 - late, True)
    assert sizes.expect(EQUAL, n - late, True)
    assert sizes.known(AT_LEAST, 1 - n) is None


def test_a_size_that_the_program_finds_out_is_not_expected_to_be_what_it_cannot_be() -> None:
    sizes = Sizes()
    n, late = sizes.symbol("n", 4), sizes.unbacked_symbol("a mask")
    assert same(sizes, n, late)
    sizes = Sizes()
    n, late = sizes.symbol("n", 4), sizes.unbacked_symbol("a mask")
    sizes.expect(AT_LEAST, 1 - late, True)
    assert not same(sizes, n, late)


def test_a_symbol_that_comes_to_be_a_number_is_one_in_all_that_is_made_of_it() -> None:
    sizes = Sizes()
    n, m = sizes.symbol("n", 2), sizes.symbol("m", 0)
    assert sizes.holds(EQUAL, dims.floordiv(n, 2) * m)
    assert sizes.holds(EQUAL, n - 2)
    assert sizes.resolve(m) == 0
    assert sizes.resolve(dims.maximum(m - 3, 0) + 5) == 5
    assert sizes.resolve(dims.maximum(m + n, 3)) == 3


def test_a_symbol_that_equals_a_number_is_one_in_all_that_is_made_of_it() -> None:
    """However it was learned."""
    sizes = Sizes()
    n, m = sizes.symbol("n", 1), sizes.symbol("m", 5)
    sizes.equate(n, 1)
    assert sizes.resolve(n) == 1 and sizes.resolve(dims.minimum(n, m) + n) is dims.minimum(1, m) + 1


def test_guards_say_what_a_symbol_is_that_follows_from_others() -> None:
    """1 <= n, 1 <= m and n * m <= 1: told without symbols that are solved, they say nothing any more."""
    sizes = Sizes()
    n, m = sizes.symbol("n", 1), sizes.symbol("m", 1)
    for fact in (n - 1, 1 - n * m, m - 1):
        sizes.expect(AT_LEAST, fact, True)
    assert sizes.known(EQUAL, n * m - 1) and sizes.resolve(n) == 1
    signs = {AT_LEAST: operator.ge, EQUAL: operator.eq}
    values = {dims.as_symbol(n): 2, dims.as_symbol(m): 1}
    assert not all(signs[f.sign](evaluate(f.dim, values), 0) for f in needed(sizes))


def test_what_is_checked_with_sizes_that_are_found_out_later():
    """It says nothing of sizes that a part relies on before."""
    sizes = Sizes()
    first, second = sizes.unbacked_symbol("a mask"), sizes.unbacked_symbol("another")
    assert sizes.expect(AT_LEAST, first - second - 1, True)
    assert sizes.known(AT_LEAST, first - second) is True and sizes.known(AT_LEAST, first - 1) is None
    assert sizes.holds(AT_LEAST, first - 1) and str(sizes.facts[-1]) == f"{first} >= 1"


def test_what_was_told_by_several_facts_is_known() -> None:
    """A statement is kept as the plain ones that it is made of, which settle it the next time."""
    sizes = Sizes()
    rows, part = sizes.unbacked_symbol("a mask"), sizes.unbacked_symbol("item()", -9)
    fits = dims.minimum(rows, 1) - part
    assert sizes.expect(AT_LEAST, fits, True)
    assert sizes.known(AT_LEAST, fits) is True and sizes.known(AT_LEAST, -fits - 1) is False
