"""Ints among the arguments that are no constants."""

from __future__ import annotations

import re

import pytest
import torch
from torch.export import Dim

import dovetail
from dovetail.errors import InvalidArgument, SpecializedDimension

from .checking import assert_same, check

X = torch.randn(4, 6)


def uses(x, n):
    return x[:n], x.sum() * n, n * 2 + 1, torch.zeros(n), x + n / 2


def parities(x, n):
    return x * n if n % 2 else x - n


def nested(x, d, *ns, **named):
    return x[: d["a"][0]] * ns[1] + named["k"]


PROGRAMS = {
    "a size": (uses, (X, 3), {"n": Dim.DYNAMIC}, [(X, 4), (X, 2), (X, 0)]),
    "a number": (lambda x, n: x * n, (X, 3), (None, Dim.AUTO), [(X, -2), (X, 0)]),
    "a name": (lambda x, n: x * n, (X, 3), (None, "n"), [(X, 9)]),
    "bounds": (lambda x, n: x * n, (X, 3), (None, Dim("n", min=2, max=9)), [(X, 9)]),
    "a condition": (parities, (X, 3), (None, Dim.DYNAMIC), [(X, 7)]),
    "inside": (nested, (X, {"a": [3]}, 1, 7), {"d": {"a": ["k"]}, "ns": (None, "n"), "named": {"k": "m"}}, []),
    "beside sizes": (lambda x, n: x.narrow(0, n, 1), (X, 3), ({0: "rows"}, "n"), [(torch.randn(9, 6), 7)]),
    "as a size": (lambda x, n: x + torch.arange(n)[:, None], (X, 4), ({0: "n"}, "n"), [(torch.randn(9, 6), 9)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ints_that_vary(name, tmp_path):
    function, args, shapes, others = PROGRAMS[name]
    kwargs = {"k": 2} if function is nested else None
    program = check(function, args, kwargs, others, shapes, tmp_path / "p", atol=1e-5, rtol=1e-5)
    compiled = dovetail.compile(program.module(), fullgraph=True)
    converted = program.to_torch().module()
    for given in (args, *(o for o in others if o[1] not in (0, 1))):
        for way in (compiled, converted):
            assert_same(way(*given, **(kwargs or {})), function(*given, **(kwargs or {})), atol=1e-5, rtol=1e-5)


REFUSED = {
    "a size": [((X, 3.0), "n must be an int, not float"), ((X, -1), "n is -1; the program is exported for at least 0")],
    "bounds": [((X, 10), "n (n) is 10; the program is exported for between 2 and 9")],
    "a condition": [((X, 4), "the program is exported for s0 % 2 != 0")],
    "as a size": [((X, 5), "n is 5; the program is exported for 4 (n)"), ((X, True), "must be an int, not bool")],
    "beside sizes": [((X, 4), "the program is exported for rows >= n + 1")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_ints_that_do_not_fit(name):
    function, args, shapes, _ = PROGRAMS[name]
    module = dovetail.export(function, args, None, shapes).module()
    for given, words in REFUSED[name]:
        with pytest.raises(InvalidArgument, match=re.escape(words)):
            module(*given)


def repeats(x, n):
    return [x] * n


def test_ints_that_become_constants():
    with pytest.raises(SpecializedDimension, match=r"n is marked dynamic, .* the constant 3 by .*test_ints.py"):
        dovetail.export(repeats, (X, 3), None, (None, Dim.DYNAMIC))
    module = dovetail.export(repeats, (X, 3), None, (None, Dim.AUTO)).module()
    with pytest.raises(InvalidArgument, match="n is 4; the program is exported for 3"):
        module(X, 4)


@pytest.mark.parametrize(("value", "said", "words"), [
    (0.5, Dim.DYNAMIC, "n is 0.5, no tensor and no int"), (True, "n", "n is True, no tensor and no int"),
    (3, 4, "n is 3 in this call, not 4"), (3, Dim("n", min=5), "n is 3 in this call, which is not at least 5"),
    (3, {0: "n"}, "n is described by {0: 'n'}"),
])  # fmt: skip
def test_what_makes_no_sense_for_numbers(value, said, words):
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        dovetail.export(lambda x, n: x * n, (X, value), None, (None, said))
