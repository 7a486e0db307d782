"""The harness measures what it says, checked on programs whose figures are known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from benchmarks import measure, readme, tables
from benchmarks.collect import Result


def test_every_call_gets_one_figure_a_round() -> None:
    counts = [0, 0]

    def slow():
        counts[0] += 1
        time.sleep(0.002)

    def fast():
        counts[1] += 1

    times = measure.interleaved([slow, fast], rounds=3, slice_seconds=0.004)
    assert [len(t) for t in times] == [3, 3]
    assert min(times[0]) > 0.0015
    assert counts[1] > counts[0]


def test_speedup_is_taken_within_a_round() -> None:
    assert measure.speedup([1.0, 10.0, 100.0], [0.5, 5.0, 50.0]) == 2.0


def test_error_is_relative_to_the_largest_value() -> None:
    exact = [torch.tensor([0.0, 200.0], dtype=torch.float64)]
    assert measure.largest_error(torch.tensor([1.0, 200.0]), exact) == pytest.approx(1 / 200)
    with pytest.raises(AssertionError, match="shape"):
        measure.largest_error(torch.zeros(3), exact)


def test_tensors_of_a_mapping() -> None:
    class Output(dict):
        pass

    assert len(measure.tensors(Output(a=torch.ones(1), b=(torch.ones(1), None)))) == 2


def test_reference_is_double_and_leaves_the_model_alone() -> None:
    model = torch.nn.Linear(2, 2)
    (result,) = measure.reference(model, (torch.ones(1, 2),))
    assert result.dtype == torch.float64 and model.weight.dtype == torch.float32


def test_memory_of_a_known_program() -> None:
    def doubled_twice(x):
        return (x + x) + 1

    megabytes = measure.step_memory(doubled_twice, (torch.randn(4, 1 << 20),)) / 2**20
    assert 32 <= megabytes < 32.1


def result() -> Result:
    steady = {
        "eager": {"ms": 2.0, "speedup": 1.0, "error": 1e-7, "graphs": 0},
        "dovetail": {"ms": 1.0, "speedup": 2.0, "error": 1e-7, "graphs": 1},
    }
    failures = {"peer": {"steady state": "RuntimeError: no"}}
    return Result("toy", cold={"eager": 0.01, "dovetail": 0.5, "peer": 9.0}, steady=steady, failures=failures)


def test_a_failure_is_shown_beside_the_rest() -> None:
    text = "\n".join(tables.summary([result()], ["dovetail", "peer"]))
    assert "torch.compile, steady state failed: RuntimeError: no" in text
    assert tables.main_table([result()], ["dovetail", "peer"]).row_count == 1


def test_the_readme_is_updated_in_place(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"a\n{readme.BEGIN}\nstale words\n{readme.END}\nb\n")
    for _ in range(2):
        readme.update(document, readme.markdown([result()], ["dovetail"]))
    text = document.read_text()
    assert text.startswith("a\n") and text.endswith("\nb\n") and "stale words" not in text
    assert "| 2.000 | 0.50 | 1.000 | 2.00x | 1 | 1.00 |" in text
    document.write_text("nothing")
    with pytest.raises(ValueError, match="does not contain"):
        readme.update(document, "text")
