"""Backends, stances, settings and the other switches."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.config import SETTINGS, Config
from tests.forks import python

X = torch.arange(6.0).reshape(2, 3)


def entries(fn) -> int:
    return len(fn._dovetail_dispatcher.entries)


@pytest.fixture(autouse=True)
def _as_found():
    yield
    dovetail.set_stance("default")
    dovetail.set_default_backend("dovetail")


# ---------------------------------------------------------------- backends


def test_a_callable_backend_gets_graph_and_inputs() -> None:
    seen = []

    def backend(gm, inputs):
        seen.append((gm, inputs))
        return gm.forward

    model = torch.nn.Linear(3, 2).requires_grad_(False)
    torch.testing.assert_close(dovetail.compile(model, backend=backend)(X), model(X))
    ((gm, inputs),) = seen
    assert isinstance(gm, torch.fx.GraphModule) and inputs[0] is X
    assert {id(t) for t in inputs[1:]} == {id(p) for p in model.parameters()}


def test_a_failing_backend() -> None:
    def backend(gm, inputs):
        raise ZeroDivisionError("inside")

    with pytest.raises(dovetail.BackendError, match="ZeroDivisionError: inside") as caught:
        dovetail.compile(lambda x: x + 1, backend=backend)(X)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(dovetail.BackendError, match="not a callable"):
        dovetail.compile(lambda x: x + 1, backend=lambda gm, inputs: None)(X)


def test_registered_backends() -> None:
    calls = []

    @dovetail.register_backend(name="test_counting")
    def counting(gm, inputs):
        calls.append(1)
        return gm

    assert "test_counting" in dovetail.list_backends()
    assert torch.equal(dovetail.compile(lambda x: x + 1, backend="test_counting")(X), X + 1) and calls == [1]
    assert dovetail.register_backend(counting, "test_counting") is counting
    for taken in ("test_counting", "eager"):
        with pytest.raises(dovetail.InvalidArgument, match="taken"):
            dovetail.register_backend(lambda gm, inputs: gm, taken)


def test_the_default_backend() -> None:
    assert dovetail.get_default_backend() == "dovetail"
    fn = dovetail.compile(lambda x: x * 2)
    dovetail.set_default_backend("eager")
    assert dovetail.get_default_backend() == "eager"
    assert torch.equal(fn(X), X * 2)
    assert isinstance(fn._dovetail_dispatcher.entries[0].call.__globals__["graph"].__self__, torch.fx.GraphModule)
    with pytest.raises(dovetail.InvalidArgument):
        dovetail.set_default_backend(7)


PEER = """
import torch, dovetail, sys
assert "torch._dynamo" not in sys.modules
try:
    dovetail.compile(lambda x: x, backend="no_such_backend")
except dovetail.InvalidArgument as error:
    for name in ("'aot_eager'", "'dovetail'", "'eager'", "'inductor'"):
        assert name in str(error), (name, error)
else:
    raise AssertionError("accepted")
from torch._dynamo import register_backend
@register_backend
def peer_test(gm, inputs):
    return lambda *args: tuple(t * 1 for t in gm(*args))
