"""Operators that exchange a part of a tensor: what does not fit is refused, also where it could be broadcast."""

from __future__ import annotations

import pytest
import torch

import dovetail

PROGRAMS = {
    "select": lambda x, y: torch.select_scatter(x, y, 0, 1),
    "slice": lambda x, y: torch.slice_scatter(x, y, 0, 0, 2),
    "diagonal": lambda x, y: torch.diagonal_scatter(x, y),
}


@pytest.mark.parametrize("needed", [True, False])
@pytest.mark.parametrize("sizes", [(4,), (3,), (1,), (), (2, 4), (1, 4)])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_parts(program, sizes, needed):
    def fn(x, y):
        made = program(x, y)
        return made if needed else x

    found = []
    for run in (dovetail.compile(fn), fn):
        try:
            found.append(run(torch.zeros(3, 4), torch.ones(sizes)).tolist())
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]
