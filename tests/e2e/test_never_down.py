"""A stage that fails leaves the program running: eager's result, one warning that says where, and a repro."""

from __future__ import annotations

import contextlib
import re
import runpy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import dovetail
from dovetail import assembly, building, compilation, pipeline
from dovetail.capture import driver as capture_entry
from dovetail.capture.calling import calls
from dovetail.capture.session import Session
from dovetail.codegen import cpu
from dovetail.runtime import cpu as cpu_runtime

X, W = torch.randn(4, 4), torch.randn(4, 4)


def model(x, w):
    y = torch.sin(x) @ w
    return torch.relu(y) * 2


class Bug(Exception):
    """A mistake of ours."""


def fail(*_: Any, **__: Any) -> Any:
    raise Bug("injected")


def fail_when_run(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: fail


def fail_backwards(original: Callable[..., Any]) -> Callable[..., Any]:
    """A backward program, which takes a list, fails when it runs."""
    return lambda text, kernels, title: fail if "backward" in title else original(text, kernels, title)


#: Where it fails: whose attribute, and what takes its place. The last word of the stage is named in the warning.
STAGES: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "bytecode: capture": (calls, "decode", lambda _: fail),
    "instruction: capture": (Session, "binary", lambda _: fail),
    "end: capture": (capture_entry, "finish", lambda _: fail),
    "normalize": (pipeline, "normalize", lambda _: fail),
    "normalize_joint: normalize": (pipeline, "normalize_joint", lambda _: fail),
    "autograd": (pipeline, "partition", lambda _: fail),
    "lower": (building, "lower", lambda _: fail),
    "schedule": (building, "schedule", lambda _: fail),
    "codegen": (cpu, "generate", lambda _: fail),
    "host: codegen": (building.host, "generate", lambda _: fail),
    "kernels: load": (cpu_runtime, "load", lambda _: fail),
    "program: load": (assembly, "load_program", lambda _: fail),
    "run": (assembly, "load_program", fail_when_run),
    "backward": (assembly, "load_program", fail_backwards),
    "guards": (compilation.guards, "build", lambda _: fail),
}
if dovetail.config.check_kernels:  # whose host programs are made elsewhere
    del STAGES["host: codegen"]
#: The stages that a kind of call does not have.
INFERENCE_LACKS = ("normalize_joint: normalize", "autograd", "backward")
TRAINING_LACKS = ("normalize",)


@contextlib.contextmanager
def broken(stage: str) -> Iterator[None]:
    owner, name, change = STAGES[stage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, change(getattr(owner, name)))
        yield


def called(fn: Any, train: bool) -> list[torch.Tensor]:
    """The result, and the gradients."""
    x, w = X.clone(), W.clone().requires_grad_(train)
    result = fn(x, w)
    if not train:
        return [result]
    return [result.detach(), *torch.autograd.grad(result.sum(), [w])]


CASES = [(stage, train) for stage in STAGES for train in (False, True)
         if stage not in (TRAINING_LACKS if train else INFERENCE_LACKS)]  # fmt: skip


@pytest.mark.parametrize(("stage", "train"), CASES)
def test_a_stage_that_fails_is_told_once_and_the_program_goes_on(stage: str, train: bool) -> None:
    compiled, expected = dovetail.compile(model), called(model, train)
    with dovetail.config.patch(strict=False), broken(stage), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(5):
            found = called(compiled, train)
            if stage == "backward":
                torch.testing.assert_close(found, expected)
            else:
                assert all(map(torch.equal, found, expected))
    assert len(told) == 1 and told[0].filename == __file__
    text = str(told[0].message)
    assert re.search(rf"since (forward |backward )?{stage.split()[-1]} failed: .*Bug: injected", text), text
    assert f'File "{__file__}", line ' in text
    repro = re.search(r"To see it again: python (\S+)", text)
    assert repro, text
    run_repro(repro[1], stage)


def run_repro(path: str, stage: str) -> None:
    """It fails in the same stage as long as the mistake is there."""
    main = runpy.run_path(path)["main"]
    with broken(stage), pytest.raises((dovetail.InternalError, Bug)) as raised:
        main()
    assert stage.split()[-1] in str(raised.value) and "Bug: injected" in str(raised.value)
    main()


def power(x):
    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.save_for_backward(x)
            ctx.n = n
            return x**n

        @staticmethod
        def backward(ctx, g):
            return ctx.n * ctx.saved_tensors[0] ** (ctx.n - 1) * g, None

    return Power.apply(x, 3)


#: Functions in whose graph there are others, or what has no name by which it could be imported.
WITH_GRAPHS: dict[str, Callable[..., Any]] = {
    "checkpoint": lambda x: checkpoint(lambda y: {"a": y.sin()}, x, use_reentrant=False)["a"].cos(),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)),
    "transform": lambda x: torch.func.vjp(torch.sin, x)[1](x)[0],
    "apply": power,
}


@pytest.mark.parametrize("name", WITH_GRAPHS)
def test_a_graph_with_graphs_has_a_repro(name: str) -> None:
    stage, x = "normalize_joint: normalize", X.clone().requires_grad_()
    with dovetail.config.patch(strict=False), broken(stage), pytest.warns(UserWarning, match="injected") as told:
        dovetail.compile(WITH_GRAPHS[name])(x)
    text = str(told[0].message)
    repro = re.search(r"To see it again: python (\S+)", text)
    assert repro, text
    run_repro(repro[1], stage)


