"""Functions that run as plain Python while what they call is compiled."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import dovetail
from dovetail.bytecode.callees import with_wrapped_calls

from ..documents.checking import Graphs

X = torch.arange(6.0).reshape(2, 3)


def sine(x):
    return torch.sin(x)


def scaled(x, k=2):
    return x * k


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3).requires_grad_(False)

    def helper(self, x):
        return torch.relu(x) + 1

    @dovetail.disable(recursive=False)
    def step(self, x):
        return self.helper(self.linear(x) * 3)

    def forward(self, x):
        return self.step(x - 1) / 2


def test_methods_and_submodules() -> None:
    model, graphs = Layer(), Graphs()
    compiled = dovetail.compile(model, backend=graphs)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), model(X))
    assert graphs.operators == [["sub"], ["linear"], ["relu", "add"], ["truediv"]]


def test_functions_of_every_kind() -> None:
    local = lambda x: x - 5

    @dovetail.disable(recursive=False)
    def plain(x, *rest, k=3, **named):
        made = [scaled(v, k=k) for v in (x, *rest)]
        f = sine
        inner = lambda v: v + made[0].sum()
        return inner(f(made[-1])) + local(x) + max(2, 1) + sum(scaled(v) for v in made)

    graphs = Graphs()
    compiled = dovetail.compile(lambda x: plain(x, x + 1, k=4, other=1), backend=graphs)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), plain(X, X + 1, k=4, other=1))
    assert ["sin"] in graphs.operators and len(graphs.operators) < 8


def test_a_direct_call_compiles_nothing() -> None:
    @dovetail.disable(recursive=False)
    def plain(x):
        return sine(x) + 1

    graphs = Graphs()
    dovetail.compile(lambda x: x, backend=graphs)
    torch.testing.assert_close(plain(X), torch.sin(X) + 1)
    assert graphs.seen == []


def test_exceptions_come_from_the_users_line() -> None:
    def fails(x):
        raise KeyError("the user's")

    @dovetail.disable(recursive=False)
    def plain(x):
        try:
            return fails(x)
        except ValueError:
            return x

    with pytest.raises(KeyError, match="the user's") as caught:
        dovetail.compile(lambda x: plain(x + 1), backend="eager")(X)
    names = [entry.name for entry in caught.traceback]
    assert names[-1] == "fails" and "plain" in names


def test_no_other_function_compiles_under_debug_function() -> None:
    model, graphs = Layer(), Graphs()
    with dovetail.config.patch(debug_function="helper"):
        compiled = dovetail.compile(model, backend=graphs)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), model(X))
    assert graphs.operators == [["relu", "add"]]


def test_wrapped_calls_see_each_callable() -> None:
    seen = []

    def fn(x, other=sine):
        return other(scaled(x)).abs().sum(dim=0)

    def wrap(f):
        seen.append(f.__name__)
        return f

    torch.testing.assert_close(with_wrapped_calls(fn, wrap)(X), fn(X))
    assert seen == ["sine", "scaled", "abs", "sum"]


def test_callables_that_are_called_with_a_tuple_are_seen_too() -> None:
    seen = []

    class Holder:
        inner = SimpleNamespace(call=torch.abs)

        def run(self, *args, **kwargs):
            return torch.sin(*args) + self.inner.call(*args, **kwargs) + sine(*args, **kwargs)

    def wrap(f):
        seen.append(f.__name__)
        return f

    torch.testing.assert_close(with_wrapped_calls(Holder.run, wrap)(Holder(), X), Holder().run(X))
    assert seen == ["sin", "abs", "sine"]


@pytest.mark.parametrize("disable", [dovetail.disable, torch.compiler.disable, lambda f: dovetail.disable(f, False)])
def test_what_is_disabled_anew_in_each_call_is_one_function(disable) -> None:
    def fn(x):
        return disable(sine)(x.cos()) * 2

    compiled = dovetail.compile(fn)
    torch.testing.assert_close(compiled(X), fn(X))
    with dovetail.set_stance("fail_on_recompile"):
        torch.testing.assert_close(compiled(X + 1), fn(X + 1))


def test_functions_that_are_disabled_and_hold_what_is_computed_are_one() -> None:
    def fn(x, k):
        @dovetail.disable
        def inner(t):
            return t.sin() + k

        return inner(x.cos()) * 2

    compiled = dovetail.compile(fn)
    torch.testing.assert_close(compiled(X, X * 2), fn(X, X * 2))
    with dovetail.set_stance("fail_on_recompile"):
        torch.testing.assert_close(compiled(X, X + 1), fn(X, X + 1))


def test_a_disabled_function_is_not_taken_for_one_that_is_not() -> None:
    def apply(f, x):
        return f(x) + 1

    compiled = dovetail.compile(apply)
    for function in (dovetail.disable(sine), sine, dovetail.disable(scaled), torch.compiler.disable(sine), scaled):
        torch.testing.assert_close(compiled(function, X), apply(function, X))
