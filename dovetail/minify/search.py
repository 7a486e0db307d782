"""Delta debugging (Zeller and Hildebrandt, 2002) over a captured graph, its sizes and its types."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from dovetail.ir.records import dataclass
from dovetail.minify.candidate import (
    Candidate,
    bypassed,
    ending_at,
    with_plain_inputs,
    with_smaller_sizes,
    without,
)
from dovetail.minify.trial import TrialEnding


@dataclass
class Search:
    """`ends` runs a candidate. What fails as `wanted` does, and is smaller, takes the place of what there was."""

    ends: Callable[[Candidate], TrialEnding]
    wanted: TrialEnding
    until: float
    told: Callable[[Candidate, int], None] = lambda candidate, trials: None
    trials: int = field(default=0, init=False)

    def smallest(self, found: Candidate) -> Candidate:
        """The smallest that was found until time is up."""
        while self.in_time:
            before = found
            found = self._shortest(found)
            found = self._fewest(found)
            for smaller in (bypassed, with_smaller_sizes, with_plain_inputs):
                found = self._while(found, smaller)
            if found is before:
                break
        return found

    @property
    def in_time(self) -> bool:
        return time.monotonic() < self.until

    def fails(self, candidate: Candidate | None) -> bool:
        """Does it fail in the same way, where PyTorch runs it?"""
        if candidate is None or not self.in_time or not candidate.calls:
            return False
        try:
            _ = candidate.values
        except Exception:  # what is left is no program
            return False
        self.trials += 1
        if self.ends(candidate).kind != self.wanted.kind:
            return False
        self.told(candidate, self.trials)
        return True

    def _shortest(self, found: Candidate) -> Candidate:
        """End where the failure first shows: bisected."""
        calls, low, high = found.calls, 0, len(found.calls) - 1
        best = found
        while low <= high and self.in_time:
            middle = (low + high) // 2
            ends = (ending_at(found, node) for node in calls[middle : high + 1])
            shorter = next((c for c in ends if c is not None), None)
            if shorter is not None and shorter.size < best.size and self.fails(shorter):
                best, high = shorter, middle - 1
            else:
                low = middle + 1
        return best

    def _fewest(self, found: Candidate) -> Candidate:
        """Leave out runs of operators, long ones first."""
        length = max(1, len(found.calls) // 2)
        while length and self.in_time:
            start = 0
            while start < len(found.calls) and self.in_time:
                smaller = without(found, set(found.calls[start : start + length]))
                if smaller is not None and smaller.size < found.size and self.fails(smaller):
                    found = smaller
                else:
                    start += length
            length //= 2
        return found

    def _while(self, found: Candidate, smaller: Callable[[Candidate], Iterator[Candidate]]) -> Candidate:
        """One step after the other, as long as one of them fails still."""
        seen: set[Any] = set()
        while self.in_time:
            tried = ((str(c.module.graph), _inputs(c), c) for c in smaller(found))
            better = next((c for *key, c in tried if not _met(tuple(key), seen) and self.fails(c)), None)
            if better is None:
                return found
            found = better
        return found


def _inputs(candidate: Candidate) -> str:
    return str([(tuple(t.shape), t.stride(), t.dtype, t.requires_grad) if hasattr(t, "shape") else t
                for t in candidate.inputs])  # fmt: skip


def _met(key: Any, seen: set[Any]) -> bool:
    known = key in seen
    seen.add(key)
    return known