@pytest.mark.parametrize("strictness", ["strict", "fullgraph"])
@pytest.mark.parametrize(("stage", "train"), CASES)
def test_whoever_wants_errors_gets_them(stage: str, train: bool, strictness: str) -> None:
    compiled = dovetail.compile(model, fullgraph=strictness == "fullgraph")
    with dovetail.config.patch(strict=strictness == "strict"), broken(stage):
        for _ in range(2):
            with pytest.raises((dovetail.InternalError, Bug)) as raised:
                called(compiled, train)
            assert "Bug: injected" in str(raised.value) and "To see it again" in str(raised.value)
    if stage not in ("run", "backward"):  # whose programs are there, and broken
        torch.testing.assert_close(called(compiled, train), called(model, train))


@pytest.mark.parametrize("stage", ["instruction: capture", "lower", "run", "guards"])
def test_errors_may_be_suppressed_all_the_same(stage: str) -> None:
    compiled = dovetail.compile(model, fullgraph=True, options={"suppress_errors": True})
    with broken(stage), pytest.warns(UserWarning, match="failed: "):
        assert torch.equal(called(compiled, False)[0], called(model, False)[0])


def test_a_mistake_at_an_instruction_ends_the_graph_with_a_warning() -> None:
    """What follows is compiled, and the instruction is plain Python's."""

    def missing(*_: Any, **__: Any) -> Any:
        raise KeyError("injected")

    compiled = dovetail.compile(model)
    with dovetail.config.patch(strict=False), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "binary", missing)
        message = "(?s)capture failed here: KeyError.*y = torch.sin.*To see it again"
        with pytest.warns(UserWarning, match=message) as told:
            for _ in range(2):
                torch.testing.assert_close(called(compiled, False), called(model, False))
    assert len(told) == 2  # one for each of its operators


LOG: list[str] = []


def logging_model(x, w):
    LOG.append("begins")
    y = x @ w
    x.mul_(2)
    LOG.append("ends")
    return torch.relu(y) + torch.rand(4, 4)


@pytest.mark.parametrize("stage", [s for s in STAGES if s not in (*INFERENCE_LACKS, "run")])
def test_effects_are_neither_lost_nor_doubled(stage: str) -> None:
    def seen(fn: Callable[..., Any]) -> Any:
        LOG.clear()
        x = X.clone()
        torch.manual_seed(3)
        return [fn(x, W), x, torch.rand(2)], [*LOG]

    (expected, log), compiled = seen(logging_model), dovetail.compile(logging_model)
    with dovetail.config.patch(strict=False), broken(stage), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            found, told = seen(compiled)
            assert all(map(torch.equal, found, expected)) and told == log == ["begins", "ends"]


def test_what_has_written_something_raises_as_it_is() -> None:
    """Nobody can tell what it has done."""

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*given: Any) -> Any:
            graph(*given)
            fail()

        return run

    x = X.clone()
    with dovetail.config.patch(strict=False), pytest.raises(Bug):
        dovetail.compile(logging_model, backend=backend)(x, W)
    assert torch.equal(x, X * 2)


@pytest.mark.parametrize("when", ["compiling", "running"])
def test_a_backend_that_raises(when: str) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        return fail if when == "running" else fail()

    for strict in (False, True):
        compiled = dovetail.compile(model, backend=backend)
        with dovetail.config.patch(strict=strict):
            if strict:
                with pytest.raises((dovetail.BackendError, Bug), match="injected"):
                    compiled(X, W)
            else:
                with pytest.warns(UserWarning, match="(backend|run) failed: .*injected(?s:.*)To see it again") as told:
                    assert all(torch.equal(compiled(X, W), model(X, W)) for _ in range(2))
                assert len(told) == 1


def handled(x, index):
    try:
        return x[index] + 1
    except IndexError as error:
        return str(error)


def test_errors_of_the_program_itself_are_no_failures() -> None:
    """Not even where errors are wanted: the program handles them, or they are eager's own."""
    compiled = dovetail.compile(handled, fullgraph=True)
    for index in (1, 7):
        given = torch.tensor(index)
        with warnings.catch_warnings(record=True) as told:
            found, expected = compiled(X[0], given), handled(X[0], given)
        assert found == expected and not any("failed" in str(w.message) for w in told)
    with pytest.raises(IndexError) as raised:
        dovetail.compile(lambda x, index: x[index] + 1)(X[0], torch.tensor(7))
    assert raised.value.__context__ is None


#: What a compiled function may not run under, so that its own code runs, and the caller is told why.
OUTSIDE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "vmap": (lambda f: torch.vmap(f)(torch.ones(3, 2)), "a functorch transform"),
    "dispatch mode": (lambda f: counted(f), "a torch dispatch mode is active"),
    "jit": (lambda f: torch.jit.trace(f, (torch.ones(2),)), "torch.jit is tracing"),
    "fx": (lambda f: torch.fx.symbolic_trace(lambda x: f(x)), "torch.fx is tracing"),
}


def counted(fn: Callable[[Any], Any]) -> None:
    with FlopCounterMode(display=False):
        fn(torch.ones(2))


@pytest.mark.parametrize("name", OUTSIDE)
def test_calls_that_may_not_run_compiled_are_told_once(name: str) -> None:
    call, why = OUTSIDE[name]
    compiled = dovetail.compile(lambda x: x.sin() + 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(compiled)
        call(compiled)
    (told,) = [str(w.message) for w in caught if "dovetail" in str(w.message)]
    assert f"eagerly, since {why}" in told and __file__ in told
