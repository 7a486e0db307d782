"""How near programs that only move memory come to the speed of a copy.

A program's bandwidth is the bytes that must be moved for it (`programs.py`) over the device's time for one call. Its
share is that over the bandwidth of `copy_` of as many bytes, read and written ones together, measured in turns with it.
Times are between CUDA events around several calls in a row, divided by their number: medians over rounds. The device is
kept waiting until the host has handed all calls over, so what the host does for a call is in no figure.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from .programs import PROGRAMS, Maker

#: What every program is to reach.
ENOUGH = 0.85
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CALLS, ROUNDS = 8, 7
CYCLES = 2_000_000_000  # of a device's clock in a second, and more than any has

Figures = dict[str, float]
COMPILERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "Dovetail": lambda fn: importlib.import_module("dovetail").compile(fn, fullgraph=True),
    "torch.compile": torch.compile,
}


def measure(name: str, dtype: torch.dtype, compilers: Sequence[str]) -> dict[str, Figures]:
    """Figures of each compiler, and under "copy": `us` of a call, `bytes`, `share` of the copy's bandwidth, and where
    results are no random numbers `error`, the largest difference from eager's relative to their largest value."""
    calls, samples, work = {}, {}, None
    for compiler, compiled in {"eager": lambda fn: fn, **{c: COMPILERS[c] for c in compilers}}.items():
        torch.manual_seed(0)
        work = PROGRAMS[name](Maker(dtype))
        calls[compiler] = functools.partial(compiled(work.fn), *work.args)
        calls[compiler]()  # optimizers make their states in it
        samples[compiler] = sample(calls[compiler]())
    assert work is not None
    source, target = (torch.empty(work.nbytes // 2, dtype=torch.uint8, device="cuda") for _ in range(2))
    seconds = in_turns({name: calls[name] for name in compilers} | {"copy": lambda: target.copy_(source)})
    figures = {}
    for contender, taken in seconds.items():
        found = {"us": 1e6 * taken, "bytes": float(work.nbytes), "share": seconds["copy"] / taken}
        compared = not work.random and contender in compilers
        figures[contender] = found | ({"error": difference(samples[contender], samples["eager"])} if compared else {})
    return figures


def sample(results: Any) -> list[Tensor]:
    """Some elements of each result, as a copy."""
    tensors = results if isinstance(results, tuple) else (results,)
    flat = (t.detach().flatten() for t in tensors)
    return [t[:: max(1, t.numel() // 10**5)].double().cpu() for t in flat]


def difference(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest, relative to what is largest."""
    pairs = zip(found, expected, strict=True)
    return max(float((f - e).abs().max() / e.abs().max()) for f, e in pairs)


def in_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of the device's time that each takes."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    waits = {name: _host_seconds(call) for name, call in calls.items()}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(_device_seconds(call, waits[name]))
    return {name: statistics.median(found) for name, found in times.items()}


def _host_seconds(call: Callable[[], Any]) -> float:
    """How long the host needs at most to hand the calls over; what is recorded or compiled later is done first."""
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _device_seconds(call: Callable[[], Any], wait: float) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(2 * wait * CYCLES))
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / CALLS


# ---------------------------------------------------------------- shown


def table(results: dict[str, dict[str, dict[str, Figures]]], compilers: Sequence[str]) -> Table:
    """One row a program, a block of columns for each type; `results` by program, type and compiler."""
    columns = [f"{dtype} {head}" for dtype in DTYPES for head in ("MB", "copy TB/s", *compilers)]
    made = Table(title="Bandwidth: microseconds of a call, and the share of a copy's", title_justify="left")
    made.add_column("program", no_wrap=True)
    for column in (*columns, "error"):
        made.add_column(column.replace(" ", "\n", 1), justify="right")
    for name, row in results.items():
        cells = [cell for dtype in DTYPES for cell in cells_of(row.get(dtype, {}), compilers)]
        errors = [f["error"] for figures in row.values() for f in figures.values() if "error" in f]
        made.add_row(name, *cells, f"{max(errors):.0e}" if errors else "")
    return made


def cells_of(figures: dict[str, Figures], compilers: Sequence[str]) -> list[str]:
    copy = figures.get("copy")
    if copy is None:
        return ["failed", "", *("" for _ in compilers)]
    cells = [f"{copy['bytes'] / 1e6:.0f}", f"{copy['bytes'] / copy['us'] / 1e6:.2f}"]
    for compiler in compilers:
        share = figures[compiler]["share"]
        colour = "green" if share >= ENOUGH else "red"
        cells.append(f"{figures[compiler]['us']:.0f} [{colour}]{share:.0%}[/{colour}]")
    return cells


def summary(results: dict[str, dict[str, dict[str, Figures]]], compiler: str) -> str:
    """Which programs fall short, the furthest first."""
    shares = {
        f"{name} in {dtype}": figures[compiler]["share"]
        for name, row in results.items() for dtype, figures in row.items() if compiler in figures
    }  # fmt: skip
    short = sorted((share, what) for what, share in shares.items() if share < ENOUGH)
    listed = "; ".join(f"{what}: {share:.0%}" for share, what in short)
    enough = f"{len(shares) - len(short)} of {len(shares)} programs reach {ENOUGH:.0%} of a copy's bandwidth"
    return f"{compiler}: {enough}" + (f". Not: {listed}" if short else "")
