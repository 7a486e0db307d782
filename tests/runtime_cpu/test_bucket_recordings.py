"""A recording that is replayed bucket by bucket, on a device that only notes what it is told."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dovetail.ir.launch import GraphFacts
from dovetail.runtime.gpu import device_scalars, graphs
from dovetail.runtime.gpu.bucket_graphs import BucketRecorder
from dovetail.runtime.gpu.pools import Pool
from dovetail.runtime.gpu.recordings import RecordedResult, Recording, Unfinished
from tests.runtime_cpu.simulated import Stream

BUCKETS = (2, 0), (3,), (1,)
ENDS = [1, 1, 3]  # graphs up to the end of each bucket: nothing is launched for the second one


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    facts = GraphFacts(torch.device("cpu"), later=((0,), ()))
    made = BucketRecorder(lambda *inputs: iter([["plain"]]), facts, print, "title", BUCKETS)
    made.events = []
    fakes: Any = [SimpleNamespace(replay=lambda k=k: made.events.append(k)) for k in range(3)]
    results = [RecordedResult(constant=value) for value in "abcd"]
    none = torch.empty(0)
    recordings = made.set_of((X,)).recordings
    recordings[()] = Recording(fakes, {0: X.data_ptr()}, {}, None, results, Pool(), {}, none, ENDS, {})
    return made


X = torch.ones(3)


def test_graphs_are_replayed_as_their_results_are_asked_for(recorder: Any) -> None:
    for bucket in recorder(X):
        recorder.events.append(bucket)
    assert recorder.events == [0, ["a", "b"], ["c"], 1, 2, ["d"]]


def test_others_do_without_it_as_long_as_a_call_is_under_way(recorder: Any) -> None:
    first = recorder(X)
    next(first)
    assert [*recorder(X)] == [["plain"]]
    first.close()
    assert [*recorder(X)] == [["a", "b"], ["c"], ["d"]]


def test_what_is_read_later_is_not_written_to(recorder: Any) -> None:
    x = X.clone()
    recorder.set_of((x,)).recordings[()].places[0] = x.data_ptr()
    recorder.set_of((x,)).recordings[()].__post_init__()
    steps = recorder(x)
    next(steps)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        next(steps)
    steps = recorder(x)
    next(steps), next(steps), x.add_(1)
    assert next(steps) == ["d"]


def test_a_recording_knows_where_each_bucket_ends(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program cuts it where the next bucket begins to launch."""
    monkeypatch.setattr(Unfinished, "begin", lambda made: made.made.append(SimpleNamespace(pool=lambda: None)))
    monkeypatch.setattr(Unfinished, "end", lambda made: None)

    def program(*inputs: Any) -> Any:
        yield ["a", "b"]
        yield ["c"]
        device_scalars.cut()
        device_scalars.cut()
        yield ["d"]

    recorder.call, made = program, Unfinished(None)
    made.begin()
    with device_scalars.kept_in(None, torch.empty(0), made.cut):
        assert recorder.results([X], made) == ["a", "b", "c", "d"]
    assert made.ends == ENDS


def test_the_first_call_counts_the_tables_of_all_parts(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not those of programs that hooks run in between."""
    monkeypatch.setattr(graphs, "aside", lambda device, products: nullcontext())
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def program(*inputs: Any) -> Any:
        for bucket in BUCKETS:
            device_scalars.table(torch.device("cpu"), [1, 2])
            yield list(bucket)

    recorder.call = program
    recorder.sets.clear()
    for _ in recorder(X):
        device_scalars.table(torch.device("cpu"), [1] * 7)
    assert recorder.words == 6
