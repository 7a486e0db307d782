"""Functions that compiled code has to call natively are compiled on entry, except for their own breaks."""

from __future__ import annotations

import traceback
import warnings

import pytest
import torch

import dovetail
from tests.capture.harness import compare


def measured(x):
    y = x.sin()
    size = y.sum().item()
    return y.cos() * size


def failing(x):
    if x.sum().item() > 100:
        raise ValueError("too large")
    return x.sum().item()


class Weighted:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        return measured(x * self.weight).sum().item()


@dovetail.disable
def apart(x):
    return x.sin().sum().item()


class Net(torch.nn.Module):
    def forward(self, x, depth):
        return measured(x) if depth == 0 else self(x, depth - 1) + 1


def by_key(x):
    return sorted([x + 1, x], key=failing)


def by_instance(x):
    return max([x + 1, x], key=Weighted(x))


def by_marked(x):
    return min([x + 1, x], key=apart)


def deep(x, depth=130):
    return measured(x) if depth == 0 else deep(x, depth - 1) + 1


def deep_module(x):
    return Net()(x, 130)


def graphs(function, *args):
    return dovetail.explain(function, backend="eager")(*args)


@pytest.mark.parametrize("function", (by_key, by_instance, by_marked, deep, deep_module))
def test_results_are_those_of_eager(function):
    compiled = dovetail.compile(function, backend="eager")
    for x in (torch.ones(2), -torch.ones(2), torch.ones(3)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compare(compiled(x), function(x))


@pytest.mark.parametrize(("function", "inside"), ((by_key, "failing"), (by_instance, "__call__")))
def test_called_function_is_compiled(function, inside):
    found = graphs(function, torch.ones(2))
    assert any(reason.user_stack[0].name == inside for reason in found.break_reasons[1:])


@pytest.mark.parametrize("function", (deep, deep_module))
def test_deep_calls_are_inlined(function):
    """The graph ends inside the innermost one."""
    assert len(graphs(function, torch.ones(2)).break_reasons[0].user_stack) > 130


def test_marked_function_is_not_compiled():
    assert not any(r.user_stack[0].name == "apart" for r in graphs(by_marked, torch.ones(2)).break_reasons)


def test_traceback_names_the_users_frames_in_order():
    compiled = dovetail.compile(by_key, backend="eager")
    compiled(torch.ones(2))
    with pytest.raises(ValueError, match="too large") as caught:
        compiled(torch.full((2,), 99.0))
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__]
    assert names == ["test_traceback_names_the_users_frames_in_order", "by_key", "failing"]


def test_functions_made_at_each_call_are_not_collected():
    def fresh(x):
        shift = x + 1

        def key(v, add=x):
            return (v + add + shift).sum().item()

        return sorted([x + 1, x], key=key)

    compiled = dovetail.compile(fresh, backend="eager")
    for _ in range(3):
        compare(compiled(torch.ones(2)), fresh(torch.ones(2)))
    assert not compiled._dovetail_dispatcher.compiler.entered.made