x = torch.ones(3)
assert torch.equal(dovetail.compile(lambda x: x + 1, backend="peer_test")(x), x + 1)
print("fine")
"""


def test_backends_of_torch_compile_by_name() -> None:
    done = python("-c", PEER)
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


# ---------------------------------------------------------------- stances, run, disable, reset


def scaled(x, k):
    return x * k


def test_force_eager() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    with dovetail.set_stance("force_eager"):
        assert torch.equal(fn(X, 2.0), X * 2) and entries(fn) == 0
    fn(X, 2.0)
    assert entries(fn) == 1
    entry = fn._dovetail_dispatcher.entries[0]
    dovetail.set_stance("force_eager")
    assert fn._dovetail_dispatcher.first is not entry.call and torch.equal(fn(X, 2.0), X * 2)
    dovetail.set_stance("default")
    assert fn._dovetail_dispatcher.first is entry.call


def test_eager_on_recompile() -> None:
    fn = dovetail.compile(scaled, backend="eager")

    @dovetail.set_stance("eager_on_recompile")
    def use(k):
        return fn(X, k)

    assert torch.equal(use(2.0), X * 2) and entries(fn) == 1, "the first compilation is no recompilation"
    assert torch.equal(use(3.0), X * 3) and entries(fn) == 1
    assert torch.equal(fn(X, 3.0), X * 3) and entries(fn) == 2


def test_fail_on_recompile() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    with dovetail.set_stance("fail_on_recompile"):
        fn(X, 2.0)
        fn(X, 2.0)
        with pytest.raises(RuntimeError, match=r"k == 2\.0 \(actual 3\.0\)"):
            fn(X, 3.0)
    assert torch.equal(fn(X, 3.0), X * 3)


def test_unknown_stance() -> None:
    with pytest.raises(dovetail.InvalidArgument, match="'force_eager'"):
        dovetail.set_stance("lazy")


def test_run_never_compiles() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    only = dovetail.run(fn)
    assert torch.equal(only(X, 2.0), X * 2) and entries(fn) == 0
    fn(X, 2.0)
    assert torch.equal(only(X, 2.0), X * 2) and torch.equal(only(X, 5.0), X * 5) and entries(fn) == 1
    with pytest.raises(dovetail.InvalidArgument):
        dovetail.run(3)


def test_disable_gives_the_original() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    for off in (dovetail.disable(fn), dovetail.disable(scaled), dovetail.disable(reason="slow")(fn)):
        assert torch.equal(off(X, 2.0), X * 2) and off.__name__ == "scaled"
    assert entries(fn) == 0
    model = torch.nn.Linear(3, 2)
    assert dovetail.disable(dovetail.compile(model)) is model


def test_reset_forgets_everything() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    fn(X, 2.0)
    dovetail.reset()
    assert entries(fn) == 0 and "capture" not in dovetail.compile_times()
    assert torch.equal(fn(X, 2.0), X * 2) and entries(fn) == 1


def test_is_compiling_is_true_inside() -> None:
    assert dovetail.is_compiling() is False
    fn = dovetail.compile(lambda x: x + (1 if dovetail.is_compiling() else 100), backend="eager")
    assert torch.equal(fn(X), X + 1)


def test_a_program_that_raises_when_compiled_is_told_that_it_is_not() -> None:
    def shifted(x: torch.Tensor, by: torch.Tensor | None = None) -> torch.Tensor:
        if by is None and not torch.compiler.is_compiling():
            by = torch.ones(())
        return x + by.to(x.dtype)

    assert torch.equal(dovetail.compile(shifted, backend="eager", fullgraph=True)(X), X + 1)


# ---------------------------------------------------------------- settings


def test_settings_are_checked() -> None:
    with pytest.raises(dovetail.InvalidArgument, match="'recompile_limit'"):
        dovetail.config.no_such_setting = 1
    with pytest.raises(dovetail.InvalidArgument):
        _ = dovetail.config.no_such_setting
    with pytest.raises(dovetail.InvalidArgument, match="must be int"):
        dovetail.config.recompile_limit = True
    with pytest.raises(dovetail.InvalidArgument, match="'eager'"):
        dovetail.config.numerics = "exact"
    with pytest.raises(dovetail.InvalidArgument), dovetail.config.patch(recompile_limit=2, nonsense=1):
        pass
    assert dovetail.config.recompile_limit == 8


def test_patch_is_undone_after_an_error() -> None:
    with pytest.raises(KeyError), dovetail.config.patch(recompile_limit=2):
        assert dovetail.config.recompile_limit == 2
        raise KeyError
    assert dovetail.config.recompile_limit == 8

    @dovetail.config.patch(recompile_limit=3)
    def inside() -> int:
        return dovetail.config.recompile_limit

    assert inside() == inside() == 3 and dovetail.config.recompile_limit == 8


def test_settings_hold_when_compiling() -> None:
    fn = dovetail.compile(scaled, backend="eager")
    with dovetail.config.patch(recompile_limit=1), pytest.warns(UserWarning, match=r"recompile_limit \(1\)"):
        fn(X, 1.0)
        fn(X, 2.0)
    assert entries(fn) == 1


def test_environment(caplog: pytest.LogCaptureFixture) -> None:
    read = Config({"DOVETAIL_RECOMPILE_LIMIT": "4", "DOVETAIL_SUPPRESS_ERRORS": "yes", "DOVETAIL_NUMERICS": "eager"})
    assert (read.recompile_limit, read.suppress_errors, read.numerics) == (4, True, "eager")
    for name, text in (("RECOMPILE_LIMIT", "many"), ("SUPPRESS_ERRORS", "perhaps"), ("NUMERICS", "exact")):
        read = Config({f"DOVETAIL_{name}": text})
        assert getattr(read, name.lower()) == SETTINGS[name.lower()].default and name in caplog.messages[-1]
    assert all(setting.doc and setting.checked(setting.default) == setting.default for setting in SETTINGS.values())
