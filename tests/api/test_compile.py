"""`dovetail.compile` on everything callable, and what it refuses."""

from __future__ import annotations

import functools
import gc
import inspect
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch

import dovetail

compiled = functools.partial(dovetail.compile, backend="eager")
X = torch.arange(6.0).reshape(2, 3)


def entries(fn: Any) -> int:
    return len(fn._dovetail_dispatcher.entries)


def plain(x, y=2, *rest, flag=False, **named):
    """Doc."""
    out = x * y + sum(rest)
    return (out, named) if flag else out


class Model:
    def __init__(self) -> None:
        self.k = 3.0

    def method(self, x):
        return x * self.k

    @compiled
    def decorated(self, x):
        return x - self.k

    @staticmethod
    def static(x):
        return x + 1

    @classmethod
    def cls_method(cls, x):
        return x + 2

    def __call__(self, x):
        return x / self.k


def test_call_and_decorator() -> None:
    assert torch.equal(compiled(plain)(X), plain(X))
    assert torch.equal(dovetail.compile(backend="eager")(plain)(X), plain(X))

    @dovetail.compile(backend="eager", fullgraph=True)
    def decorated(x):
        return x * 3

    assert torch.equal(decorated(X), X * 3) and entries(decorated) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: lambda x: x + 1,
        lambda: Model().method,
        lambda: Model(),
        lambda: Model.static,
        lambda: Model.cls_method,
        lambda: functools.partial(plain, y=5),
        lambda: functools.partial(torch.add, other=1),
        lambda: torch.nn.Linear(3, 2).requires_grad_(False),
        lambda: torch.sin,
    ],
    ids=[
        "lambda",
        "bound method",
        "callable",
        "staticmethod",
        "classmethod",
        "partial",
        "partial of torch",
        "module",
        "torch.sin",
    ],
)
def test_every_kind_of_callable(make) -> None:
    fn = make()
    wrapped = compiled(fn)
    for _ in range(2):
        torch.testing.assert_close(wrapped(X), fn(X))
    assert entries(wrapped) == 1


def test_arguments_as_python_binds_them() -> None:
    wrapped = compiled(plain)
    calls = [((X,), {}), ((X, 5), {}), ((X,), {"y": 7}), ((X, 1, 2, 3), {}), ((X,), {"flag": True, "z": 1})]
    for args, kwargs in calls:
        got, want = wrapped(*args, **kwargs), plain(*args, **kwargs)
        assert str(got) == str(want)
    with pytest.raises(TypeError, match=r"plain\(\) missing 1 required positional argument: 'x'"):
        wrapped()


def test_methods_bind() -> None:
    a, b = Model(), Model()
    b.k = 10.0
    assert torch.equal(a.decorated(X), X - 3) and torch.equal(b.decorated(X), X - 10)
    assert torch.equal(Model.decorated(a, X), X - 3)


def test_it_looks_like_the_original() -> None:
    wrapped = compiled(plain)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == ("plain", "Doc.", __name__)
    assert inspect.signature(wrapped) == inspect.signature(plain) and wrapped.__wrapped__ is plain
    assert inspect.isfunction(wrapped) and wrapped._dovetail_original is plain


def test_compiling_twice_compiles_the_original_once() -> None:
    twice = compiled(compiled(plain))
    assert twice._dovetail_original is plain and torch.equal(twice(X), plain(X))


def test_disable_argument_returns_the_model() -> None:
    assert dovetail.compile(plain, disable=True) is plain
    assert dovetail.compile(disable=True)(plain) is plain


def test_changed_defaults_are_seen() -> None:
    def f(x, k=1.0):
        return x * k

    wrapped = compiled(f)
    assert torch.equal(wrapped(X), X)
    f.__defaults__ = (4.0,)
    assert torch.equal(wrapped(X), X * 4)


