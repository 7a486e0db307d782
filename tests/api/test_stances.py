"""Stances that put off compiling, and those that put another backend in the place of a function's own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dovetail

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    yield
    dovetail.set_stance("default")


class Graphs:
    """A backend that runs graphs as they are and counts them."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.seen.append([node.meta.get("val", given) for node, given in zip(gm.graph.nodes, inputs)])
        return gm


def entries(fn: Any) -> int:
    return len(fn._dovetail_dispatcher.entries)


def scaled(x, k):
    return x * k


def total(x, k, more):
    return x.sum(-1) * k + more["bias"][0]


def total_args(rows, k):
    return torch.randn(rows, 4), k, {"bias": [torch.randn(rows)]}


# ---------------------------------------------------------------- compiling is put off


def test_the_first_call_is_eager() -> None:
    calls = []

    def counted(x):
        calls.append(dovetail.is_compiling())
        return x + 1

    fn = dovetail.compile(counted, backend="eager")
    with dovetail.set_stance("eager_then_compile"):
        assert torch.equal(fn(X), X + 1) and entries(fn) == 0 and calls == [False]
        assert torch.equal(fn(X), X + 1) and entries(fn) == 1 and calls == [False, True]
        assert torch.equal(fn(X), X + 1) and entries(fn) == 1


def test_what_is_compiled_already_is_used() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    fn(X, 2.0)
    dovetail.set_stance("eager_then_compile")
    fn(X, 2.0)
    assert entries(fn) == 1
    assert torch.equal(fn(X, "a" and 3.0), X * 3) and entries(fn) == 2, "a recompilation is not put off"


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_what_two_calls_have_otherwise_varies(stance: str) -> None:
    for model in (False, True):
        fn: Any = dovetail.compile(Total() if model else total)
        with dovetail.set_stance(stance):
            for rows, k in ((5, 2), (7, 3), (9, 4), (11, 12)):
                args = total_args(rows, k)
                torch.testing.assert_close(fn(*args), total(*args))
        assert entries(fn) == 1


class Total(torch.nn.Module):
    def forward(self, x, k, more):
        return total(x, k, more)


def test_sizes_that_two_calls_have_alike_are_constants() -> None:
    fn = dovetail.compile(total)
    with dovetail.set_stance("eager_then_compile"):
        fn(*total_args(5, 2)), fn(*total_args(7, 2))
        fn(*total_args(7, 3))
    assert entries(fn) == 2, "k was the same"


def test_the_first_call_is_compiled_by_aot_eager() -> None:
    from dovetail.diagnostics.times import RECORDS

    dovetail.reset()
    fn = dovetail.compile(scaled)
    with dovetail.set_stance("aot_eager_then_compile"):
        assert torch.equal(fn(X, 2.0), X * 2) and entries(fn) == 0
        assert [record.outcome for record in RECORDS.all()] == ["compiled"]
        assert not any(stage.name == "codegen" for stage in RECORDS.all()[0].stages)
        assert torch.equal(fn(X, 2.0), X * 2) and entries(fn) == 1
        assert any(stage.name == "codegen" for stage in RECORDS.all()[1].stages)
    own = dovetail.compile(scaled, backend="aot_eager")
    with dovetail.set_stance("aot_eager_then_compile"):
        own(X, 2.0)
    assert entries(own) == 1


def test_gradients_of_the_first_calls() -> None:
    model = torch.nn.Linear(3, 2)
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))
    for stance in ("eager_then_compile", "aot_eager_then_compile"):
        fn = dovetail.compile(model)
        with dovetail.set_stance(stance):
            for _ in range(3):
                found = torch.autograd.grad(fn(X).square().sum(), list(model.parameters()))
                torch.testing.assert_close(found, expected)


def test_what_follows_a_graph_break_is_not_put_off_again() -> None:
    def broken(x):
        x = x + 1
        dovetail.graph_break()
        return x * 2

    graphs = Graphs()
    fn = dovetail.compile(broken, backend=graphs)
    with dovetail.set_stance("eager_then_compile"):
        for count in (0, 2, 2):
            assert torch.equal(fn(X), broken(X)) and len(graphs.seen) == count


