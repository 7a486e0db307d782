"""Short training runs, compiled and in eager: they drift apart no further than rounding explains."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import pytest
import torch

from benchmarks.curves import ALLOWED, ROUNDING, Run, chart, compare
from benchmarks.models.small import TASKS, Transformer

TRANSFORMER, CONV_NET = TASKS
SMALL = {
    "transformer": replace(TRANSFORMER, make=partial(Transformer, width=16, depth=1), lr=1e-2),
    "conv net": replace(CONV_NET, lr=3e-3),
}


@pytest.mark.parametrize("name", SMALL)
def test_losses_follow_eager(name):
    plain, lowered = compare(SMALL[name], steps=30)
    for run in (plain, lowered):
        assert run.eager[-5:].mean() < run.eager[:5].mean() - 0.1, "nothing was learned"
        assert run.excess(run.compiled) <= ALLOWED
    assert plain.excess(plain.control) > 10 * ALLOWED, "a wrong learning rate passes for noise"


def test_drift_is_the_largest_relative_difference_so_far():
    eager = torch.tensor([1.0, 2.0, 4.0])
    run = Run("", eager, eager * torch.tensor([1.0, 1.5, 1.25]), (eager * 1.25,), eager)
    assert run.drift(run.compiled).tolist() == [0.0, 0.5, 0.5]
    assert run.excess(run.compiled) == 2.0


def test_noise_below_the_rounding_of_the_loss_counts_as_that():
    eager = torch.ones(3, dtype=torch.float64)
    run = Run("", eager, eager + 2 * ROUNDING, (eager,), eager)
    assert run.excess(run.compiled) == pytest.approx(2)


def test_chart_is_well_formed_and_has_every_curve():
    losses = torch.tensor([3.0, 2.0, 2.0])
    drawn = ElementTree.fromstring(chart([Run("a < b", losses, losses, (losses,), losses)]))
    assert len(drawn.findall(".//{*}polyline")) == 5
