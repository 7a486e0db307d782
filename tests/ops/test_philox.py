"""The random words of `ir/scalar.py` against the published ones, and every target's against them."""

from __future__ import annotations

import pytest
import torch

from dovetail.ir.scalar import philox
from tests.codegen.harness import compare, op, pointwise
from tests.codegen.harness import run as run_on_cpu
from tests.codegen_gpu.interpreter import run as run_on_gpu

#: Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds) with the upper half of the counter zero.
KNOWN = {(0, 0): [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]}


@pytest.mark.parametrize("where", KNOWN, ids=str)
def test_known_answers(where):
    seed, block = where
    places = torch.arange(4) + 4 * block
    assert philox(torch.tensor(seed), places).tolist() == KNOWN[where]


@pytest.mark.parametrize("run", [run_on_cpu, run_on_gpu], ids=["cpu", "gpu"])
def test_targets(run):
    seeds = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 0x1234_5678_9ABC_DEF0] * 17)
    places = torch.cat([torch.arange(60), torch.randint(0, 2**62, (42,), generator=torch.Generator())])
    out = torch.empty(102, dtype=torch.int64)
    group = pointwise(lambda s, p: op("philox", s, p), {"s": seeds, "p": places}, out)
    compare(group, {"s": seeds, "p": places, "out": out}, ["out"], run=run)
    assert 0 <= int(out.min()) and int(out.max()) < 2**32 and len(set(out.tolist())) > 80
