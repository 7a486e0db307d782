"""What is a key by identity, by value or by its class's word stays right when other objects are given."""

from __future__ import annotations

import dataclasses
import functools
import io
import operator
import re

import numpy as np
import pytest
import torch

import dovetail
from tests.capture.harness import compare


class Plain:
    def method(self): pass


class Valued:
    def __init__(self): self.value = 1
    def __eq__(self, other): return type(other) is Valued and self.value == other.value
    def __hash__(self): return hash(self.value)


@dataclasses.dataclass(frozen=True)
class Key:
    name: int
    more: int = dataclasses.field(compare=False)


def both(x, a, b):
    table = {a: 1}
    table[b] = 4
    return x + table[a], len({a, b}), len(dict.fromkeys([a, b])), {a} == {b}, len({a} & {b})


def inside(x, a, b): return x + len({(a, 1), (b, 1)}), {frozenset([a]): 3}.get(frozenset([b]), 7), (a, 2) in [(b, 2)]
def asked(x, a, b): return x + {a: 1}.get(b, 5), b in {a}, b in {a: 1}, [a].count(b), a == b


MADE = {
    "object": Plain, "value": Valued, "tensor": lambda: torch.ones(1),
    "parameter": lambda: torch.nn.Parameter(torch.ones(1)),
    "method": lambda: Plain().method, "method of a value": lambda: Valued().__eq__, "native": lambda: Plain().__init__,
    "function": lambda: lambda: 1, "class": lambda: type("Made", (), {}), "partial": lambda: functools.partial(max, 1),
    "tuple": lambda: (Plain(), 1), "frozenset": lambda: frozenset([Plain()]), "error": lambda: ValueError(1),
    "stream": io.StringIO, "module": lambda: torch.nn.Linear(1, 1), "nothing": object,
}  # fmt: skip


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("fn", (both, inside, asked), ids=lambda fn: fn.__name__)
def test_one_object_or_two(fn, kind):
    first, second, third = (MADE[kind]() for _ in range(3))
    x = torch.ones(1)
    for calls in (
        ((first, second), (second, first), (first, first), (first, third)),
        ((first, first), (second, second), (first, second), (second, second)),
    ):
        compiled = dovetail.compile(fn, backend="eager")
        for a, b in calls:
            compare(compiled(x, a, b), fn(x, a, b))


def of_table(x, key, table): return x + table.get(key, 0), key in table, len(table)
def read(x, table): return x + sum(key.more for key in table), Key(1, 9) in table
def hashed(x, key): return x + hash(key) % 1000


@pytest.mark.parametrize("kind", (dict.fromkeys, set))
def test_equal_keys_that_hold_other_things(kind):
    compiled = dovetail.compile(read, backend="eager")
    for keys in ([Key(1, 2)], [Key(1, 3)], [Key(2, 4)], [Key(1, 4)]):
        compare(compiled(torch.ones(1), kind(keys)), read(torch.ones(1), kind(keys)))


@pytest.mark.parametrize("make", (Plain, lambda: Key(1, 2), lambda: (1.5, Plain()), lambda: (Key(3, 4), "a")))
def test_tables_from_outside(make):
    a, b, c = make(), make(), make()
    compiled = dovetail.compile(of_table, backend="eager")
    for key, table in ((a, {a: 1}), (b, {a: 1, b: 3}), (a, {a: 1, b: 3}), (c, {a: 1, b: 3}), (b, {b: 1})):
        compare(compiled(torch.ones(1), key, table), of_table(torch.ones(1), key, table))


@pytest.mark.parametrize("fn", (hashed, lambda x, key: x + {(1.5, 2): 1, 3: 4}.get(key, 7)))
def test_values_in_tuples(fn):
    compiled, one, two = dovetail.compile(fn, backend="eager"), Plain(), Plain()
    for key in ((1.5, 2), (2.5, 2), (1.5, 2), (1, 2), (one, 2.5), (two, 2.5), one, two, 1.5, (3, ("a", (None, 2.5)))):
        compare(compiled(torch.ones(1), key), fn(torch.ones(1), key))


