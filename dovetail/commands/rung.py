"""One process of a program that `dovetail doctor` runs, and what it notes down: calls, results, seconds, memory.

`begin` runs as soon as the program has imported torch (`startup/sitecustomize.py`) and puts a `RunRecorder` in the
place of `dovetail.compile` and PyTorch's own. Random numbers begin at one seed, so that runs can be compared call by
call. What was noted is written when the process ends.

    _DOVETAIL_RUNG={"folder": ..., "compile": {"backend": "eager"}, "exact": false, "modules": null, "doctor": 4711}
"""

from __future__ import annotations

import atexit
import copy
import functools
import inspect
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from types import MethodType
from typing import Any

import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import dovetail
from dovetail import api
from dovetail.diagnostics.values import doubled, tensors
from dovetail.ir.callers import users_line
from dovetail.ir.devices import HOST
from dovetail.ir.records import dataclass

VARIABLE = "_DOVETAIL_RUNG"
MOST_CALLS = 64  # of which results are kept, for each function
MOST_EXACT = 16  # of which float64 results are computed
MOST_ELEMENTS = 200_000  # of a result that are kept
MOST_OF_STATE = 5_000  # of a parameter
#: Modules that only hand the call on; what is inside them is compiled.
WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")


@dataclass
class RecordedCall:
    """One call of something compiled; `exact` are its results in float64, where that could be had."""

    name: str
    place: str
    began: float
    seconds: float = 0.0
    results: list[torch.Tensor] = field(default_factory=list)
    exact: list[torch.Tensor] | None = None
    error: str = ""


