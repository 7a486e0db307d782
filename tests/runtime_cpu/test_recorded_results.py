"""What a recording hands out lies in its pool: when is the memory free for the next replay?"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from dovetail.runtime.gpu.pools import Pool
from dovetail.runtime.gpu.recordings import RecordedResult, Recording, handed_out, recorded_result

POOL = torch.arange(6.0)


def recorded(*results: RecordedResult) -> Recording:
    none, graph = torch.empty(0), object()
    return Recording([graph], {}, {}, None, list(results), Pool(), {}, none, [], {})


def is_free(recording: Recording) -> bool:
    return not recording.handed.busy()


def column() -> RecordedResult:
    return recorded_result(POOL.view(2, 3)[:, 1], [])


def test_each_call_hands_out_a_tensor_of_its_own_over_the_memory() -> None:
    result = column()
    (one,), (other,) = handed_out([result], ()), handed_out([result], ())
    assert one is not other and one.data_ptr() == other.data_ptr() == POOL.data_ptr() + 4
    assert one.stride() == (3,) and one.tolist() == [1, 4]
    one.unsqueeze_(0).requires_grad_()
    assert handed_out([result], ())[0].shape == (2,) and not handed_out([result], ())[0].requires_grad


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t, lambda t: t.detach(), lambda t: t[0], lambda t: t.untyped_storage(), lambda t: t.numpy(),
        lambda t: [t.view(1, 2).t()], lambda t: (t.data, t.untyped_storage()), weakref.ref,
    ],
)  # fmt: skip
def test_it_is_in_use_as_long_as_anything_refers_to_it(use: Any) -> None:
    recording = recorded(column())
    assert is_free(recording)
    (tensor,) = handed_out(recording.results, ())
    assert not is_free(recording) and recording.handed.busy() == {0}
    kept = use(tensor)
    del tensor
    lasts = use is not weakref.ref
    assert is_free(recording) is not lasts
    del kept
    assert is_free(recording)


@pytest.mark.parametrize("use", [lambda t: t, lambda t: t.detach()[:1], lambda t: t.untyped_storage()])
def test_the_memory_outlives_the_recording(use: Any) -> None:
    value = torch.arange(3.0)
    memory, recording = weakref.ref(value), recorded(recorded_result(value, []))
    kept = use(handed_out(recording.results, ())[0])
    del value, recording
    gc.collect()
    assert memory() is not None
    del kept
    gc.collect()
    assert memory() is None


def test_a_copy_is_the_callers() -> None:
    result = column()
    result.copied = True
    (tensor,) = handed_out([result], ())
    assert is_free(recorded(result)) and tensor.tolist() == [1, 4] and tensor.data_ptr() != POOL.data_ptr() + 4


def test_nobody_takes_more_memory_than_there_is() -> None:
    (tensor,) = handed_out([column()], ())
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(100)


@pytest.mark.parametrize("made_in", [False, True])
@pytest.mark.parametrize("called_in", [False, True])
def test_inference_tensors_are_those_of_calls_in_inference_mode(made_in: bool, called_in: bool) -> None:
    with torch.inference_mode(made_in):
        recording = recorded(column())
    with torch.inference_mode(called_in):
        (tensor,) = handed_out(recording.results, ())
    assert tensor.is_inference() is called_in and not is_free(recording)
    del tensor
    assert is_free(recording)


def test_what_was_given_is_given_back() -> None:
    x = torch.ones(2)
    results = [recorded_result(x, [None, x]), recorded_result(None, []), recorded_result(7, [])]
    assert handed_out(results, (None, x)) == [x, None, 7]
    with pytest.raises(RuntimeError, match="view of an input"):
        recorded_result(x[:1], [x])
