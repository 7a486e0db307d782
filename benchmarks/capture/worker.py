"""The measurements of one model; each runs in a process of its own (see `server`).

checks   graphs and why they end, equality with eager (inference, a training step, generating), guard time
warm     seconds of capturing, ours and torch.compile's, in one process that has compiled another model
cold     seconds of a contender's first call in a process where it was not imported yet
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import importlib
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch

from .architectures import AnyCase
from .outputs import difference, largest_error

TOLERANCE = 1e-4  # of the default backend, relative to an output's largest value
ROUNDING = 1e-6
TOKENS = 4
Program = Callable[..., Any]


def seed() -> None:
    """Every generator that models draw from: dropout and masks, also those made with NumPy."""
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)


def call(model: Program, inputs: dict[str, Any]) -> Any:
    """One inference call; masked auto-encoders draw random numbers even then."""
    seed()
    with torch.no_grad():
        return model(**inputs)


class EagerFails(Exception):
    """PyTorch itself cannot do what is asked of the model, or does it differently each time."""


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever a model that nobody chose may raise
        raise EagerFails(f"{type(error).__name__}: {error}"[:200]) from error


# ---------------------------------------------------------------- checks


def checks(case: AnyCase) -> dict[str, Any]:
    """Each check gives "" or what is wrong with it; {"skipped": why} where eager mode cannot run the model."""
    dovetail = importlib.import_module("dovetail")
    try:
        with eagerly():
            model, inputs = case.make()
            expected = call(model, inputs)
            if apart := _apart(call(model, inputs), expected):
                raise ValueError(f"two calls differ: {apart}")
    except EagerFails as error:
        return {"skipped": str(error)}
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
    found |= _graphs(dovetail, model, inputs)
    steps = {"output": lambda: _output(dovetail, model, inputs, expected), "default": lambda: _default(
        dovetail, model, inputs, expected), "training": lambda: _training(dovetail, case)}  # fmt: skip
    if case.generates:
        steps["generating"] = lambda: _generating(dovetail, model, inputs)
    for name, step in steps.items():
        dovetail.reset()
        with contextlib.suppress(EagerFails):
            found[name] = _attempt(step)
    found["guard_us"] = _guard_microseconds(model, inputs)
    return found


def _attempt(step: Callable[[], str]) -> str:
    try:
        return step()
    except EagerFails:
        raise
    except Exception as error:  # the figure being measured: anything that a model's user would see
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _graphs(dovetail: Any, model: torch.nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """Is it one graph? Else how many, and why."""
    try:
        with torch.no_grad():
            dovetail.compile(model, backend="eager", fullgraph=True)(**inputs)
        return {"whole": True, "graphs": 1, "breaks": []}
    except dovetail.errors.GraphBreakError as error:
        first = f"[{error.code}] {error.reason}"
    except Exception as error:  # reported as a crash by the check of the output
        first = f"{type(error).__name__}: {error}"
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen = dovetail.explain(model)(**inputs)
        return {"whole": False, "graphs": seen.graph_count, "breaks": [r.reason for r in seen.break_reasons] or [first]}
    except Exception as error:
        return {"whole": False, "graphs": 0, "breaks": [first, str(error)]}


def _output(dovetail: Any, model: torch.nn.Module, inputs: dict[str, Any], expected: Any) -> str:
    """Of the call that compiles and of the next one."""
    compiled = dovetail.compile(model, backend="eager")
    return _apart(call(compiled, inputs), expected) or _apart(call(compiled, inputs), expected)


def _apart(actual: Any, expected: Any, noise: float = 0.0) -> str:
    """The difference, if it is more than rounding: libraries that see a compiler at work may compute otherwise."""
    found = difference(actual, expected)
    return found if "values differ" not in found or largest_error(actual, expected) > max(ROUNDING, noise) else ""


def _default(dovetail: Any, model: torch.nn.Module, inputs: dict[str, Any], expected: Any) -> str:
    """With eager's random numbers: models that draw some would differ by them."""
    with dovetail.config.patch(fallback_random=True):
        error = largest_error(call(dovetail.compile(model), inputs), expected)
    return "" if error <= TOLERANCE else f"differs by {error:.1e} of the largest value"


