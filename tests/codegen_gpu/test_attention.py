"""`flex_attention`'s kernels for a GPU, forward and backward: run under Triton's interpreter, and as machine code."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from dovetail.attention import host
from dovetail.codegen.gpu import generate
from dovetail.ir import evaluate as evaluation
from dovetail.ir.loops import Group
from dovetail.ops.calls import attention_blocks
from dovetail.options import Options
from dovetail.runtime.gpu.loading import to_binary
from dovetail.schedule import schedule
from dovetail.schedule.gpu.split import spread
from tests.codegen_gpu.test_programs import _Machine
from tests.schedule.test_meaning import lowered

SLOPES = torch.tensor([0.5, 0.25])


def attend(q, k, v):
    mask = flex.create_block_mask(lambda b, h, i, j: (i > j) & (i - j < 6), None, None, 32, 32, "cpu")
    return flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + SLOPES[h] * (j - i), mask)


def gradients(q, k, v):
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(attend(*leaves).square().sum(), leaves)


@pytest.fixture
def program(request, monkeypatch):
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(attention_blocks, "LEAST_ROWS", 8)
    monkeypatch.setattr(host, "recorded", lambda *_: NotImplemented)
    torch.manual_seed(0)
    args = [torch.randn(1, 2, 32, 8) for _ in range(3)]
    program = schedule(lowered(request.param, *args), Options())
    items = [spread(item) if isinstance(item, Group) else (item,) for item in program.items]
    return program.with_items(tuple(itertools.chain.from_iterable(items))), args, request.param(*args)


@pytest.mark.parametrize("program", [attend, gradients], indirect=True)
def test_meaning(program, monkeypatch):
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    after, args, want = program
    got = _Machine(after, [*args, SLOPES]).run()
    for mine, theirs in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("program", [attend, gradients], indirect=True)
def test_machine_code(program):
    groups = [item for item in program[0].items if isinstance(item, Group)]
    assert groups and all(to_binary(generate(g), 90).code.startswith(b"\x7fELF") for g in groups)
