"""The benchmark of warm starts: what it runs, and what it reports."""

from __future__ import annotations

import pytest
import torch

from benchmarks.contenders import EAGER
from benchmarks.warm import __main__ as warm
from benchmarks.warm import programs
from benchmarks.warm.worker import FIRST


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A model that is compiled in a moment, in the place of those that are measured."""
    made = programs.Model(
        "linear", lambda: torch.nn.Linear(3, 2),
        lambda device: (torch.ones(2, 3, device=device), torch.zeros(2, dtype=torch.int64, device=device)),
        programs.classes,
    )  # fmt: skip
    monkeypatch.setitem(programs.MODELS, "linear", made)


@pytest.mark.parametrize("kind", programs.KINDS)
def test_every_kind_runs(kind: str) -> None:
    call = programs.ready(f"linear-{kind}", torch.device("cpu"))(EAGER)
    first, second = call(), call()
    assert (kind == "inference") == torch.equal(first, second)
    assert programs.title(f"linear-{kind}").startswith("linear, ")


def test_a_cold_process_and_warm_ones(monkeypatch) -> None:
    runs = [{"import": 0.5, "calls": [t, 0.3, *[0.2] * (FIRST - 2)], "steady": 0.2} for t in (5.2, 0.4, 0.5, 0.6)]
    monkeypatch.setattr(warm, "run_worker", lambda *_: left.pop(0))
    for name, expected in {"linear-inference": (5.0, 0.3), "linear-training": (5.1, 0.4)}.items():
        left = list(runs)
        found = warm.measured(name, "dovetail", "cpu", 3)
        assert (found["cold"], found["warm"]) == pytest.approx(expected) and not left
        assert (found["import"], found["call"], found["steady"]) == (0.5, 0.5, 0.2)


def test_a_row_for_each_program() -> None:
    found = {"import": 0.1, "cold": 2.0, "warm": 0.1, "call": 0.2, "steady": 0.1}
    figures = {"linear-inference": {"eager": found, "dovetail": found, "peer": {"failed": "no"}}}
    assert warm.table(figures, ["eager", "dovetail", "peer"]).row_count == 1
