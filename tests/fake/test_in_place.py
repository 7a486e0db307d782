"""Arithmetic in place: what eager does and what it refuses."""

from __future__ import annotations

import pytest
import torch

import dovetail

PROGRAMS = {
    "alike": lambda x: x.add_(x + 1).addcmul_(x, x, value=0.5).lerp_(x.sin(), 0.25).div_(x.cos() + 2),
    "a scalar tensor": lambda x: x.mul_(x.new_tensor(2.0)).sub_(x.new_ones(3)),
    "another type": lambda x: x.add_(torch.arange(3)).mul_(torch.ones(3, dtype=torch.float64)),
    "a number": lambda x: x.add_(2).mul_(0.5).div_(3).addcdiv_(x, x + 1, value=2),
    "too large": lambda x: x.add_(torch.ones(2, 4, 3)),
    "complex": lambda x: x.mul_(1j),
    "a complex tensor": lambda x: x.add_(torch.ones(3, dtype=torch.complex64)),
    "a truth value as a factor": lambda x: x.add_(x, alpha=True),
    "expanded": lambda x: x[:1].expand(2, 3).add_(torch.ones(2, 3)),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.int64))
def test_in_place(program, dtype):
    found = []
    for run in (dovetail.compile(program), program):
        x = torch.arange(6).reshape(2, 3).to(dtype)
        try:
            found.append((run(x).clone(), x))
        except RuntimeError as error:
            found.append(str(error))
    if isinstance(found[1], str):
        assert found[0] == found[1]
    else:
        torch.testing.assert_close(found[0], found[1])
