"""A container that changes while a loop walks it, and ends as it was: Python's iterators see the change."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, defaultdict, deque

import pytest
import torch

import dovetail


def taken_and_put(d):
    for k in sorted(d, reverse=True): d[k] = d.pop(k)


def last(d): k, v = d.popitem(); d[k] = v
def refilled(d): held = dict(d); d.clear(); d.update(held)
def grown(d): d["z"] = 1; del d["z"]
def moved(d): d.move_to_end(next(iter(d)))
def stored(d): d[next(iter(d))] = 9


def set_taken(t):
    for k in sorted(t): t.remove(k); t.add(k)


def set_popped(t): t.add(t.pop())
def set_grown(t): t.add(77); t.discard(77)
def set_refilled(t): held = set(t); t.clear(); t.update(held)
def turned(q): q.rotate(1); q.rotate(-1)
def queued(q): q.append(q.popleft())
def inserted(q): q.insert(0, q.pop())
def sorted_down(q): q.sort(reverse=True)
def first_gone(q): del q[0]


DICT = (taken_and_put, last, refilled, grown, stored)
SET = (set_taken, set_popped, set_grown, set_refilled)
CASES = [
    (lambda: {"a": 1, "d": 2, "b": 3}, DICT), (lambda: {"d": 2}, DICT), (lambda: defaultdict(int, a=1, b=2), DICT),
    (lambda: OrderedDict(a=1, d=2, b=3), (*DICT, moved)), (lambda: OrderedDict(a=1), (*DICT, moved)),
    (lambda: Counter("abca"), DICT), (lambda: {1, 2, 3, 5}, SET), (lambda: {1}, SET),
    (lambda: deque([1, 2, 3]), (turned, queued, inserted)), (lambda: deque([1]), (turned, queued)),
    (lambda: [3, 1, 2], (lambda t: t.append(t.pop(0)), inserted, sorted_down, first_gone)),
]  # fmt: skip
WALKS = (
    iter, lambda t: t.items() if hasattr(t, "items") else enumerate(t),
    lambda t: reversed(t) if not isinstance(t, set) else zip(t, itertools.count()), lambda t: map(str, t),
)  # fmt: skip


def program(make, change, walk, place):
    """The graph ends before the change, after it, before a part of it, in one round, or never."""

    def walked(x):
        container, seen = make(), []
        for n, item in enumerate(walk(container)):
            seen.append(item)
            if place == 0: dovetail.graph_break()
            if place == 2:
                for _ in x.tolist(): change(container)
            change(container)
            if place == 1 or place == 3 and n == 1: dovetail.graph_break()
            if n > 12: break
        return container, seen

    return walked


def around(make, change, walk, call):
    """The caller walks it; what it calls changes it."""

    def walked(x):
        container, seen = make(), []
        for n, item in enumerate(walk(container)):
            seen.append(item)
            call(x, container)
            if n > 12: break
        return container, seen

    return walked


def outcome(fn):
    try:
        return repr(fn(torch.ones(2)))
    except RuntimeError as error:
        return repr(error)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.filterwarnings("ignore:dovetail runs")  # where an iterator stands cannot be told
def test_inside(case, place):
    make, changes = CASES[case]
    for change, walk in itertools.product(changes, WALKS):
        fn = program(make, change, walk, place)
        assert outcome(dovetail.compile(fn, backend="eager")) == outcome(fn), (change, walk)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_by_the_caller(case):
    make, changes = CASES[case]
    for change, walk in itertools.product(changes, WALKS):
        call = lambda x, container, change=change: change(container)
        compiled = dovetail.compile(call, backend="eager")
        ours, theirs = (outcome(around(make, change, walk, each)) for each in (compiled, call))
        assert ours == theirs, (change, walk)
