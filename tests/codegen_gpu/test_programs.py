"""Whole scheduled programs, their groups run as GPU kernels under Triton's interpreter, against plain evaluation."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.gpu import plan
from dovetail.ir import evaluate as evaluation
from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import Group
from dovetail.options import Options
from dovetail.schedule import schedule
from tests.codegen_gpu.interpreter import run
from tests.schedule.test_meaning import CASES, lowered


class _Machine(evaluation._Machine):
    def group(self, group: Group) -> None:
        for buffer in writes(group).values():
            if buffer not in group.locals:
                self.prepare(buffer, group)
        tensors = {}
        for name, buffer in {**reads(group), **writes(group)}.items():
            memory = self.memories.get(name)
            if memory is not None:
                tensors[name] = memory.elements(buffer.dtype)[memory.origin(buffer.dtype) :]
                if name in writes(group) and memory.written is not None:
                    memory.written[:] = True
        run(group, tensors)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [plan.LONGEST_ROW, 4], ids=["rows in registers", "rows in loops"])
def test_meaning(name, rows, monkeypatch):
    monkeypatch.setattr(plan, "LONGEST_ROW", rows)
    fn, args, _ = CASES[name]
    program = schedule(lowered(fn, *args), Options())
    want = evaluation.evaluate(program, args)
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    got = _Machine(program, args).run()
    for w, g in zip(want, got, strict=True):
        tolerance = 2e-2 if w.dtype == torch.bfloat16 else 1e-4  # sums in float32
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance)
