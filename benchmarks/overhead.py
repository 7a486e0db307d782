"""What a call costs when the work is nothing: `x + 1` on 4x8 floats, in microseconds."""

from __future__ import annotations

from statistics import median

import torch

from . import measure
from .contenders import CONTENDERS, EAGER
from .registry import build


def call_overhead(contenders: list[str], rounds: int = 41) -> dict[str, dict[str, float]]:
    """For each contender: `us` a call, and `ratio` to eager's (the median of the rounds' ratios)."""
    fn, inputs = build("add-one")
    names = [EAGER.name, *contenders]
    programs = [CONTENDERS[name].compile(fn) for name in names]
    with torch.no_grad():
        times = measure.interleaved([lambda p=program: p(*inputs) for program in programs], rounds, slice_seconds=0.01)
    ratios = [median(t / base for t, base in zip(times[i], times[0])) for i in range(len(names))]
    return {name: {"us": median(times[i]) * 1e6, "ratio": ratios[i]} for i, name in enumerate(names)}
