"""Containers that a loop with graph breaks fills: nothing depends on what they hold until it is read."""

from __future__ import annotations

import copy
import warnings
from collections import deque

import pytest
import torch
from torch import nn

import dovetail
from tests.capture.harness import compare

COUNT = 40


@dovetail.disable
def total(x):
    return x.sum()


def argument(x, out):
    for k in range(COUNT):
        out.append(total(x + k))
    return out


def made(x):
    out = []
    for k in range(COUNT):
        out.append((x + k).sum().item())
    return out


def branching(x):
    out = []
    for k in range(COUNT):
        if (x * k).sum() > 20:
            out.append(x + k)
        else:
            out.append(x - k)
    return out


def two_names(x):
    out = []
    other = out
    for k in range(COUNT):
        out += [total(x * k)]
        other.append(k)
    return out, other, out is other


def two_arguments(x, out, other):
    for k in range(COUNT):
        out.append(total(x * k))
        other.append(k)
    return x


def extended(x, out):
    for k in range(COUNT):
        out.extend((total(x * k), k))
    return out


def stacked(x):
    out = []
    for k in range(COUNT):
        out.append(total(x * k))
    return torch.stack(out), sum(out), len(out), out[-1]


def comprehension(x):
    return [total(x * k) + 1 for k in range(COUNT)]


def bounded(x):
    out = deque(maxlen=7)
    for k in range(COUNT):
        out.append(total(x * k))
    return out


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, row):
        self.rows.append(row)


def attribute(x):
    log = Rows()
    for k in range(COUNT):
        log.add((x + k).sum().item())
    return log.rows


def closure(x):
    out = []

    def add(value):
        out.append(value)

    for k in range(COUNT):
        add(total(x * k))
    return out


class Recorder(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        for k in range(COUNT):
            self.seen.append(total(x * k))
        return x


def entries(compiled):
    first = compiled._dovetail_dispatcher
    return [len(part.entries) for part in (first, *first.compiler.rests.values())]


def checked(fn, *args, compiled=None):
    """Eager's results and changes, without a warning; gives the compiled function."""
    ours, theirs = copy.deepcopy((args, args))
    compiled = compiled or dovetail.compile(fn, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compiled(*ours)
    compare(result, fn(*theirs))
    compare(ours, theirs)
    return compiled


SAME = [7.0]
PROGRAMS = {
    argument: ([],), made: (), branching: (), two_names: (), two_arguments: ([1], [2]), extended: ([],), stacked: (),
    comprehension: (), bounded: (), attribute: (), closure: (),
}  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_filled_list_compiles_the_same_few_parts(fn):
    assert sum(entries(checked(fn, torch.ones(3), *PROGRAMS[fn]))) <= 8


def test_one_list_under_two_arguments():
    compiled = checked(two_arguments, torch.ones(3), SAME, SAME)
    checked(two_arguments, torch.ones(3), [1], [2], compiled=compiled)
    assert sum(entries(compiled)) <= 12


def test_a_list_of_a_module():
    module, other = Recorder(), Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = dovetail.compile(module, backend="eager")
        for _ in range(2):
            compare((compiled(torch.ones(3)), module.seen), (other(torch.ones(3)), other.seen))
    assert sum(entries(compiled)) <= 5


def test_a_list_around_the_function():
    seen = []

    def fills(x):
        for k in range(COUNT):
            seen.append(total(x * k))

    compiled = dovetail.compile(fills, backend="eager")
    compiled(torch.ones(3))
    compare(seen, [torch.tensor(3.0) * k for k in range(COUNT)])
    assert sum(entries(compiled)) <= 5


def grows(x, out):
    out.append(x + 1)
    out += [2, out]
    return x * 2


def test_only_a_list_that_is_read_is_compiled_per_length():
    def reads(x, out):
        out.append(x)
        return len(out), out[0]

    for fn, count in ((grows, 1), (reads, 3)):
        compiled = dovetail.compile(fn, backend="eager")
        for n in range(3):
            ours, theirs = list(range(n)), list(range(n))
            compare(compiled(torch.ones(2), ours), fn(torch.ones(2), theirs))
            assert repr(ours) == repr(theirs)
        assert sum(entries(compiled)) == count


class Odd(list):
    def __len__(self):
        return 100


@pytest.mark.parametrize("out", [Odd([1]), deque([1], 2), deque([1, 2], 2), deque([1])], ids=repr)
def test_other_kinds_of_lists(out):
    def appends(x, out):
        out.append(x)
        out.extend([1, 2])
        return x + 1

    def reads(x, out):
        out.append(x)
        return list(out), out.pop()

    for fn in (appends, reads):
        checked(fn, torch.ones(2), out)


def test_the_limit_of_a_deque_is_relied_on_where_it_is_read():
    def limit(x, out):
        out.append(x)
        return out.maxlen

    compiled = dovetail.compile(limit, backend="eager")
    for out in (deque([1, 2], 3), deque([1, 2], 2), deque([1, 2])):
        checked(limit, torch.ones(2), out, compiled=compiled)


def test_one_method_of_a_list_is_not_another():
    def calls(x, method):
        method(x + 1)
        return x

    compiled = dovetail.compile(calls, backend="eager")
    ours, theirs = [1], [1]
    for name in ("append", "extend", "append"):
        compiled(torch.ones(2), getattr(ours, name))
        calls(torch.ones(2), getattr(theirs, name))
    compare(ours, theirs)
