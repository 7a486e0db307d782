"""What differs in nearly every call is left to plain Python, where graphs may break: entries do not run out."""

from __future__ import annotations

import warnings

import pytest
import torch

import dovetail
from tests.capture.harness import compare
from tests.capture.test_break_protocols import breaks_of
from tests.capture.test_growing import entries

COUNT = 12
ONES = torch.ones(2)


def lists(xs): return torch.stack(xs).sum(0)
def ranges(x, n):
    for k in range(n): x = x * 1.1 + k
    return x
def trees(t): return t if isinstance(t, torch.Tensor) else sum(trees(c) for c in t)
def tables(d): return {k: v + 1 for k, v in d.items()}
def texts(x, s):
    for c in s: x = x + ord(c)
    return x
def words(x, s): return x * len(s.split()), s.title()
def sizes(x, counts): return [x.repeat(n) for n in counts]
def ordered(x, items): return x + sorted(items)[0], sorted(items, reverse=True)
def sets(x, s): return x * len(s), sorted(s)
def many(*xs): return sum(xs)
def lists_of_lists(x, rows): return [[x * v for v in row] for row in rows]


#: The arguments of call `n`.
CALLS = {
    lists: lambda n: ([ONES * k for k in range(n + 1)],), ranges: lambda n: (ONES, n),
    trees: lambda n: ([ONES] * n + [[ONES] * (n % 3 + 1)],), tables: lambda n: ({f"a{k}": ONES for k in range(n)},),
    texts: lambda n: (ONES, "abcdefghijklm"[:n]), words: lambda n: (ONES, " ".join("ab" * n)),
    sizes: lambda n: (ONES, list(range(n))), ordered: lambda n: (ONES, [(k * 7 + n) % 11 for k in range(n + 1)]),
    sets: lambda n: (ONES, set(range(n))), many: lambda n: (ONES,) * (n + 1),
    lists_of_lists: lambda n: (ONES, [[1] * k for k in range(n % 10)]),
}  # fmt: skip


def called(fn, **options):
    compiled = dovetail.compile(fn, backend="eager", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(COUNT):
            compare(compiled(*CALLS[fn](n)), fn(*CALLS[fn](n)))
    return compiled


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_a_few_entries_serve_all_calls(fn):
    compiled = called(fn)
    assert max(entries(compiled)) <= 6
    assert "changes-often" in {b.code for b in breaks_of(compiled)}


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_where_a_break_is_an_error_each_has_its_graph(fn, monkeypatch):
    monkeypatch.setattr(dovetail.config, "recompile_limit", 2 * COUNT + 1)
    assert sum(entries(called(fn, fullgraph=True))) > 6


def test_a_strict_block_does_not_break():
    def strict(xs):
        with dovetail.error_on_graph_break(True):
            return torch.stack(xs).sum(0)

    compiled = dovetail.compile(strict, backend="eager")
    for n in range(1, 8):
        compare(compiled([ONES] * n), strict([ONES] * n))
    assert entries(compiled) == [7]


def test_resetting_forgets_what_has_changed():
    compiled = called(lists)
    dovetail.reset()
    compiled([ONES, ONES])
    assert not breaks_of(compiled)


def lists_or_less(xs, less): return sum(xs) - 1 if less else sum(xs)


#: Calls of which only the last differs from the others in the fact that the function looks at.
DTYPES = (torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128)
SINGLE = {
    "a length after dtypes": [*(([ONES.to(d)] * 2, False) for d in DTYPES), ([ONES] * 3, False)],
    "a flag after dtypes": [*(([ONES.to(d)] * 2, False) for d in DTYPES), ([ONES] * 2, True)],
}


@pytest.mark.parametrize("calls", SINGLE.values(), ids=SINGLE)
def test_a_single_change_breaks_no_graph(calls):
    compiled = dovetail.compile(lists_or_less, backend="eager")
    for call in calls:
        compare(compiled(*call), lists_or_less(*call))
    assert not breaks_of(compiled)
