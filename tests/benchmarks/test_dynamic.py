"""The benchmark of sizes that change: what it draws, what it measures, what it reports."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.dynamic import tables
from benchmarks.dynamic.__main__ import worker
from benchmarks.dynamic.programs import CASES
from benchmarks.dynamic.worker import COUNT


def test_sizes_are_different_and_the_same_every_time() -> None:
    for case in CASES.values():
        found = case.sequence(COUNT, 0)
        assert len(set(found)) == COUNT and found == case.sequence(COUNT, 0) != case.sequence(COUNT, 1)
        given, again = case.given(found[0]), case.given(found[0])
        assert all(map(torch.equal, given, again))
        assert len(case.varies) == len(given)


def test_many_sizes_of_a_small_program() -> None:
    found = worker("sequence", "rows", "dovetail")
    assert (found["compilations"], len(found["each"])) == (2, COUNT)
    assert tables.wrong({"sequence": {"rows": {"eager": found, "dovetail": found}}}) == []


@pytest.mark.parametrize("part", ["steady", "guards"])
def test_prices_of_a_small_program(part: str) -> None:
    found = worker(part, "rows", "2")
    assert found["constant"] > 0 and found["free"] > 0 and found["ratio"] > 0


def test_mistakes_are_named() -> None:
    good: dict[str, Any] = {"error": 1e-7, "eager error": 1e-7}
    sequence = {"rows": {"eager": good, "dovetail": {"error": 1e-3, "eager error": 1e-7}}}
    text = {"gpt2": {"eager": {"tokens": [1, 2]}, "dovetail": {"tokens": [1, 3]}}}
    failed = {"lstm": {"failed": "TypeError: no"}}
    assert tables.wrong({"sequence": sequence, "generate": text, "compile": failed}) == [
        "lstm, compile: failed: TypeError: no",
        "rows: dovetail's error is 1.0e-03",
        "gpt2: dovetail wrote another text",
    ]


def test_tables_have_a_row_for_each_program() -> None:
    figures = {"compilations": 2, "seconds": 1.0, "error": 2e-7, "eager error": 1e-7}
    price = {"constant": 1.0, "free": 1.1, "ratio": 1.1}
    both = {"eager": figures, "dovetail": figures}
    assert tables.sequence_table({"rows": both, "lstm": both | {"dovetail": {"failed": ""}}}, list(both)).row_count == 2
    assert tables.generation_table({"gpt2": both}, list(both)).row_count == 1
    assert tables.price_table({"compile": {"rows": price}, "guards": {"rows": {"failed": ""}}}).row_count == 1
