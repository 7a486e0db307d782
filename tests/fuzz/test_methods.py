"""Methods of built-in containers and built-in functions, with every kind of iterable and wrong arguments: a sample."""

from __future__ import annotations

import pytest

from tests.fuzz.python import methods


@pytest.mark.parametrize("seed", range(2))
def test_methods_as_plain_python(seed):
    failed = {p: found for p in methods.sample(seed, 30) if (found := methods.try_one(*p)) is not None}
    assert failed == {}


def test_an_update_that_raises_has_had_its_effect():
    for receiver, name in (("set", "update"), ("list", "extend"), ("deque", "extendleft"), ("dict", "update")):
        assert methods.try_one(receiver, name, False) is None
