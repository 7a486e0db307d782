"""The measurements themselves; each runs in the process that calls it and returns plain numbers."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree

from .contenders import Contender, Program
from .training import TrainingStep

Call = Callable[[], Any]


def cold(contender: Contender, fn: Program, inputs: tuple[Any, ...]) -> float:
    """Seconds from before the compiler's import to the first result; torch, model and inputs are there already."""
    start = time.perf_counter()
    compiled = contender.compile(fn)
    with torch.no_grad():
        compiled(*inputs)
    return time.perf_counter() - start


def interleaved(calls: Sequence[Call], rounds: int, slice_seconds: float = 0.02) -> list[list[float]]:
    """Seconds a call, for each of `calls`, one figure a round.

    In every round each call runs for about `slice_seconds`, one after the other and starting with another one each
    time, so that whatever else the machine does falls on all of them alike.
    """
    counts = [max(1, math.ceil(slice_seconds / max(_once(call), 1e-7))) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for k in range(len(calls)):
                which = (turn + k) % len(calls)
                times[which].append(_repeat(calls[which], counts[which]))
    finally:
        gc.enable()
    return times


def _once(call: Call) -> float:
    call()
    call()
    return _repeat(call, 3)


def _repeat(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def speedup(base: Sequence[float], other: Sequence[float]) -> float:
    """How many times faster `other` is: the median over rounds of the ratio within a round."""
    return median(b / o for b, o in zip(base, other, strict=True))


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, in order; `ModelOutput`s are mappings that pytree may not know."""
    if not isinstance(value, (torch.Tensor, tuple, list)) and hasattr(value, "values"):
        value = list(value.values())
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def outcome(program: Program, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors that a program computes; of a training step, the loss and the gradients."""
    if isinstance(program, TrainingStep):
        return program.gradients(*inputs)
    with torch.no_grad():
        return tensors(program(*inputs))


def forward(program: Program) -> Program:
    """The part of a program whose graphs are counted."""
    return program.forward if isinstance(program, TrainingStep) else program


def reference(fn: Program, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """The outcome in float64."""
    wide = copy.deepcopy(fn).double() if isinstance(fn, (torch.nn.Module, TrainingStep)) else fn
    return outcome(wide, tuple(x.double() if torch.is_floating_point(x) else x for x in inputs))


def largest_error(result: Any, exact: Sequence[torch.Tensor]) -> float:
    """The largest absolute difference, relative to the largest exact value of the same output."""
    worst = 0.0
    for got, want in zip(tensors(result), exact, strict=True):
        if got.shape != want.shape:
            raise AssertionError(f"shape {tuple(got.shape)} instead of {tuple(want.shape)}")
        scale = want.abs().max().item() or 1.0
        worst = max(worst, (got.double() - want.double()).abs().max().item() / scale)
    return worst


def step_memory(fn: Program, inputs: tuple[Any, ...]) -> int:
    """Bytes of tensors that one warm call needs beyond model and inputs, at its peak.

    PyTorch's profiler reports each allocation and release of tensor memory. The process's resident set would also
    count memory that a compiler has freed but that the C library has not returned, which a later allocation
    may or may not reuse. Tensors that the compiled program keeps between calls count in full.
    """
    gc.collect()
    before = _live_storages()
    with torch.no_grad():
        for _ in range(3):
            fn(*inputs)
        gc.collect()
        held = sum(size for pointer, size in _live_storages().items() if pointer not in before)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            fn(*inputs)
    return _peak(profiler) + held


def _peak(profiler: profile) -> int:
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(itertools.accumulate((nbytes for _, nbytes in changes), initial=0))


def _live_storages() -> dict[int, int]:
    """Address and size of the memory behind every tensor that Python can see and that has any."""
    storages = {}
    for candidate in gc.get_objects():
        if type(candidate) in (torch.Tensor, torch.nn.Parameter) and candidate.device.type == "cpu":
            with contextlib.suppress(RuntimeError, NotImplementedError):  # wrappers and sparse tensors have none
                storage = candidate.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return storages
