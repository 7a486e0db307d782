"""Each argument of `dovetail.compile`, as PyTorch's documents have it: what it does, and what it refuses."""

from __future__ import annotations

import inspect
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import dovetail

X = torch.arange(6.0).reshape(2, 3)


def entries(fn: Any) -> int:
    return len(fn._dovetail_dispatcher.entries)


def scaled(x, k):
    return x * k


def broken(x):
    x = x + 1
    dovetail.graph_break()
    return x * 2


def test_all_arguments_of_torch_compile_are_there() -> None:
    theirs = inspect.signature(torch.compile).parameters.keys()
    assert theirs <= inspect.signature(dovetail.compile).parameters.keys()


# ---------------------------------------------------------------- recompile_limit


def test_a_limit_of_recompilations_of_one_call() -> None:
    few = dovetail.compile(scaled, backend="eager", recompile_limit=1)
    many = dovetail.compile(scaled, backend="eager", dynamic=False)
    with pytest.warns(UserWarning, match=r"recompile_limit \(1\)"):
        for k in "ab":
            few(X, {"a": 2.0, "b": torch.tensor(3.0)}[k])
            many(X, {"a": 2.0, "b": torch.tensor(3.0)}[k])
        few(X, 4.0)
    assert entries(many) == 2


def test_the_limit_goes_with_modes_and_options() -> None:
    for more in ({"mode": "default"}, {"options": {"numerics": "eager"}}):
        fn = dovetail.compile(scaled, backend="eager", recompile_limit=1, **more)
        assert fn._dovetail_dispatcher.compiler.options().recompile_limit == 1
    with pytest.raises(dovetail.InvalidArgument, match="recompile_limit"):
        dovetail.compile(scaled, recompile_limit=1, options={"recompile_limit": 2})


def test_one_graph_at_the_limit_is_an_error() -> None:
    fn = dovetail.compile(scaled, backend="eager", fullgraph=True, recompile_limit=1)
    fn(X, 2.0)
    with pytest.raises(dovetail.GraphBreakError, match=r"recompile_limit \(1\)"):
        for k in (3.0, 4.0, 5.0):
            fn(X, k)


@pytest.mark.parametrize("wrong", [0, -1, True, "8", 1.5])
def test_no_limit(wrong: Any) -> None:
    with pytest.raises(dovetail.InvalidArgument, match="recompile_limit must be"):
        dovetail.compile(scaled, recompile_limit=wrong)


# ---------------------------------------------------------------- isolate_recompiles


@pytest.mark.parametrize("isolate", [False, True])
def test_what_two_calls_compile_is_apart(isolate: bool) -> None:
    one, other = (dovetail.compile(scaled, backend="eager", isolate_recompiles=isolate) for _ in range(2))
    one(X, 2.0)
    assert (entries(one), entries(other)) == (1, 0)
    with pytest.raises(dovetail.InvalidArgument, match="isolate_recompiles must be True or False"):
        dovetail.compile(scaled, isolate_recompiles="no")


# ---------------------------------------------------------------- name


def test_a_name_is_told_with_the_function() -> None:
    fn = dovetail.compile(broken, name="decode", fullgraph=True)
    with pytest.raises(dovetail.GraphBreakError):
        fn(X)
    fn = dovetail.compile(scaled, backend="eager", name="decode", recompile_limit=1)
    with pytest.warns(UserWarning, match=r"for decode: scaled \("):
        fn(X, 2.0), fn(X, torch.ones(3))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        fn(X, 2.0)
    assert any("decode: scaled" in event.key for event in seen.key_averages())
    with pytest.raises(dovetail.InvalidArgument, match="name must be a text"):
        dovetail.compile(scaled, name=3)


def test_a_name_changes_no_code() -> None:
    texts = []
    for name in (None, "one"):
        fn = dovetail.compile(scaled, name=name)
        fn(X, 2.0)
        texts.append(fn._dovetail_dispatcher.entries[0].text)
    assert texts[0] == texts[1]


# ---------------------------------------------------------------- shapes_spec


def summed(x, n, rest):
    return x.sum(0) * n + rest["more"][0]


