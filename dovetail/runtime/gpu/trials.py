"""Calls of libraries timed on the device, launched while it is kept waiting. What was found is kept on disk.

The shortest of several counts: other processes may use the device, and take their turns during one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.ir.trials import AnyTensor, TimedCall
from dovetail.runtime.gpu.graphs import aside
from dovetail.runtime.store import Store, default_folder

#: Calls that are timed one after the other, and the cycles that the device waits for until they are all launched.
CALLS, WAIT = 3, 1_000_000
Events = list[torch.cuda.Event]


def microseconds(trials: Sequence[TimedCall], device: torch.device) -> list[float] | None:
    """What each takes; None where the device is recording, or one of them fails."""
    if torch.cuda.is_current_stream_capturing():
        return None
    store, keys = Store(default_folder()), [_key(trial, device) for trial in trials]
    found = {key: json.loads(data) for key in keys if (data := store.get(key)) is not None}
    todo = {key: trial for key, trial in zip(keys, trials, strict=True) if key not in found}
    try:
        found |= _measured(todo, device)
    except RuntimeError:  # out of memory, or what the program will be told of
        return None
    for key in todo:
        store.put(key, json.dumps(found[key]).encode())
    return [found[key] for key in keys]


def _key(trial: TimedCall, device: torch.device) -> str:
    name, cudnn = torch.cuda.get_device_name(device), torch.backends.cudnn
    settings = cudnn.version(), cudnn.allow_tf32, cudnn.deterministic, torch.__version__
    return hashlib.sha256(f"trial {name} {settings} {trial}".encode()).hexdigest()


def _measured(trials: dict[str, TimedCall], device: torch.device) -> dict[str, float]:
    if not trials:
        return {}
    with torch.cuda.device(device), torch.no_grad(), _disable_current_modes(), torch._C.DisableTorchFunction():
        with torch._C._DisableAutocast(), aside(device, products=False):
            events = {key: _launched(trial, device) for key, trial in trials.items()}
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    return {key: min(a.elapsed_time(b) for a, b in pairwise(each)) * 1e3 for key, each in events.items()}


def _launched(trial: TimedCall, device: torch.device) -> Events:
    generator = torch.Generator(device).manual_seed(0)

    def made(value: Any) -> Any:
        if isinstance(value, AnyTensor):
            memory = torch.empty_strided(value.sizes, value.strides, dtype=value.dtype, device=device)
            return memory.uniform_(-1, 1, generator=generator)
        return list(map(made, value)) if isinstance(value, tuple) else value

    args = list(map(made, trial.args))
    trial.operator(*args)  # chooses its kernels
    events = [torch.cuda.Event(enable_timing=True) for _ in range(CALLS + 1)]
    torch.cuda._sleep(WAIT)
    events[0].record()
    for event in events[1:]:
        trial.operator(*args)
        event.record()
    return events
