"""Random numbers in GPU kernels: under Triton's interpreter, and as machine code for Hopper."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from dovetail.codegen.gpu import generate
from dovetail.ir import evaluate as evaluation
from dovetail.ir.loops import Group, LibraryCall
from dovetail.normalize.passes import random_numbers
from dovetail.options import Options
from dovetail.runtime.gpu.loading import to_binary
from dovetail.schedule import schedule
from tests.codegen_gpu.test_programs import _Machine
from tests.schedule.test_meaning import lowered
from tests.traits import give_host

X = torch.linspace(-2, 2, 12 * 40).reshape(12, 40)
CASES = {
    "dropout": lambda x: torch.native_dropout(x.sin(), 0.3, True)[0],
    "in a row": lambda x: F.layer_norm(torch.native_dropout(x, 0.3, True)[0] + x, (40,)),
    "several": lambda x: (x * torch.randn_like(x) + torch.rand_like(x)).sum(-1),
    "doubles": lambda x: torch.randn_like(x, dtype=torch.float64) + torch.rand_like(x, dtype=torch.float64),
    "integers": lambda x: torch.randint_like(x, -5, 9) + torch.randint(0, 2**40, x.shape),
    "halves": lambda x: torch.native_dropout(x.bfloat16(), 0.3, True)[0] + torch.empty_like(x).exponential_(),
}


def _program(fn, monkeypatch):
    give_host(monkeypatch, draws=True)
    monkeypatch.setattr(random_numbers, "FEW", 1)
    return schedule(lowered(fn, X), Options())


@pytest.mark.parametrize("name", CASES)
def test_meaning(name, monkeypatch):
    program = _program(CASES[name], monkeypatch)
    torch.manual_seed(0)
    want = evaluation.evaluate(program, (X,))
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    torch.manual_seed(0)
    got = _Machine(program, (X,)).run()
    tolerance = 2e-2 if name == "halves" else 1e-4  # the interpreter rounds to bfloat16 towards zero
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_after_the_seeds(name, monkeypatch):
    program = _program(CASES[name], monkeypatch)
    seeds, group = program.items
    assert isinstance(seeds, LibraryCall) and seeds.operator is torch.ops.aten.randint.low
    assert to_binary(generate(group), 90).code.startswith(b"\x7fELF")


def test_layers_share_a_kernel(monkeypatch):
    """Which of the seeds a kernel reads is an argument."""
    def two(x):
        return [torch.native_dropout(x @ x.t(), 0.5, True)[0] @ x for _ in range(3)]

    groups = [item for item in _program(two, monkeypatch).items if isinstance(item, Group)]
    assert len(groups) == 3 and len({generate(group).symbol for group in groups}) == 1