def test_words_of_a_class_of_their_own():
    """An equality that is asked of one may read more than the text, which is all that is guarded."""
    class Word(str):
        def __eq__(self, other): return False
        __hash__ = str.__hash__

    class Other:
        def __hash__(self): return hash("word")
        def __eq__(self, other): return other.flag

    def fn(x, a, b): return x + 1, {a: 1}.get(b)

    compiled, word = dovetail.compile(fn), Word("word")
    for word.flag in (True, False, True):
        compare(compiled(torch.ones(1), Other(), word), fn(torch.ones(1), Other(), word))


def test_a_tuple_given_twice():
    fn, given = lambda x, a, b: (x + (a in [b]), (a, 1).count(b), a is b), (Plain(), 1.5)
    compiled = dovetail.compile(fn, backend="eager")
    for a, b in ((given, given), (given, (given[0], 1.5)), ((), ()), (given, given)):
        compare(compiled(torch.ones(1), a, b), fn(torch.ones(1), a, b))


SLICES = ["{(a, 1): 1}.get((b, 1))", "hash(a) == hash(b), a in {b}", "len({a, b, slice(1, 2)})"]


@pytest.mark.parametrize("text", SLICES)
def test_slices(text):
    """They are equal and have a hash since Python 3.12, before that they have none."""
    fn = eval(f"lambda x, a, b: (x + 1, {text})")
    for function in (fn, dovetail.compile(fn, backend="eager")):
        for a, b, equal in ((slice(1, 2), slice(1, 2), True), (slice(1, None), slice(1, 2), False)):
            try:
                found = function(torch.ones(1), a, b)[1:]
            except TypeError as error:
                assert "unhashable type" in str(error) and slice.__hash__ is None
            else:
                assert found in ([(1,), (True, True)] if equal else [(None,), (False, False), (2,)])


def test_keys_that_have_no_hash():
    class Unhashable:
        __eq__ = object.__ne__

    for fn in (lambda x: {([],): x}, lambda x: {(1, {}), x}, lambda x: {(Unhashable(), 1): x}):
        for call in (fn, dovetail.compile(fn, backend="eager")):
            with pytest.raises(TypeError, match="unhashable type"):
                call(torch.ones(1))


def test_numbers_of_numpy():
    compiled, x = dovetail.compile(both, backend="eager"), torch.ones(1)
    for given in ((1, 1), (2, 2), (3, 4), (4, 4), (1, 4)):
        a, b = map(np.float64, given)
        compare(compiled(x, a, b), both(x, a, b))


@pytest.mark.parametrize("other", ({1: 2}, [1], (1, 2), {1, 2}, {1: 2}.keys(), frozenset([1]), slice(1)))
@pytest.mark.parametrize("compared", (operator.eq, operator.le, operator.lt, operator.ne, lambda a, b: {b: a}))
def test_sets_compare_with_sets(compared, other):
    compiled = dovetail.compile(lambda x, a, b: (x, compared(a, b)), backend="eager")
    for a, b in (({1}, other), (other, {1}), ({1: 2}.keys(), other)):
        try:
            expected = compared(a, b)
        except TypeError as error:
            with pytest.raises(TypeError, match=re.escape(str(error))):
                compiled(torch.ones(1), a, b)
        else:
            compare(compiled(torch.ones(1), a, b)[1], expected)


@pytest.mark.parametrize("divide", (operator.truediv, operator.floordiv, operator.mod))
def test_a_quotient_that_nobody_uses(divide):
    def fn(x):
        divide(x.argmax().item(), 0)
        return x

    with pytest.raises(ZeroDivisionError):
        dovetail.compile(fn, backend="eager")(torch.ones(3))
