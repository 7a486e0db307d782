"""Integers of more digits than Python writes in decimal, and objects whose `repr` is the program's, are values too."""

from __future__ import annotations

import warnings

import pytest
import torch

import dovetail
from dovetail.ir.literals import in_words, literal
from tests.capture.harness import compare

BIG = 1 << 20000
TABLE = {BIG: 1, 2: BIG}


class Loud:
    shown = 0

    def __repr__(self):
        Loud.shown += 1
        raise RuntimeError("nobody asked for it")

    __str__ = __repr__


def text(x, n):
    try: return x, f"{n + BIG}"  # fmt: skip
    except ValueError as error: return x, str(error)


def broken(x, n):
    b = BIG + n
    table = {b: b}
    dovetail.graph_break()
    return x + 1, b + 1, table, (b, 1)


def branched(x, n):
    b = (BIG + n, 1)
    if x.sum() > 0:
        return x + 1, b
    return x, b[0]


def made(x, n):
    class Holder:
        value = BIG

        def read(self, more=BIG): return more + n + self.value

    return x, Holder().read()


def loop(x, n):
    for i in range(BIG, BIG + 3): x = x + i % 7 + n % 3
    return x, range(BIG + n)


FUNCTIONS = [
    lambda x, n: (x + 1, n << 20000, n - BIG), lambda x, n: x + TABLE[BIG] + n % 7, lambda x, n: {n + BIG: x, BIG: 1},
    lambda x, n: (x + 1 if BIG in TABLE else x, BIG + n in TABLE), lambda x, n, t=(BIG, 2): (x + t[1], t, t[0] + n),
    lambda x, n: (x + (n > BIG), n < BIG, n == BIG), lambda x, n: (x, x.shape[0] * BIG, x.shape[0] * BIG > n),
    lambda x, n: x[BIG + n % 7 :], lambda x, n: x.long().sum().item() + BIG + n % 7,
    lambda x, n: x.long().sum().item() + (BIG + n) > 0, lambda x, n: (x, {BIG, n}, frozenset([BIG]), slice(BIG, n)),
    lambda x, n: (x, f"{n + BIG:x}"), text, broken, branched, made, loop,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("backend", ("eager", "dovetail"))
def test_long_integers(fn, backend):
    compiled = dovetail.compile(fn, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one runs eagerly
        for n, size in ((0, 3), (1, 4), (BIG, 5), (BIG + 1, 5), (True, 6)):
            compare(compiled(torch.ones(size), n), fn(torch.ones(size), n))


def test_long_integers_are_explained():
    explained = dovetail.explain(lambda x, n: x + n % 7)(torch.ones(2), BIG).details()
    assert hex(BIG)[:40] in explained


@pytest.mark.parametrize(
    "fn",
    (
        lambda x, o: x + (1 if o is LOUD else 2), lambda x, o: x + len((LOUD, o)), lambda x, o: (max(o, LOUD), x),
        lambda x, o: x + LOUD[0], lambda x, o: {LOUD: x}[o], lambda x, o: x.reshape(o), lambda x, o: x + o,
    ),
)  # fmt: skip
def test_messages_ask_no_object_for_its_text(fn):
    compiled, Loud.shown = dovetail.compile(fn, backend="eager"), 0
    for o in (LOUD, 3, Loud(), (LOUD,), [LOUD], LOUD):
        for call in (compiled, fn, dovetail.explain(fn)):
            try:
                call(torch.ones(2), o)
            except (TypeError, KeyError, AttributeError, RuntimeError) as error:
                assert type(error) is not RuntimeError or "nobody asked" not in error.args[0]
    assert not Loud.shown


LOUD = Loud()


def test_literals_are_python():
    for value in (BIG, -BIG, (BIG, "a"), (1,), (), ((-BIG,), None), "text", 1.5):
        assert eval(literal(value)) == value


def test_words():
    assert in_words([1, (2,), {"a": {3}}]) == "[1, (2,), {'a': {3}}]"
    assert in_words(BIG).endswith("...") and len(in_words(list(range(1000)))) == 80
    endless: list = []
    endless.append(endless)
    assert "list object at" in in_words(endless)
    assert "Loud object at" in in_words((LOUD, Loud)) and not Loud.shown
