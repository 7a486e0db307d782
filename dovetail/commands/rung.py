"""One run of a program for `dovetail doctor`, in a process of its own.

    python -m dovetail.commands.rung OUT WAY SCRIPT [ARGS ...]

What `dovetail.compile` makes is recorded: results, seconds, memory; then what the compiler has to say about it. The
program's random numbers begin at one seed, so that runs can be compared call by call.
"""

from __future__ import annotations

import copy
import functools
import random
import resource
import runpy
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

import dovetail
from dovetail import api
from dovetail.codes import CODES
from dovetail.diagnostics.breaks import BREAKS
from dovetail.diagnostics.times import RECORDS
from dovetail.diagnostics.values import doubled, tensors
from dovetail.runtime.entry_policy import LISTENERS

#: What `compile` is given instead of what the program gives. `disable`: nothing is compiled.
WAYS: dict[str, dict[str, Any]] = {
    "eager": {"disable": True},
    "eager again": {"disable": True},
    "capture": {"backend": "eager"},
    "capture+gradients": {"backend": "aot_eager"},
    "as written": {},
    "dynamic=True": {"dynamic": True},
    "dynamic=False": {"dynamic": False},
}
REFERENCE = "eager again"  # runs each call in float64 as well
MOST_CALLS = 64  # of which results are kept, for each function
MOST_ELEMENTS = 200_000  # of a result that are kept


@dataclass
class Call:
    """One call of something compiled; `exact` are its results in float64, where that could be had."""

    name: str
    seconds: float
    results: list[torch.Tensor] = field(default_factory=list)
    exact: list[torch.Tensor] | None = None
    error: str = ""


class Recorder:
    """Takes the place of `dovetail.compile`."""

    def __init__(self, way: str) -> None:
        self.instead, self.exact = WAYS[way], way == REFERENCE
        self.calls: list[Call] = []
        self.called: Counter[str] = Counter()
        self.compile = api.compile
        self.parameters: list[torch.nn.Parameter] = []  # of the modules, for their gradients at the end
        self.inside = False  # a call in float64, whose own calls are not the program's

    def __call__(self, model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda fn: self(fn, **options)
        made = self.compile(model, **{**options, "fullgraph": False, **self.instead})
        if isinstance(made, torch.nn.Module):
            return self.module(made)
        return functools.wraps(made)(lambda *args, **kwargs: self.recorded(made, args, kwargs))

    def module(self, made: torch.nn.Module) -> torch.nn.Module:
        """`made` itself, as an instance of a subclass whose calls are recorded."""
        cls: Any = type(made)
        body = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}

        def call(itself: Any, *args: Any, **kwargs: Any) -> Any:
            return self.recorded(functools.partial(cls.__call__, itself), args, kwargs, itself)

        made.__class__ = type(cls)(cls.__name__, (cls,), {**body, "__call__": call})
        self.parameters += [p for p in made.parameters() if p.requires_grad]
        return made

    def recorded(self, call: Any, args: Any, kwargs: Any, module: torch.nn.Module | None = None) -> Any:
        if dovetail.is_compiling() or self.inside:  # part of what is being compiled around it
            return call(*args, **kwargs)
        name = type(module).__qualname__ if module is not None else getattr(call, "__qualname__", repr(call))
        exact = self._in_float64(call if module is None else module, args, kwargs) if self.exact else None
        start = time.perf_counter()
        made = Call(name, 0.0, exact=exact)
        self.calls.append(made)
        self.called[name] += 1
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            made.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            _wait()
            made.seconds = time.perf_counter() - start
        if self.called[name] <= MOST_CALLS:
            made.results = kept(result)
        return result

    def _in_float64(self, call: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
        """What the call gives on copies, which changes nothing that the program sees; None where that cannot be had."""
        self.inside = True
        try:
            with torch.random.fork_rng():
                inner = copy.deepcopy(call)
                inner = inner.double() if isinstance(inner, torch.nn.Module) else inner
                given = doubled(copy.deepcopy((args, kwargs)))
                return kept(inner(*given[0], **given[1]))
        except Exception:  # of whatever kind: tensors that cannot be copied, operators without float64
            return None
        finally:
            self.inside = False

    def gradients(self) -> list[torch.Tensor]:
        return kept([p.grad for p in self.parameters])


def kept(result: Any) -> list[torch.Tensor]:
    """Copies of the tensors in a result, on the CPU; of long ones elements at equal distances."""
    found = [t.detach() for t in tensors(_opened(result))]
    flat = [t.reshape(-1) if t.layout is torch.strided else t.to_dense().reshape(-1) for t in found]
    return [t[:: max(1, -(-t.numel() // MOST_ELEMENTS))].to("cpu", copy=True) for t in flat]


def _opened(result: Any) -> Any:
    """Results of libraries are dictionaries that pytree does not know."""
    return dict(result) if hasattr(result, "keys") else result


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def causes() -> list[dict[str, Any]]:
    """The graph breaks, the most frequent first."""
    return [
        {"code": s.code, "reason": s.reason, "count": s.count, "remedy": CODES[s.code].remedy,
         "place": s.place.excerpt() if s.place is not None else ""}
        for s in BREAKS.all()
    ]  # fmt: skip


def compilations() -> list[dict[str, Any]]:
    return [
        {"function": r.function, "place": r.place, "seconds": r.seconds, "outcome": r.outcome,
         "reason": r.reasons[0][0] if r.reasons else ""}
        for r in RECORDS.all()
    ]  # fmt: skip


def memory() -> float:
    """MiB at the peak: of the GPU if it was used, else of the process."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main(out: str, way: str, script: str, arguments: list[str]) -> int:
    recorder = Recorder(way)
    dovetail.compile = api.compile = recorder
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(0)
    sys.argv, code, failure = [script, *arguments], 0, ""
    before = memory()
    warned: list[str] = []
    LISTENERS.append(warned.append)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        traceback.print_exc()
        code, failure = 1, f"{type(error).__name__}: {error}".splitlines()[0]
    torch.save(
        {
            "calls": [vars(call) for call in recorder.calls], "gradients": recorder.gradients(), "code": code,
            "failure": failure, "causes": causes(), "compilations": compilations(), "warned": warned,
            "memory": memory(), "before": before,
        },
        out,
    )  # fmt: skip
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
