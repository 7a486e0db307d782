"""The child process: `python -m benchmarks.dynamic.worker PART CASE CONTENDER` prints one line of JSON.

sequence   a contender meets many sizes one after the other: compilations, seconds, errors
generate   a contender generates text with a cache that grows by one token a call
compile    seconds of one compilation by Dovetail, sizes free or constant
steady     milliseconds of code with free and with constant sizes, at the same size
guards     microseconds of deciding that an entry fits, of the same two
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from .. import measure
from ..contenders import CONTENDERS, DOVETAIL, EAGER, PEER, Program
from ..training import TrainingStep
from .programs import CASES, GENERATORS, Case, Sizes

COUNT = 20
TOKENS = 256
FREE, CONSTANT = "free", "constant"


# ---------------------------------------------------------------- many sizes


def sequence(name: str, contender: str, seed: str = "0") -> dict[str, Any]:
    """Seconds of all calls, from before the compiler's import; the largest errors against float64, ours and eager's."""
    case = CASES[name]
    program, sequence = case.build(), case.sequence(COUNT, int(seed))
    given = [case.given(sizes) for sizes in sequence]
    run, errors, spent = None, [], []
    for sizes, inputs in zip(sequence, given, strict=True):
        start = time.perf_counter()
        run = CONTENDERS[contender].compile(program) if run is None else run
        got = measure.outcome(run, inputs)
        spent.append(time.perf_counter() - start)
        exact = measure.reference(program, inputs)
        errors.append((sizes, measure.largest_error(got, exact), _eager_error(program, inputs, exact)))
    return {
        "seconds": sum(spent), "each": spent, "compilations": _COMPILATIONS[contender](),
        "error": max(ours for _, ours, _ in errors), "eager error": max(eager for *_, eager in errors),
        "sizes": sequence,
    }  # fmt: skip


def _eager_error(program: Program, inputs: tuple[Any, ...], exact: list[torch.Tensor]) -> float:
    return measure.largest_error(measure.outcome(program, inputs), exact)


def _of_ours() -> int:
    return len(importlib.import_module("dovetail").compile_times(repr="csv")[1])


def _of_peer() -> int:
    return importlib.import_module("torch._dynamo.utils").counters["stats"]["unique_graphs"]


_COMPILATIONS: dict[str, Callable[[], int]] = {EAGER.name: lambda: 0, DOVETAIL.name: _of_ours, PEER.name: _of_peer}


# ---------------------------------------------------------------- text


def generate(name: str, contender: str) -> dict[str, Any]:
    """Greedy tokens after a prompt of five; seconds from before the compiler's import."""
    torch.manual_seed(0)
    model = GENERATORS[name][1]().eval()
    _tokens_of(model, 3)  # whatever eager does only once
    start = time.perf_counter()
    tokens = _tokens_of(CONTENDERS[contender].compile(model), TOKENS)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "compilations": _COMPILATIONS[contender](), "tokens": tokens}


def _tokens_of(model: Program, count: int) -> list[int]:
    given, cache, found = torch.arange(5)[None], None, []
    with torch.no_grad():
        for _ in range(count):
            result = model(input_ids=given, past_key_values=cache, use_cache=True)
            given, cache = result.logits[:, -1:].argmax(-1), result.past_key_values
            found.append(given.item())
    return found


# ---------------------------------------------------------------- free sizes beside constant ones


def compile(name: str, kind: str) -> dict[str, Any]:
    """The first call less the next one, in a process that has compiled something else both ways."""
    case = CASES[name]
    for either in (CONSTANT, FREE):
        warm = CASES["rows"]
        measure.outcome(_compiled(warm.build(), either), _marked(warm, (8, 8), either))
    program = _compiled(case.build(), kind)
    seconds = []
    for _ in range(2):
        inputs = _marked(case, case.usual, kind)
        start = time.perf_counter()
        measure.outcome(program, inputs)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[0] - seconds[1]}


def steady(name: str, rounds: str = "25") -> dict[str, Any]:
    """Milliseconds of eager, of constant and of free sizes; `ratio` is free to constant, round by round."""
    case = CASES[name]
    program, inputs = case.build(), case.given(case.usual)
    programs = [program, *(_compiled(program, kind) for kind in (CONSTANT, FREE))]
    for run, kind in zip(programs[1:], (CONSTANT, FREE), strict=True):
        measure.outcome(run, _marked(case, case.usual, kind))
    with torch.no_grad():
        times = measure.interleaved([_call(run, inputs) for run in programs], int(rounds))
    figures = {kind: median(t) * 1e3 for kind, t in zip((EAGER.name, CONSTANT, FREE), times, strict=True)}
    return figures | {"ratio": measure.speedup(times[2], times[1])}


def _call(program: Program, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    run = program.gradients if isinstance(program, TrainingStep) else program
    return lambda: run(*inputs)


def _compiled(program: Program, kind: str) -> Program:
    dovetail = importlib.import_module("dovetail")
    compiler = lambda fn: dovetail.compile(fn, dynamic=None if kind == FREE else False)
    return program.compiled(compiler) if isinstance(program, TrainingStep) else compiler(program)


def _marked(case: Case, sizes: Sizes, kind: str) -> tuple[Any, ...]:
    """Inputs whose varying dimensions are free from the first call on, if they are to be."""
    inputs = case.given(sizes)
    if kind == FREE:
        for tensor, dims in zip(inputs, case.varies, strict=True):
            for dim in dims:
                importlib.import_module("dovetail").maybe_mark_dynamic(tensor, dim)
    return inputs


def guards(name: str, rounds: str = "41") -> dict[str, Any]:
    """Microseconds of the guards alone: entries in which nothing is left to do after them."""
    case = CASES[name]
    program, inputs = case.build(), case.given(case.usual)
    fn = program.forward if isinstance(program, TrainingStep) else program
    with torch.set_grad_enabled(case.loss is not None):
        checks = [_guards_only(fn, _marked(case, case.usual, kind)) for kind in (CONSTANT, FREE)]
        calls = [lambda c=check: c(*inputs) for check in checks]
        assert all(call() is None for call in calls)
        times = measure.interleaved(calls, int(rounds), slice_seconds=0.01)
    figures = {kind: median(t) * 1e6 for kind, t in zip((CONSTANT, FREE), times, strict=True)}
    return figures | {"ratio": measure.speedup(times[1], times[0])}


def _guards_only(fn: Program, inputs: tuple[Any, ...]) -> Program:
    """The check of an entry for these inputs: None if it fits."""
    names = ("dovetail.guards", "dovetail.capture.driver", "dovetail.options")
    builder, capture, options = (importlib.import_module(n) for n in names)
    taken = builder.snapshot()
    captured = capture.capture(fn, inputs, {}, options.Options())
    header = captured.residual.partition("\n")[0]
    only = dataclasses.replace(captured, residual=f"{header}\n    return None\n")
    return builder.build(only, fn, captured.graph, taken).call


PARTS = {"sequence": sequence, "generate": generate, "compile": compile, "steady": steady, "guards": guards}


def main() -> None:
    part, *words = sys.argv[1:]
    print(json.dumps(PARTS[part](*words)), flush=True)


if __name__ == "__main__":
    main()