def test_sizes_and_numbers_that_vary_from_the_first_call_on() -> None:
    spec = pytest.importorskip("torch.fx.experimental.dynamic_spec")
    rest = spec.DictSpec({"more": spec.SeqSpec([spec.TensorSpec([spec.ShapeVar("w")])])})
    given = {"x": spec.TensorSpec([spec.ShapeVar("rows"), spec.ShapeVar("w")]), "n": spec.IntVar(), "rest": rest}
    for whole in (given, spec.ParamsSpec(given), spec.ShapesSpec(given)):
        fn = dovetail.compile(summed, dynamic_shapes=whole)
        for rows, width, n in ((4, 8, 3), (5, 9, 4), (7, 6, 9)):
            args = torch.randn(rows, width), n, {"more": [torch.randn(width)]}
            torch.testing.assert_close(fn(*args), summed(*args))
        assert entries(fn) == 1
    fn = dovetail.compile(summed, dynamic_shapes=spec.ShapesSpec())
    fn(torch.randn(4, 8), 3, {"more": [torch.randn(8)]}), fn(torch.randn(5, 8), 3, {"more": [torch.randn(8)]})
    assert entries(fn) == 2


def test_what_a_decorator_says_of_sizes_counts() -> None:
    spec = pytest.importorskip("torch.fx.experimental.dynamic_spec")

    def doubled(x):
        return x * 2

    doubled._dynamic_spec = spec.ShapesSpec({"x": spec.TensorSpec([spec.ShapeVar("rows"), None])})
    for fn in (dovetail.compile(doubled), dovetail.compile()(doubled)):
        assert torch.equal(fn(torch.ones(4, 2)) + fn(torch.ones(5, 2))[:4], torch.full((4, 2), 4.0))
        assert entries(fn) == 1
    with pytest.raises(dovetail.InvalidArgument, match="either dynamic_shapes or the decorator"):
        dovetail.compile(doubled, dynamic_shapes={"x": spec.TensorSpec([spec.ShapeVar("rows"), None])})


def test_no_specification() -> None:
    for name, wrong in (("dynamic_shapes", "x"), ("dynamic_shapes", {"x": "rows"}), ("shapes_spec", 3)):
        with pytest.raises(dovetail.InvalidArgument, match="dynamic_shapes"):
            dovetail.compile(summed, **{name: wrong})
    with pytest.raises(dovetail.InvalidArgument, match="either dynamic or dynamic_shapes"):
        dovetail.compile(summed, dynamic=True, shapes_spec={"n": None})
    with pytest.raises(dovetail.InvalidArgument, match="either dynamic_shapes or shapes_spec"):
        dovetail.compile(summed, dynamic_shapes={"n": None}, shapes_spec={"n": None})


# ---------------------------------------------------------------- options


def test_options_of_a_callable_backend_are_its_own() -> None:
    seen = []

    def backend(gm, inputs, *, options):
        seen.append(options)
        return gm

    fn = dovetail.compile(scaled, backend=backend, options={"level": 3, "recompile_limit": 2})
    assert torch.equal(fn(X, 2.0), X * 2) and seen == [{"level": 3}]
    assert fn._dovetail_dispatcher.compiler.options().recompile_limit == 2
    for name in ("dovetail", "eager", None):
        with pytest.raises(dovetail.InvalidArgument, match="unknown option 'level'"):
            dovetail.compile(scaled, backend=name, options={"level": 3})


def test_modules_keep_their_arguments_when_they_are_copied() -> None:
    model = torch.nn.Linear(3, 2)
    made = dovetail.compile(model, backend="eager", recompile_limit=2, name="head")
    again = pickle.loads(pickle.dumps(made))
    request = again._dovetail_dispatcher.compiler
    assert (request.options().recompile_limit, request.name, request.backend) == (2, "head", "eager")


def test_no_argument_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fn = dovetail.compile(
            scaled, fullgraph=False, dynamic=None, backend="eager", mode=None, options=None, name=None, disable=False,
            recompile_limit=None, isolate_recompiles=False, dynamic_shapes=None,
        )  # fmt: skip
        assert torch.equal(fn(X, 2.0), X * 2)
