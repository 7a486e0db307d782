"""`assert` of values and sizes that only the graph knows: one graph, and eager's error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail
from tests.e2e.asserting import BREAKING, PROGRAMS

GIVEN = ([3.0, 4, 0], [1.0, float("inf"), 1], [3.0, 0, 1], [-2.0, 3, 5], [0.0, -0.5, 1], [0.5, 0.5, 0.5])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_that_raises_eagers_error(name: str, backend: str) -> None:
    fn = PROGRAMS[name]
    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    for values in GIVEN:
        given, expected = torch.tensor(values), torch.tensor(values)
        assert _outcome(compiled, given) == _outcome(fn, expected)
        assert torch.equal(given, expected)


@pytest.mark.parametrize("name", BREAKING)
def test_what_a_graph_cannot_check_is_eagers(name: str) -> None:
    fn = BREAKING[name]
    compiled = dovetail.compile(fn)
    for values in GIVEN:
        assert _outcome(compiled, torch.tensor(values)) == _outcome(fn, torch.tensor(values))


def _outcome(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Any:
    try:
        return [str(round(v, 5)) for v in fn(x).tolist()]
    except (AssertionError, RuntimeError, ValueError) as error:
        return type(error).__name__, error.args
