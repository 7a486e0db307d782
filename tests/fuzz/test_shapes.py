"""Random programs of reshapes, slices, concatenations and reductions at many sizes. More: `make fuzz-shapes`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.fuzz.shapes.__main__ import COMMAND
from tests.fuzz.shapes.check import difference, unsure
from tests.fuzz.shapes.generate import generate


@pytest.mark.parametrize("start", range(0, 40, 20))
def test_random_programs(start: int) -> None:
    found = {seed: COMMAND.run(seed).difference for seed in range(start, start + 12)}
    assert {seed: words for seed, words in found.items() if words} == {}


#: What larger sweeps found: sizes that only strides tell, max of what is empty, views without elements, long unbinds,
#: a write to a slice of what may be empty, tensors whose sizes have all become constants.
FOUND = (116, 213, 292, 391, 454, 3370, 20061)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found(seed: int) -> None:
    assert COMMAND.run(seed).difference is None


def test_the_same_seed_gives_the_same_program() -> None:
    assert generate(3) == generate(3)


def test_a_difference_is_seen() -> None:
    x = torch.ones(2, 3)
    assert not difference((x, 3), (x.clone(), 3))
    assert difference((x, 3), (x, 4)).startswith("value")
    assert difference((x,), (x.t(),)).startswith("shape")
    assert difference((x,), (x + 1,)).startswith("values")
    assert difference((x,), RuntimeError("no")).startswith("no error")
    assert difference(RuntimeError("no"), (x,)).startswith("error")


def result_unsure(program: Any, x: torch.Tensor) -> bool:
    wanted = program(x)
    return 0 in unsure(lambda x: (program(x),), lambda seed: (x,), {"seed": 0}, (wanted, x))


def test_results_that_rounding_decides_are_not_compared() -> None:
    x = torch.randn(1, 3)
    assert result_unsure(lambda x: x.log_softmax(0) < 0, x)
    assert result_unsure(lambda x: (x * 3 - x - x - x).sign(), x)
    assert result_unsure(lambda x: torch.autograd.grad(x[0, 0].expand(3).std(), x)[0], x.requires_grad_())
    assert result_unsure(lambda x: (x * 1e-9).nonzero(), x)  # as the variance of equal numbers may be 0


def test_other_results_are() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    assert not result_unsure(lambda x: x.softmax(0).cumsum(1) @ x.t(), x)
    assert not result_unsure(lambda x: x.relu() > 0, x)
    assert not result_unsure(lambda x: torch.autograd.grad(x.std(), x)[0], x)
