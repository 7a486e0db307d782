"""What the runs of `dovetail doctor` amount to: whether each gives what eager mode gives."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from dovetail.commands.ladder import DECOMPOSED, LADDER, WRITTEN, Noted, Run
from dovetail.diagnostics.values import TOLERANCE, differs, off
from dovetail.ir.devices import HOST
from dovetail.ir.records import dataclass

#: How far all parameters together may be off in the end. One alone may be far: Adam makes whole steps of gradients that
#: are nothing but rounding.
OF_STATE = 0.01
#: Units in the last place of the largest gradients that any other may be off: they are sums of such.
OF_GRADIENTS = 100


@dataclass
class Findings:
    """Runs by the names of their ways; `wrong` says of each what is not as in eager mode."""

    eager: Run
    again: Run | None = None
    runs: dict[str, Run] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    modules: int = 0  # that are compiled although the program does not

    def add(self, name: str, run: Run) -> str:
        self.runs[name] = run
        self.wrong[name] = run.failure or difference(self.eager, self.again, run)
        return self.wrong[name]

    @property
    def noise(self) -> str:
        """What differs between two runs in eager mode."""
        return "" if self.again is None else self.again.failure or difference(self.eager, None, self.again)

    @property
    def first(self) -> str:
        """The first of the ladder's ways that is wrong."""
        return next((way.name for way in LADDER if self.wrong.get(way.name)), "")

    @property
    def stage(self) -> str:
        """What is to blame for it: what its run adds to those before."""
        if self.first == WRITTEN.name and self.wrong.get(DECOMPOSED.name):
            return DECOMPOSED.stage
        return next((way.stage for way in LADDER if way.name == self.first), "")


def seconds(one: Noted) -> tuple[float, float, float]:
    """Of the first calls of all functions together, the sum of the functions' median later calls, and the longest
    median time from one call of a function to its next."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for call in one.calls:
        by_name.setdefault(call["name"], []).append(call)
    times = {name: [call["seconds"] for call in calls] for name, calls in by_name.items()}
    begun = {name: [call["began"] for call in calls] for name, calls in by_name.items()}
    between = [[after - before for before, after in zip(b, b[1:], strict=False)] for b in begun.values() if len(b) > 2]
    return (
        sum(t[0] for t in times.values()), sum(map(_later, filter(lambda t: len(t) > 1, times.values()))),
        max(map(_later, between), default=0.0),
    )  # fmt: skip


def _later(times: Sequence[float]) -> float:
    """The median of the second half."""
    return statistics.median(times[len(times) // 2 :])


def difference(eager: Run, again: Run | None, run: Run) -> str:
    """What differs first from eager mode by more than rounding; empty if nothing does."""
    if [one.rank for one in eager.noted] != [one.rank for one in run.noted]:
        return f"other ranks call something compiled: {', '.join(one.rank for one in run.noted)}"
    twins = again.noted if again is not None and len(again.noted) == len(eager.noted) else [None] * len(eager.noted)
    for want, twin, got in zip(eager.noted, twins, run.noted, strict=True):
        if words := _process(want, twin, got):
            return f"rank {want.rank}: {words}" if len(eager.noted) > 1 else words
    return f"it ends with {run.code} instead of {eager.code}" if run.code != eager.code else ""


def _process(eager: Noted, again: Noted | None, run: Noted) -> str:
    twins = again.calls if again is not None else []
    for k, (want, got) in enumerate(zip(eager.calls, run.calls, strict=False)):
        words = _call(want, got, twins[k] if k < len(twins) else None, k)
        if words:
            return f"call {k + 1}, of {want['name']}: {words}"
    if len(eager.calls) != len(run.calls):
        return f"{len(run.calls)} calls instead of {len(eager.calls)}"
    noise = again.gradients if again is not None else []
    words = _tensors(eager.gradients, run.gradients, noise, None, len(run.calls), _units(eager.gradients))
    if words:
        return f"gradients at the end: {words}"
    far = off(_joined(eager.state), _joined(run.state))
    return f"the parameters at the end are off by {far:.2g}" if far > OF_STATE else ""


def _joined(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    found = [t.double() for t in parameters if t.is_floating_point()]
    return torch.cat(found or [torch.zeros(0, device=HOST)])


def _call(want: Mapping[str, Any], got: Mapping[str, Any], twin: Mapping[str, Any] | None, before: int) -> str:
    if want["error"] != got["error"]:
        return f"it raises {_short(got['error'])} instead of {_short(want['error'])}"
    noise, exact = (twin["results"], twin["exact"]) if twin is not None else ([], None)
    return _tensors(want["results"], got["results"], noise, exact, before)


def _short(error: str) -> str:
    return error.splitlines()[0] if error else "nothing"


def _tensors(
    want: Sequence[torch.Tensor], got: Sequence[torch.Tensor], again: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None, before: int, least: Sequence[float] = (),
) -> str:  # fmt: skip
    """`before` calls came before, whose rounding may have grown since; `again` is eager's second run; what is no more
    than `least` off is right in any case."""

    def allowed(k: int) -> float:
        grown = max(TOLERANCE.get(want[k].dtype, 1e-3) * min(1 + before, 10), least[k] if least else 0.0)
        return max(grown, 3 * off(want[k], again[k])) if len(again) == len(want) else grown

    return differs(want, got, exact, allowed)


def _units(gradients: Sequence[torch.Tensor]) -> list[float]:
    """What each may be off, relative to its own size. One that is nothing but rounding, as that of the bias of an
    attention's keys, is as far from zero as the last place of the others."""
    sizes = [float(t.double().norm()) if t.is_floating_point() else 0.0 for t in gradients]
    largest = max(sizes, default=0.0)
    places = [torch.finfo(t.dtype).eps if t.is_floating_point() else 0.0 for t in gradients]
    return [OF_GRADIENTS * place * largest / size if size else 0.0 for place, size in zip(places, sizes, strict=True)]
