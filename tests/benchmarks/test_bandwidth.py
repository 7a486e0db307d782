"""The benchmark of bandwidth: what it counts and what it reports; its times need a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.gpu.bandwidth import difference, sample, summary, table
from benchmarks.gpu.programs import PROGRAMS, Maker, Work


def _work(name: str, dtype: torch.dtype = torch.float32) -> Work:
    return PROGRAMS[name](Maker(dtype, "meta"))


def _bytes(values: Any) -> int:
    return sum(v.nbytes for v in values if isinstance(v, torch.Tensor))


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("gelu(x * w + b)", 2 * 2**27 + 2 * 4096),
        ("uniform random numbers", 2**27),
        ("sum of everything", 2**27 + 1),
        ("batch norm, training", 3 * 2**27 + 6 * 256),
        ("transposed copy", 2 * 2**27),
        ("every second column", 3 * 2**26),
        ("padded images, 66x66", 128 * 256 * (64 * 64 + 66 * 66)),
    ],
)
def test_bytes_of_known_programs(name: str, elements: int) -> None:
    assert _work(name).nbytes == 4 * elements
    assert _work(name, torch.bfloat16).nbytes == 2 * elements


def test_bytes_of_places() -> None:
    assert _work("embedding, 1024 wide").nbytes == 2**17 * (8 + 2 * 4 * 1024)
    assert _work("cross entropy and its gradient").nbytes == 3 * 2048 * 50257 * 4 + 2048 * 8 + 4


def test_an_optimizer_reads_four_tensors_and_writes_three() -> None:
    matrices, vectors = 4 * 1024 * 1024 + 3 * 2816 * 1024, 4 * 1024 + 2 * 2816 + 5 * 1024
    assert _work("Adam, 24 layers").nbytes == 7 * 4 * (24 * (matrices + vectors) + 32000 * 1024)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("Adam")])
def test_what_goes_in_and_comes_out_is_counted(name: str) -> None:
    work = _work(name)
    found = work.fn(*work.args)
    assert _bytes(work.writes) >= _bytes(found if isinstance(found, tuple) else (found,))
    assert _bytes(work.reads) >= _bytes(work.args) or name == "uniform random numbers"


def test_differences_are_relative_to_what_is_largest() -> None:
    expected = sample((torch.tensor([0.0, 200.0]), torch.ones(3)))
    assert difference(sample((torch.tensor([1.0, 200.0]), torch.ones(3))), expected) == 1 / 200
    assert len(sample(torch.ones(10**6))[0]) == 10**5


def test_what_falls_short_is_named() -> None:
    copy = {"us": 100.0, "bytes": 4e8, "share": 1.0}
    fast = {"copy": copy, "Dovetail": {"us": 110.0, "bytes": 4e8, "share": 10 / 11, "error": 1e-7}}
    slow = {"copy": copy, "Dovetail": {"us": 200.0, "bytes": 4e8, "share": 0.5, "error": 2e-7}}
    results = {"softmax": {"float32": fast, "bfloat16": slow}, "cumsum": {"float32": {}, "bfloat16": slow}}
    assert table(results, ["Dovetail"]).row_count == 2
    assert summary(results, "Dovetail") == (
        "Dovetail: 1 of 3 programs reach 85% of a copy's bandwidth. "
        "Not: cumsum in bfloat16: 50%; softmax in bfloat16: 50%"
    )
