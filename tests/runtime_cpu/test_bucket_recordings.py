"""A recording that is replayed bucket by bucket, on a device that only notes what it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dovetail.ir.launch import GraphFacts
from dovetail.runtime.gpu.graphs import BucketRecorder, _Recording, _Result

BUCKETS = (2, 0), (3,), (1,)
ENDS = [1, 1, 3]  # graphs up to the end of each bucket: nothing is launched for the second one


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    facts = GraphFacts(torch.device("cpu"), later=((0,), ()))
    made = BucketRecorder(lambda *inputs: iter([["plain"]]), facts, print, "title", BUCKETS)
    made.events = []
    graphs: Any = [SimpleNamespace(replay=lambda k=k: made.events.append(k)) for k in range(3)]
    results = [_Result(constant=value) for value in "abcd"]
    none = torch.empty(0)
    made.recordings[()] = _Recording(graphs, {0: X.data_ptr()}, {}, None, results, {}, none, frozenset(), ENDS)
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
    recorder.recordings[()].places[0] = x.data_ptr()
    recorder.recordings[()].__post_init__()
    steps = recorder(x)
    next(steps)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        next(steps)
    steps = recorder(x)
    next(steps), next(steps), x.add_(1)
    assert next(steps) == ["d"]