class RunRecorder:
    """Stands in for `compile`. What it returns is compiled in another `way` than the program says, and recorded.

    `modules`: None to record what the program compiles; a number to compile as many modules as it calls by itself.
    """

    def __init__(self, way: dict[str, Any], exact: bool = False, modules: int | None = None) -> None:
        self.way, self.exact, self.modules = way, exact, modules
        self.calls: list[RecordedCall] = []
        self.called: Counter[str] = Counter()
        self.compile = api.compile
        self.by_pytorch: set[str] = set()  # what the program compiles with PyTorch's
        self.inside = False  # a recorded call, whose own calls are part of it
        self.within = False  # a call of a module that is not compiled
        self.spent = 0.0  # seconds in recorded calls
        self.forked: Path | None = None  # in a fork: the file that says that it calls something, too
        self.states: dict[int, torch.nn.Module] = {}
        self.alone: dict[int, tuple[torch.nn.Module, list[RecordedCall]]] = {}  # modules that the program calls
        self.steps: list[RecordedCall] = []  # of optimizers, outside of what is recorded
        self.call = torch.nn.Module.__call__

    # ------------------------------------------------------------ in the place of compile

    def dovetails(self, model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda fn: self.dovetails(fn, **options)
        made = self.compile(model, **self.options(options))
        if isinstance(made, torch.nn.Module):
            return self.module(made)
        return self.function(made, _name(model), _modules(model))

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The program's, and where they differ this way's."""
        return {**options, "fullgraph": False, **self.way} if self.way else options

    def pytorchs(self, model: Any = None, **options: Any) -> Any:
        """With the arguments of PyTorch's compile: its default backend becomes ours, whose options are others."""
        if model is None:
            return lambda fn: self.pytorchs(fn, **options)
        self.by_pytorch.add(_name(model))
        taken = {name: options[name] for name in ("fullgraph", "dynamic", "mode", "disable") if name in options}
        backend = options.get("backend")
        return self.dovetails(model, backend=None if backend == "inductor" else backend, **taken)

    def function(self, made: Any, name: str, modules: list[torch.nn.Module]) -> Any:
        self.note(*modules)

        @functools.wraps(made)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.recorded(made, args, kwargs, name)

        return call

    def module(self, made: torch.nn.Module) -> torch.nn.Module:
        """`made` itself, as an instance of a subclass whose calls are recorded."""
        cls: Any = type(made)
        body = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}

        def call(itself: Any, *args: Any, **kwargs: Any) -> Any:
            return self.recorded(functools.partial(cls.__call__, itself), args, kwargs, cls.__qualname__, itself)

        made.__class__ = type(cls)(cls.__name__, (cls,), {**body, "__call__": call})
        self.note(made)
        return made

    def note(self, *modules: torch.nn.Module) -> None:
        """Modules whose parameters are looked at in the end."""
        self.states |= {id(module): module for module in modules}

    def recorded(self, call: Any, args: Any, kwargs: Any, name: str, copied: Any = None) -> Any:
        """`copied`: what is copied for a call in float64, if not the `call`."""
        if dovetail.is_compiling() or self.inside:  # part of what is being compiled, or called, around it
            return call(*args, **kwargs)
        self.note(*(value for value in (*args, *kwargs.values()) if isinstance(value, torch.nn.Module)))
        self.called[name] += 1
        exact = self.exact and self.called[name] <= MOST_EXACT
        self.inside = True
        try:
            results = self.in_float64(copied or call, args, kwargs) if exact else None
            made = RecordedCall(name, _place(), 0.0, exact=results)
            self.calls.append(made)
            if self.forked is not None:
                self.forked.touch()
            return self.timed(call, args, kwargs, made, self.called[name])
        finally:
            self.inside = False
            self.spent += made.seconds

    def timed(self, call: Any, args: Any, kwargs: Any, made: RecordedCall, number: int) -> Any:
        made.began = time.perf_counter()
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            made.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            _wait()
            made.seconds = time.perf_counter() - made.began
        if number <= MOST_CALLS:
            made.results = kept(result)
        return result

    def in_float64(self, call: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
        """What the call gives on copies, which changes nothing that the program sees; None where that cannot be had."""
        try:
            with torch.random.fork_rng():
                inner = copy.deepcopy(call)
                inner = inner.double() if isinstance(inner, torch.nn.Module) else inner
                given = doubled(copy.deepcopy((args, kwargs)))
                return kept(inner(*given[0], **given[1]))
        except Exception:  # of whatever kind: tensors that cannot be copied, operators without float64
            return None

    # ------------------------------------------------------------ what the program does not compile

    def watch(self) -> None:
        """Note calls of modules that are not part of anything compiled, and optimizers' steps.

        Where there are `modules` to compile, each is as soon as it is called, as by `module.compile()`; then nothing
        is watched any more.
        """
        call = self.call

        def watching(module: Any, *args: Any, **kwargs: Any) -> Any:
            part = self.inside or self.within or type(module).__name__ in WRAPPERS or dovetail.is_compiling()
            if part or not _has_state(module):
                return call(module, *args, **kwargs)
            if self.modules is not None:
                try:
                    torch.nn.Module.__call__ = call  # type: ignore[method-assign]  # what is compiled sees PyTorch's
                    return self.compiled(module)(*args, **kwargs)
                finally:
                    torch.nn.Module.__call__ = watching if self.modules else call  # type: ignore[method-assign]
            calls = self.alone.setdefault(id(module), (module, []))[1]
            calls.append(RecordedCall(type(module).__qualname__, _place(), 0.0))
            self.within, before = True, self.spent
            try:
                return self.timed(functools.partial(call, module), args, kwargs, calls[-1], len(calls))
            finally:
                self.within = False
                calls[-1].seconds -= self.spent - before

        if self.modules is None:
            self._watch_optimizers()
        if self.modules != 0:
            torch.nn.Module.__call__ = watching  # type: ignore[method-assign]

    def compiled(self, module: Any) -> Callable[..., Any]:
        """What calls it compiled, now and whenever the program calls it."""
        if module._compiled_call_impl is None:
            made = self.compile(module._call_impl, **self.options({}))

            def recorded(*args: Any, **kwargs: Any) -> Any:
                return self.recorded(made, args, kwargs, type(module).__qualname__, module)

            module._compiled_call_impl = recorded
            self.note(module)
            self.modules = (self.modules or 0) - 1
        return module._compiled_call_impl

    def _watch_optimizers(self) -> None:
        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not self.inside:
                self.steps.append(RecordedCall(f"{type(optimizer).__qualname__}.step", _place(), time.perf_counter()))

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not self.inside and self.steps:
                self.steps[-1].seconds = time.perf_counter() - self.steps[-1].began

        register_optimizer_step_pre_hook(before)
        register_optimizer_step_post_hook(after)

    # ------------------------------------------------------------ what is written

    def told(self) -> dict[str, Any]:
        failure = getattr(sys, "last_value", None)  # of what the program did not handle
        modules = self.states.values() if self.calls else [module for module, _ in self.alone.values()]
        parameters = list({id(p): p for m in modules for p in m.parameters() if p.requires_grad}.values())
        return {
            "calls": [vars(call) for call in self.calls], "alone": [list(map(vars, c)) for _, c in self.alone.values()],
            "steps": [vars(call) for call in self.steps],
            "gradients": kept([p.grad for p in parameters], MOST_OF_STATE), "state": kept(parameters, MOST_OF_STATE),
            "failure": "" if failure is None else f"{type(failure).__name__}: {failure}".splitlines()[0],
            "memory": memory(), "on_gpu": torch.cuda.is_initialized(),
            "by_pytorch": sorted(self.by_pytorch & set(self.called)),
        }  # fmt: skip


def _name(model: Any) -> str:
    if isinstance(model, MethodType) and isinstance(model.__self__, torch.nn.Module):
        return type(model.__self__).__qualname__
    name: str = getattr(model, "__qualname__", None) or type(model).__qualname__
    return name.rpartition("<locals>.")[2]


def _modules(fn: Any) -> list[torch.nn.Module]:
    """Those that a function refers to."""
    found: list = [getattr(fn, "__self__", None)]
    try:
        known = inspect.getclosurevars(inspect.unwrap(getattr(fn, "__func__", fn)))
        found += [*known.nonlocals.values(), *known.globals.values()]
    except (TypeError, ValueError):  # no function of Python's; a cell without a value
        pass
    return [value for value in found if isinstance(value, torch.nn.Module)]


def _has_state(module: torch.nn.Module) -> bool:
    return next(module.parameters(), None) is not None or next(module.buffers(), None) is not None


def _place() -> str:
    return "{}:{}".format(*users_line())


def kept(result: Any, most: int = MOST_ELEMENTS) -> list[torch.Tensor]:
    """Copies of the tensors in a result, on the CPU; of long ones elements at equal distances."""
    return list(_kept(result, most))


def _kept(result: Any, most: int) -> Iterator[torch.Tensor]:
    for t in tensors(dict(result) if hasattr(result, "keys") else result):  # libraries have dictionaries of their own
        flat = (t.detach() if t.layout is torch.strided else t.detach().to_dense()).reshape(-1)
        yield flat[:: max(1, -(-flat.numel() // most))].to(HOST, copy=True)


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def memory() -> float:
    """MiB at the peak: of the GPU if it was used, else of the process since torch is there."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - _BEFORE


_BEFORE = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def begin() -> None:
    told = json.loads(os.environ[VARIABLE])
    recorder = RunRecorder(told["compile"], told["exact"], told["modules"])
    seed = int(os.environ.get("RANK", "0"))
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    for module in (dovetail, api):
        module.compile = recorder.dovetails  # type: ignore[attr-defined]
    setattr(torch, "compile", recorder.pytorchs)  # noqa: B010
    recorder.watch()
    folder, started = Path(told["folder"]), os.getpid()

    def forked() -> None:
        recorder.forked = folder / f"{os.getpid()}.fork"

    def write() -> None:
        if os.getpid() == started:  # calls of a fork cannot be told from those before it
            rank = os.environ.get("RANK") or ("main" if os.getppid() == told["doctor"] else "")
            torch.save({"rank": rank, **recorder.told()}, folder / f"{rank}_{started}.pt")

    os.register_at_fork(after_in_child=forked)
    atexit.register(write)
