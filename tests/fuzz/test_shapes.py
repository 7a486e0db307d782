"""Random programs of reshapes, slices, concatenations and reductions at many sizes. More: `make fuzz-shapes`."""

from __future__ import annotations

import pytest
import torch

from tests.fuzz.shapes.__main__ import COMMAND
from tests.fuzz.shapes.check import difference
from tests.fuzz.shapes.generate import generate


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_random_programs(start: int) -> None:
    found = {seed: COMMAND.run(seed).difference for seed in range(start, start + 20)}
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
