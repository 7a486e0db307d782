"""The two older editions of the frequently asked questions: what the newest no longer has, under today's names."""

from __future__ import annotations

import pytest
import torch

import dovetail

from .checking import Graphs


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def test_vmap_inside_a_compiled_function() -> None:
    def f(x):
        return torch.sin(x)

    @dovetail.compile
    def g(x):
        return torch.vmap(f)(x)

    x = torch.randn(2, 3)
    torch.testing.assert_close(g(x), torch.sin(x))


# ---------------------------------------------------------------- Limitations, which a graph break may still be


def test_a_transform_of_a_tuple() -> None:
    def fn(x):
        x1, x2 = x
        return x1 + x2

    def my_fn(x):
        return torch.func.vmap(fn)(x)

    x1, x2 = torch.randn(3, 3, 3), torch.randn(3, 3, 3)
    torch.testing.assert_close(dovetail.compile(my_fn)((x1, x2)), x1 + x2)


def test_a_transform_with_keyword_arguments() -> None:
    def fn(x, y):
        return (x * y).sum()

    def my_fn(x, y):
        return torch.func.grad(fn)(x, y=y)

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    torch.testing.assert_close(dovetail.compile(my_fn)(x, y), y)


def test_a_transform_with_side_effects() -> None:
    some_list = []

    def f(x, y):
        some_list.append(1)
        return x + y

    def my_fn(x, y):
        return torch.func.vmap(f)(x, y)

    x, y = torch.ones(2, 3), torch.randn(2, 3)
    compiled = dovetail.compile(my_fn)
    for calls in (1, 2, 3):
        torch.testing.assert_close(compiled(x, y), x + y)
        assert some_list == [1] * calls


def test_a_transform_of_a_function_that_asks_for_metadata() -> None:
    def bad_fn(x):
        x.stride()
        return x

    def my_fn(x):
        return torch.func.vmap(bad_fn)(x)

    x = torch.randn(3, 3, 3)
    torch.testing.assert_close(dovetail.compile(my_fn)(x), x)


# ---------------------------------------------------------------- tools


def test_verbose_recompile_messages(capsys) -> None:
    fn = dovetail.compile(lambda x, k: x * len(k), backend=Graphs())
    dovetail.set_logs(recompiles=True)
    try:
        with dovetail.config.patch(verbose=True):
            fn(torch.ones(3), "ab")
            fn(torch.ones(3, 3), "abc")
    finally:
        dovetail.set_logs()
    shown = capsys.readouterr().err
    assert shown.count("- entry 0:") == 2