def test_reset_begins_anew() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    dovetail.set_stance("eager_then_compile")
    fn(X, 2.0)
    dovetail.reset()
    fn(X, 2.0)
    assert entries(fn) == 0


def test_an_error_of_the_first_call() -> None:
    fn = dovetail.compile(lambda x, k: x @ k, backend="eager")
    for stance in ("eager_then_compile", "aot_eager_then_compile"):
        with dovetail.set_stance(stance), pytest.raises(RuntimeError, match="mat1"):
            fn(X, X)


# ---------------------------------------------------------------- another backend


def test_another_backend_for_a_while() -> None:
    own, forced = Graphs(), Graphs()
    fn = dovetail.compile(scaled, backend=own)
    fn(X, 2.0)
    with dovetail.set_stance("default", force_backend=forced):
        for _ in range(2):
            assert torch.equal(fn(X, 2.0), X * 2)
        assert (len(own.seen), len(forced.seen)) == (1, 1)
        assert torch.equal(fn(X, torch.ones(3)), X) and len(forced.seen) == 2
    fn(X, 2.0)
    assert (len(own.seen), len(forced.seen)) == (1, 2)
    with dovetail.set_stance("default", force_backend=forced):
        fn(X, 2.0)
    assert len(forced.seen) == 2, "what it has made is kept"
    dovetail.reset()
    with dovetail.set_stance(force_backend=forced):
        fn(X, 2.0)
    assert len(forced.seen) == 3


def test_another_backend_also_after_graph_breaks() -> None:
    def broken(x):
        x = x + 1
        dovetail.graph_break()
        return x * 2

    own, forced = Graphs(), Graphs()
    fn = dovetail.compile(broken, backend=own)
    with dovetail.set_stance(force_backend=forced):
        for _ in range(2):
            assert torch.equal(fn(X), broken(X)) and (len(own.seen), len(forced.seen)) == (0, 2)


def test_another_backend_by_name() -> None:
    fn = dovetail.compile(scaled)
    with dovetail.set_stance(force_backend="eager"):
        assert torch.equal(fn(X, 2.0), X * 2) and entries(fn) == 0
    with dovetail.set_stance(force_backend="dovetail"):
        assert torch.equal(fn(X, 2.0), X * 2) and entries(fn) == 1, "its own"


def test_another_backend_is_that_threads_only() -> None:
    own, forced = Graphs(), Graphs()
    fn = dovetail.compile(scaled, backend=own)
    with dovetail.set_stance(force_backend=forced):
        thread = threading.Thread(target=lambda: fn(X, 2.0))
        thread.start()
        thread.join()
        assert (len(own.seen), len(forced.seen)) == (1, 0)


# ---------------------------------------------------------------- arguments


def test_wrong_arguments() -> None:
    for stance in ("force_eager", "eager_then_compile"):
        with pytest.raises(dovetail.InvalidArgument, match="force_backend goes with the stance 'default'"):
            dovetail.set_stance(stance, force_backend="eager")
    with pytest.raises(dovetail.InvalidArgument, match="unknown backend 'none such'"):
        dovetail.set_stance(force_backend="none such")
    with pytest.raises(dovetail.InvalidArgument, match="skip_guard_eval_unsafe must be"):
        dovetail.set_stance(skip_guard_eval_unsafe=1)  # type: ignore[arg-type]
    assert dovetail.compile(scaled, backend="eager")(X, 1.0) is not None


def test_guards_are_checked_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    dovetail.reset()
    fn = dovetail.compile(scaled, backend="eager")
    with caplog.at_level(logging.WARNING, "dovetail"):
        for _ in range(2):
            with dovetail.set_stance("default", skip_guard_eval_unsafe=True):
                assert torch.equal(fn(X, 2.0), X * 2) and torch.equal(fn(X, 3.0), X * 3)
    assert len([m for m in caplog.messages if "skip_guard_eval_unsafe" in m]) == 1
