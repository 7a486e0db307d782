"""Every simplification of size expressions, against brute force over small ranges."""

from __future__ import annotations

import operator
import random

import pytest

from dovetail.ir import dimforms, dims, dimvalues
from tests.ir.dimcases import ENVIRONMENTS, SYMBOLS, Case, I, J, K, M, N, generate

CASES = [generate(random.Random(seed), 1 + seed % 4) for seed in range(1000)]
NAMES = {s.name: d for s, d in zip(SYMBOLS, (I, J, N, M, K), strict=True)}


def values(case: Case) -> list[int]:
    return [case.meaning(env) for env in ENVIRONMENTS]


def found(dim: dims.Dim) -> list[int]:
    return [dimvalues.evaluate(dim, env) for env in ENVIRONMENTS]


def failures(check) -> list[str]:
    return [f"{case.text} = {case.dim}" for case in CASES if not check(case)][:10]


def test_simplified_expressions_keep_their_value():
    assert failures(lambda case: found(case.dim) == values(case)) == []


def test_bounds_hold():
    def holds(case: Case) -> bool:
        lo, hi = dims.bounds(case.dim)
        seen = values(case)
        return (lo is None or lo <= min(seen)) and (hi is None or max(seen) <= hi)

    assert failures(holds) == []


def test_known_nonnegative_is_sound():
    assert failures(lambda case: not dims.known_nonnegative(case.dim) or min(values(case)) >= 0) == []


def test_known_less_is_sound():
    pairs = [(a, b) for a, b in zip(CASES, CASES[7:] + CASES[:7], strict=True) if dims.known_less(a.dim, b.dim)]
    assert len(pairs) > 20
    wrong = [f"{a.text} < {b.text}" for a, b in pairs if any(map(operator.ge, values(a), values(b)))]
    assert wrong == []


def test_coefficient_splits_affine_expressions():
    def holds(case: Case) -> bool:
        for symbol in SYMBOLS:
            step = dims.coefficient(case.dim, symbol)
            if step is not None:
                rest = case.dim - dims.symbol(symbol.name, symbol.lo, symbol.extent) * step
                if symbol in dims.symbols(rest) or symbol in dims.symbols(step):
                    return False
        return True

    assert failures(holds) == []


def test_substitution_commutes_with_evaluation():
    i, j, n, m, k = SYMBOLS
    swaps = ({i: J + 1, j: dims.floordiv(I, 2)}, {n: N + M, m: 3}, {k: 1, i: I * 2 - I}, {i: 0, j: 0, k: 0})

    def holds(case: Case) -> bool:
        for swap in swaps:
            replaced = dims.substitute(case.dim, swap)
            for env in ENVIRONMENTS[::7]:
                inside = {**env, **{s: dimvalues.evaluate(d, env) for s, d in swap.items()}}
                if inside[i] < 6 and inside[j] < 4 and inside[k] < inside[n]:
                    if dimvalues.evaluate(replaced, env) != dimvalues.evaluate(case.dim, inside):
                        return False
        return True

    assert failures(holds) == []


def test_text_parses_back_to_the_same_object():
    assert failures(lambda case: dimforms.parse(str(case.dim), NAMES) == case.dim) == []


@pytest.mark.parametrize("built, expected", [
    (dims.floordiv(I * 8 + J, 8), I),
    (dims.mod(I * 8 + J, 8), J),
    (dims.floordiv(I * 8 + J, 4), I * 2),
    (dims.mod(I * 8 + J, 4), J),
    (dims.floordiv(I * N + K, N), I),
    (dims.mod(I * N + K, N), K),
    (dims.floordiv(I, 6), 0),
    (dims.mod(J, 4), J),
    (dims.floordiv(dims.floordiv(M, 3), 4), dims.floordiv(M, 12)),
    (dims.mod(dims.mod(M, 12), 4), dims.mod(M, 4)),
    (dims.floordiv(M, 5) * 5 + dims.mod(M, 5), M),
    (dims.floordiv(M, N) * N * 3 + dims.mod(M, N) * 3, M * 3),
    (dims.minimum(I, 6), I),
    (dims.maximum(N, 2), N),
    (dims.floordiv(M * 6 + 2, 4), dims.floordiv(M * 3 + 1, 2)),
    ((M + N) * (M - N), M * M - N * N),
    (dims.floordiv(I * 24 + J * 6 + 5, 6), I * 4 + J),
    (dims.mod(I * 4 + J, 24), I * 4 + J),
    (dims.floordiv(M * 64, M * 8), 8),
    (dims.mod(M * 64, M * 8), 0),
    (dims.mod(N * M * 6 + M * 3 - 9, N * M * 2 + M - 3), 0),
    (dims.minimum(dims.floordiv(M, 2), M), dims.floordiv(M, 2)),
    (dims.maximum(M, dims.minimum(M, 1)), M),
    (dims.minimum(dims.minimum(M, N), N), dims.minimum(M, N)),
    (dims.minimum(dims.maximum(dims.minimum(M, 3), 0), M), dims.minimum(M, 3)),
    (M - dims.minimum(M, 1), dims.maximum(M - 1, 0)),
    (M - dims.maximum(M, 4), -dims.maximum(4 - M, 0)),
    (dims.maximum(M - dims.floordiv(M + 1, 2), 0), M - dims.floordiv(M + 1, 2)),
])
def test_simplifies(built, expected):
    assert built == expected


@pytest.mark.parametrize("small, large", [(K, N), (I * N + K, N * 6), (dims.mod(M, N), N), (I * 4 + J, 24), (0, N)])
def test_known_less_is_strong_enough_for_index_arithmetic(small, large):
    assert dims.known_less(small, large)


def test_equal_expressions_are_one_object():
    assert (I + J) * 2 is J * 2 + I * 2
    assert dims.floordiv(M + 1, 3) is dims.floordiv(1 + M, 3)


@pytest.mark.parametrize("text", ["i +", "f(i)", "i ** 2", "unknown", "i / 2", "value(i)"])
def test_parse_refuses_anything_else(text):
    with pytest.raises((ValueError, SyntaxError)):
        dimforms.parse(text, NAMES)


def test_the_order_of_terms_follows_from_their_names():
    older, younger = (dims.symbol(f"order{k}", 0, 9) for k in (10, 2))  # not from their age, nor letter by letter
    halves = [dims.floordiv(d, 2) for d in (older, younger)]
    assert str(older + younger * 3 + 1) == str(1 + 3 * younger + older) == "3*order2 + order10 + 1"
    assert str(older * younger) == "order2*order10"
    assert str(halves[0] + halves[1] + older) == "order10 + (order2 // 2) + (order10 // 2)"
