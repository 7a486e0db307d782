"""Recordings of programs that give their results in buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dovetail.ir.kernel import Buckets
from dovetail.ir.launch import GraphFacts
from dovetail.runtime.call.versions import unchanged, versions
from dovetail.runtime.gpu.graphs import Call, Recorder
from dovetail.runtime.gpu.pools import Overwritten
from dovetail.runtime.gpu.recordings import Recording, Unfinished, handed_out


class BucketRecorder(Recorder):
    """Of a program that gives its results in buckets: so do its calls, and each bucket has graphs of its own. Nobody
    else replays them while such a call is under way."""

    def __init__(
        self, call: Call, facts: GraphFacts, report: Callable[[str], None], title: str, buckets: Buckets
    ) -> None:  # fmt: skip
        super().__init__(call, facts, report, title)
        self.buckets = buckets

    def __call__(self, *inputs: Any) -> Iterator[list]:
        if self.off or torch.cuda.is_current_stream_capturing() or not self.lock.acquire(blocking=False):
            yield from self.call(*inputs)
            return
        try:
            yield from self.run([*inputs])
        finally:
            self.lock.release()

    def aside(self, inputs: list) -> Iterator[Sequence[Any]]:
        steps: Any = self.call(*inputs)
        for _ in self.buckets:
            yield self.counted(lambda: next(steps))

    def results(self, given: list, graphs: Unfinished, taken: Overwritten | None = None) -> Sequence[Any]:
        found: list[Any] = []
        for bucket in self.call(*given):
            found += bucket
            graphs.ends.append(len(graphs.made))
        return found

    def replay(self, recording: Recording, inputs: list) -> Iterator[list]:
        self.begin(recording, inputs)
        launched = given = 0
        needed: list[torch.Tensor] = []
        seen: list[int] = []
        for number, (bucket, end) in enumerate(zip(self.buckets, recording.ends, strict=True)):
            unchanged(needed, seen)
            self.launch(recording, launched, end)
            launched, first, given = end, given, given + len(bucket)
            if given == len(recording.results):
                self.end(recording, inputs)
            else:  # what is copied is not the caller's
                needed = [inputs[k] for k in self.facts.later[number] if k in recording.places]
                seen = versions(needed)
            yield handed_out(recording.results[first:given], inputs)
