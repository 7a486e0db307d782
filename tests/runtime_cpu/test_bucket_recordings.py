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
    made = BucketRecorder(lambda *inputs: iter([["plain"]]), GraphFacts(torch.device("cpu")), print, "title", BUCKETS)
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
