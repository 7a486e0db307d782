"""What the host program's text promises."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import dovetail
from dovetail.codegen import cpu
from dovetail.codegen.host import program as host
from dovetail.codegen.host.library_calls import HAS_OUT
from dovetail.ir.loops import Group
from dovetail.options import Options
from dovetail.schedule import plan_memory, schedule
from dovetail.schedule.memory import block
from tests.schedule.test_meaning import lowered


def text_of(fn, *args) -> str:
    program = schedule(lowered(fn, *args), Options())
    kernels = {item.name: cpu.generate(item) for item in program.items if isinstance(item, Group)}
    return host.generate(program, kernels, plan_memory(program, HAS_OUT)).text


def test_results_that_nobody_reads_are_dropped_at_once():
    text = text_of(lambda x: F.max_pool2d(x, 2) + 1, torch.ones(1, 2, 8, 8))
    lines = text.splitlines()
    (call,) = [line for line in lines if "max_pool2d" in line and "expect_layout" not in line]
    assert call.endswith("_ = None")


def test_temporaries_are_places_in_one_block():
    text = text_of(lambda x, y: (x @ y).sin() @ y, torch.ones(128, 128), torch.ones(128, 128))
    assert "empty_strided" not in text and text.count("as_strided") == 2


def test_temporaries_that_would_make_the_block_too_large_are_dropped_after_their_last_use(monkeypatch):
    monkeypatch.setattr(block, "LARGEST_BLOCK", 4 * 128 * 128 - 1)
    text = text_of(lambda x, y: (x @ y).sin() @ y, torch.ones(128, 128), torch.ones(128, 128))
    assert "as_strided" not in text and text.count("= None") >= 2


def test_what_users_operators_see_is_theirs_to_keep():
    seen = []

    @torch.library.custom_op("memory_plan::keeps", mutates_args=())
    def keeps(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x * 2

    keeps.register_fake(torch.empty_like)
    compiled = dovetail.compile(lambda x: keeps(x.sin()) + keeps(x.cos()).sin())
    x = torch.randn(64)
    compiled(x), compiled(x + 1)
    for kept, wanted in zip(seen, (x.sin(), x.cos(), (x + 1).sin(), (x + 1).cos()), strict=True):
        torch.testing.assert_close(kept, wanted)


def test_zeros_around_a_slice_need_no_copy_of_it():
    def fn(g, w):
        return torch.ops.aten.slice_backward(g.sin(), [4, 8, 16], 1, 1, 7, 1).flatten(0, 1) @ w

    program = schedule(lowered(fn, torch.ones(4, 6, 16), torch.ones(16, 3)), Options())
    assert plan_memory(program, HAS_OUT).size == 4 * 8 * 16 * 4