def test_closure_and_globals_are_read_anew() -> None:
    k = 1.0
    wrapped = compiled(lambda x: x * k)
    assert torch.equal(wrapped(X), X)
    k = 5.0
    assert torch.equal(wrapped(X), X * 5)
    k = 1.0
    assert torch.equal(wrapped(X), X) and entries(wrapped) == 2


BAD: list[tuple[dict[str, Any], str]] = [
    ({"mode": "fastest"}, "'max-autotune-no-cudagraphs'"),
    ({"options": {"speed": 9}}, "'numerics'"),
    ({"options": {"recompile_limit": "a"}}, "must be int"),
    ({"options": {"recompile_limit": True}}, "must be int"),
    ({"options": {"numerics": "exact"}}, "'eager'"),
    ({"options": 3}, "dictionary"),
    ({"mode": "default", "options": {}}, "not both"),
    ({"backend": 5}, "a callable"),
    ({"fullgraph": 1}, "fullgraph"),
    ({"dynamic": "yes"}, "dynamic"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=str)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(dovetail.InvalidArgument, match=words) as caught:
        dovetail.compile(plain, **arguments)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("model", [5, "model", int, torch.nn.Linear])
def test_bad_models(model: Any) -> None:
    with pytest.raises(dovetail.InvalidArgument):
        dovetail.compile(model)


def test_recompile_limit_then_eager_with_one_warning() -> None:
    wrapped = compiled(lambda x, k: x * k, options={"recompile_limit": 3}, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(1, 8):
            assert torch.equal(wrapped(X, float(k)), X * k)
    assert entries(wrapped) == 3
    (warning,) = [w for w in caught if "recompile_limit" in str(w.message)]
    assert "k == 3.0 (actual 4.0)" in str(warning.message)
    assert torch.equal(wrapped(X, 1.0), X)


def test_recompile_limit_under_fullgraph_raises() -> None:
    wrapped = compiled(lambda x, k: x * k, options={"recompile_limit": 2}, dynamic=False, fullgraph=True)
    wrapped(X, 1.0), wrapped(X, 2.0)
    for _ in range(2):
        with pytest.raises(dovetail.GraphBreakError, match=r"\[recompile-limit\] reached recompile_limit \(2\) for"):
            wrapped(X, 3.0)
    assert torch.equal(wrapped(X, 2.0), X * 2)


def test_the_entry_hit_last_is_tried_first() -> None:
    wrapped = compiled(lambda x, k: x * k, dynamic=False)
    for k in (1.0, 2.0, 3.0):
        wrapped(X, k)
    dispatcher = wrapped._dovetail_dispatcher
    oldest = dispatcher.entries[-1]
    assert torch.equal(wrapped(X, 1.0), X)
    assert dispatcher.entries[0] is oldest and dispatcher.first is oldest.call and len(dispatcher.entries) == 3


def unsupported(x):
    return x + len(open(__file__).read()) * 0


def looks(x):
    exec("pass")  # it may look at any variable of the frame
    return x


def test_what_cannot_be_captured() -> None:
    with pytest.raises(dovetail.GraphBreakError) as full:
        compiled(unsupported, fullgraph=True)(X)
    assert "test_compile.py" in str(full.value) and full.value.code in str(full.value)
    assert torch.equal(compiled(unsupported)(X), X)  # the graph breaks
    wrapped = compiled(looks)
    with pytest.warns(UserWarning, match="eagerly"):
        assert torch.equal(wrapped(X), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(wrapped(X), X)  # reported once


def test_the_programs_own_error_is_eagers() -> None:
    def f(x):
        if x.shape[0] == 2:
            raise KeyError("the user's")
        return x

    for options in ({}, {"fullgraph": True}):
        with pytest.raises(KeyError, match="the user's"):
            compiled(f, **options)(X)


class Boom(BaseException):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, Boom])
def test_an_interrupt_while_compiling_leaves_it_usable(error: type[BaseException]) -> None:
    armed = [False]

    def backend(gm, inputs):
        if armed[0]:
            raise error
        return gm

    wrapped = dovetail.compile(lambda x, k: x * k, backend=backend)
    assert torch.equal(wrapped(X, 1.0), X)
    armed[0] = True
    with pytest.raises(error):
        wrapped(X, 2.0)
    armed[0] = False
    assert torch.equal(wrapped(X, 1.0), X) and entries(wrapped) == 1
    assert torch.equal(wrapped(X, 2.0), X * 2) and entries(wrapped) == 2


def test_many_threads_compile_once_for_each_shape() -> None:
    wrapped = compiled(lambda x: x.sum(0), dynamic=False)
    inputs = [torch.randn(n, 3) for n in (2, 3, 4)]
    gate, wrong = threading.Barrier(6), []

    def body(k: int) -> None:
        gate.wait()
        for _ in range(20):
            for x in inputs[k % 3 :] + inputs[: k % 3]:
                if not torch.equal(wrapped(x), x.sum(0)):
                    wrong.append(x.shape)

    threads = [threading.Thread(target=body, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and entries(wrapped) == 3


def test_recursion_and_nesting() -> None:
    inner = compiled(lambda x: x * 2)
    outer = compiled(lambda x: inner(x) + 1)
    assert torch.equal(outer(X), X * 2 + 1)
    assert entries(outer) == 1 and entries(inner) == 0, "a compiled function is inlined by another's capture"


def test_fx_tracing_sees_the_original() -> None:
    wrapped = compiled(lambda x: torch.sin(x) + 1)
    wrapped(X)

    class Root(torch.nn.Module):
        def forward(self, x):
            return wrapped(x)

    traced = torch.fx.symbolic_trace(Root())
    assert [n.op for n in traced.graph.nodes].count("call_function") == 2
    assert torch.equal(traced(X), wrapped(X))


def test_vmap_over_a_compiled_function() -> None:
    wrapped = compiled(lambda x: x.sum() * x)
    wrapped(X[0])
    torch.testing.assert_close(torch.vmap(wrapped)(X), torch.stack([wrapped(r) for r in X]))


def test_a_compiled_function_can_be_collected() -> None:
    def make():
        model = torch.nn.Linear(3, 3).requires_grad_(False)
        wrapped = compiled(lambda x: model(x))
        wrapped(X)
        assert entries(wrapped) == 1
        return weakref.ref(model), weakref.ref(wrapped)

    dead = make()
    gc.collect()
    assert [r() for r in dead] == [None, None]


# ---------------------------------------------------------------- classes


def test_a_class_of_modules() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(x) * 2

    plain = Net()
    assert dovetail.compile(Net, fullgraph=True) is Net
    for model in (plain, Net()):
        expected = model.inner(X) * 2
        torch.testing.assert_close(model(X), expected)
        model(X).sum().backward()
        assert model.inner.weight.grad is not None
    assert entries(Net.__call__) >= 1
    dovetail.compile(Net, fullgraph=True)
    outer = dovetail.compile(lambda x: plain(x) + 1, fullgraph=True)
    torch.testing.assert_close(outer(X), plain.inner(X) * 2 + 1)

    class More(Net):
        def forward(self, x):
            return super().forward(x) - 1

    more = More()
    torch.testing.assert_close(more(X), more.inner(X) * 2 - 1)
    whole = dovetail.compile(more, fullgraph=True)
    torch.testing.assert_close(whole(X), more.inner(X) * 2 - 1)


def test_a_class_of_callable_objects() -> None:
    @dovetail.compile(backend="eager")
    class Scale:
        def __init__(self, k: float) -> None:
            self.k = k

        def __call__(self, x):
            assert torch.compiler.is_compiling()
            return x * self.k

    assert torch.equal(Scale(2.0)(X), X * 2) and torch.equal(Scale(3.0)(X), X * 3)


def test_a_class_that_nobody_calls() -> None:
    for nobody in (int, object, type("Plain", (), {})):
        with pytest.raises(dovetail.InvalidArgument, match="a class of yours whose instances are called"):
            dovetail.compile(nobody)
