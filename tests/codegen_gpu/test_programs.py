"""Whole scheduled programs, their groups run as GPU kernels under Triton's interpreter, against plain evaluation."""

from __future__ import annotations

import itertools

import pytest
import torch

from dovetail.codegen.gpu import plan
from dovetail.ir import evaluate as evaluation
from dovetail.ir.followers import Exponentials, Squares
from dovetail.ir.liveness import reads, writes
from dovetail.ir.loops import Group, Program
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.options import Options
from dovetail.schedule import reuse, schedule
from dovetail.schedule.gpu import split
from dovetail.schedule.gpu.split import spread
from tests.codegen_gpu.interpreter import run
from tests.schedule import test_reuse
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
@pytest.mark.parametrize("kind", ["rows in registers", "rows in loops", "shared out"])
def test_meaning(name, kind, monkeypatch):
    if kind != "rows in registers":
        for module in (plan, split):
            monkeypatch.setattr(module, "LONGEST_ROW", 4)
        for follower in Squares, Exponentials:
            monkeypatch.setattr(follower, "longest", 4)
        monkeypatch.setattr(split, "SHORT", 2 if kind == "shared out" else 1 << 30)
    fn, args, _ = CASES[name]
    args = [arg[:16] if arg.shape[:1] == (80,) else arg for arg in args]  # each row is interpreted
    program = schedule(lowered(fn, *args), Options())
    items = [spread(item) if isinstance(item, Group) else (item,) for item in program.items]
    program = program.with_items(tuple(itertools.chain.from_iterable(items)))
    verify(program)
    want = evaluation.evaluate(program, args)
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    got = _Machine(program, args).run()
    for w, g in zip(want, got, strict=True):
        tolerance = 2e-2 if w.dtype == torch.bfloat16 else 1e-4  # sums in float32
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance)


def check(before: Program, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many results are written over what their kernels read."""
    after, args = reuse(before), test_reuse.arguments(before)
    want = evaluation.evaluate(before, [a.clone() for a in args])
    with monkeypatch.context() as patched:
        patched.setitem(evaluation._RUN, Group, _Machine.group)
        got = _Machine(after, args).run()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return len(test_reuse.over(after))


@pytest.mark.parametrize("name", test_reuse.WRITTEN_OVER)
def test_written_over(name, monkeypatch):
    text, expected = test_reuse.WRITTEN_OVER[name]
    assert check(parse_program(text), monkeypatch) == len(expected)


def test_random_programs_written_over(monkeypatch):
    assert sum(check(test_reuse.Maker(seed).program(), monkeypatch) for seed in range(25)) > 15
