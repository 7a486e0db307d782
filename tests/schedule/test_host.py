"""What the host program's text promises."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from dovetail.codegen import cpu, host
from dovetail.codegen.library import HAS_OUT
from dovetail.ir.loops import Group
from dovetail.options import Options
from dovetail.schedule import plan_memory, schedule
from tests.schedule.test_meaning import lowered


def text_of(fn, *args) -> str:
    program = schedule(lowered(fn, *args), Options())
    kernels = {item.name: cpu.generate(item) for item in program.items if isinstance(item, Group)}
    return host.generate(program, kernels, plan_memory(program, HAS_OUT)).text


def test_results_that_nobody_reads_are_dropped_at_once():
    text = text_of(lambda x: F.max_pool2d(x, 2) + 1, torch.ones(1, 2, 8, 8))
    lines = text.split("def run_first")[0].splitlines()
    (call,) = [line for line in lines if "max_pool2d" in line and "expect_layout" not in line]
    assert call.endswith("_ = None")


def test_temporaries_are_dropped_after_their_last_use():
    text = text_of(lambda x, y: (x @ y).sin() @ y, torch.ones(128, 128), torch.ones(128, 128))
    assert text.split("def run_first")[0].count("= None") >= 2
