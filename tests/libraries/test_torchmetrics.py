"""torchmetrics: metrics that a compiled step updates, and what they compute."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.diagnostics.breaks import BREAKS

from .compiling import anew, compilations  # noqa: F401

torchmetrics = pytest.importorskip("torchmetrics")

FUNCTIONS = {
    "accuracy": lambda p, t: torchmetrics.functional.accuracy(p, t, task="multiclass", num_classes=4),
    "f1": lambda p, t: torchmetrics.functional.f1_score(p, t, task="multiclass", num_classes=4, average="macro"),
    "confusion": lambda p, t: torchmetrics.functional.confusion_matrix(p, t, task="multiclass", num_classes=4),
    "error": lambda p, t: torchmetrics.functional.mean_squared_error(p[:, 0], p[:, 1]),
    "cosine": lambda p, t: torchmetrics.functional.cosine_similarity(p, p.flip(0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    p, t = torch.randn(16, 4), torch.randint(0, 4, (16,))
    expected = FUNCTIONS[name](p, t)
    with dovetail.install():
        compiled = torch.compile(FUNCTIONS[name])
        for _ in range(2):
            torch.testing.assert_close(compiled(p, t), expected)
    assert len(compilations()) == 1


METRICS = {
    "accuracy": lambda: torchmetrics.Accuracy(task="multiclass", num_classes=4, validate_args=False),
    "mean": torchmetrics.MeanMetric,
    "error": torchmetrics.MeanSquaredError,
}


@pytest.mark.parametrize("name", METRICS)
def test_a_step_that_updates_a_metric(name: str) -> None:
    model = torch.nn.Linear(8, 4)
    one, other = METRICS[name](), METRICS[name]()

    def step(metric, x, t):
        p = model(x)
        given = {"accuracy": (p, t), "mean": (p.square(),), "error": (p.softmax(-1).max(-1).values, t.float())}[name]
        metric.update(*given)
        return p

    with dovetail.install():
        compiled = torch.compile(step)
        for _ in range(3):
            x, t = torch.randn(16, 8), torch.randint(0, 4, (16,))
            torch.testing.assert_close(compiled(one, x, t), step(other, x, t))
    torch.testing.assert_close(one.compute(), other.compute())
    assert one.update_count == other.update_count == 3
    compilations(None if name == "mean" else 0)
    # A mean looks for NaN, in as many frames as Python makes of it.
    assert {met.code for met in BREAKS.all()} == ({"data-dependent-branch"} if name == "mean" else set())