def _training(dovetail: Any, case: AnyCase) -> str:
    """Outputs and gradients of a step in training mode, dropout included, from the same seed."""
    with eagerly():
        expected, again = (_step(_as_it_is, *case.make()) for _ in range(2))
        noise = largest_error(again, expected)  # sums in an order that threads of a GPU decide
    return _apart(_step(dovetail.compile, *case.make()), expected, 10 * noise)


def _as_it_is(model: Program, backend: str) -> Program:
    return model


def _step(compile: Callable[..., Program], model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[Any, Any]:
    return _forward_backward(compile(model.train(), backend="eager"), model, inputs)


def _forward_backward(program: Program, model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[Any, Any]:
    seed()
    result = program(**copy.deepcopy(inputs))
    first = result if isinstance(result, torch.Tensor) else result[0]
    first.float().square().mean().backward()
    return result, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def _generating(dovetail: Any, model: torch.nn.Module, inputs: dict[str, Any]) -> str:
    """Greedy tokens with a compiled forward and a growing cache."""
    settings = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    expected, forward = model.generate(**inputs, **settings), model.forward
    model.forward = dovetail.compile(forward, backend="eager")
    try:
        return difference(model.generate(**inputs, **settings), expected)
    finally:
        del model.forward


def _guard_microseconds(model: torch.nn.Module, inputs: dict[str, Any], calls: int = 200) -> float:
    """Time of deciding that an entry fits: its function, with nothing left to run after the guards."""
    names = ("dovetail.guards", "dovetail.capture.driver", "dovetail.options")
    guards, capture, options = (importlib.import_module(n) for n in names)
    try:
        with torch.no_grad():
            taken = guards.snapshot()
            captured = capture.capture(model, (), inputs, options.Options())
            header = captured.residual.partition("\n")[0]
            only = dataclasses.replace(captured, residual=f"{header}\n    return None\n")
            check = guards.build(only, model, captured.graph, taken).call
            return min(_per_call(check, inputs, calls) for _ in range(5)) * 1e6
    except dovetail_unsupported():
        return float("nan")


def dovetail_unsupported() -> type[Exception]:
    return importlib.import_module("dovetail.errors").Unsupported


def _per_call(check: Program, inputs: dict[str, Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        check(**inputs)
    return (time.perf_counter() - start) / calls


# ---------------------------------------------------------------- times


def ours(model: Program, graphs: list[int]) -> Program:
    return importlib.import_module("dovetail").compile(model, backend=_counting(graphs))


def peer(model: Program, graphs: list[int]) -> Program:
    importlib.import_module("torch._dynamo")
    return torch.compile(model, backend=_counting(graphs))


def _counting(graphs: list[int]) -> Callable[[Any, Any], Any]:
    """The backend `eager`, which runs a graph as it is, and a note of each graph."""

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    return backend


CONTENDERS = {"ours": ours, "peer": peer}


def warm(case: AnyCase) -> dict[str, Any]:
    """Seconds of the first call less those of an eager one."""
    model, inputs = case.make()
    eager = min(_seconds(model, inputs) for _ in range(3))
    found: dict[str, Any] = {"eager": eager}
    for name, contender in CONTENDERS.items():
        graphs: list[int] = []
        found[name] = max(_seconds(contender(model, graphs), inputs) - eager, 0.0)
        found[f"{name}_graphs"] = len(graphs)
    return found


def warm_up(names: Iterable[str]) -> None:
    """Let contenders import what they need and compile a small model."""
    small = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Dropout())
    for name in names:
        call(CONTENDERS[name](small, []), {"input": torch.ones(2, 4)})


def cold(case: AnyCase, name: str) -> dict[str, Any]:
    """Seconds from before the compiler's import to the first result, less those of an eager call."""
    model, inputs = case.make()
    eager = min(_seconds(model, inputs) for _ in range(3))
    start = time.perf_counter()
    call(CONTENDERS[name](model, []), inputs)
    return {name: time.perf_counter() - start - eager}


def _seconds(model: Program, inputs: dict[str, Any]) -> float:
    gc.collect()  # not in the middle of whoever comes next
    start = time.perf_counter()
    call(model, inputs)
    return time.perf_counter() - start


PARTS = {"checks": checks, "warm": warm, "cold": cold}
