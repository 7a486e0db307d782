"""Two reductions of one row in one loop over its tiles."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.gpu import generate, plan
from dovetail.ir.evaluate import evaluate
from dovetail.ir.followers import Squares
from dovetail.ir.loops import Group
from dovetail.ir.parse import parse_program
from dovetail.schedule.gpu import split
from tests.codegen_gpu.interpreter import run
from tests.schedule.test_split import SOFTMAX, VARIANCE, row_values


@pytest.mark.parametrize("kind", ["variance", "softmax"])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("width", [2, 15, 16, 32, 37])
@pytest.mark.parametrize("values", ["large", "hidden", "all hidden", "infinite", "nan"])
def test_one_loop(kind, layout, width, values, monkeypatch):
    monkeypatch.setattr(plan, "LONGEST_ROW", 1)
    monkeypatch.setattr(plan, "TILE", 16)
    text = {"variance": VARIANCE, "softmax": SOFTMAX}[kind].replace("37", str(width))
    text = text.replace("0.02702702702702703", repr(1 / width))
    a = row_values(values)[:, :width].contiguous()
    if layout == "columns":
        text = text.replace(f"float32[3, {width}]", f"float32[3, {width}] strides (1, 3)")
        a = a.t().contiguous().t()
    program = parse_program(text)
    (group,) = program.items
    assert isinstance(group, Group)
    made = generate(group).text
    assert ("_squares(" in made or "_exponentials(" in made) and made.count("for s") == 2  # the other loop stores
    b, c = torch.empty(3), torch.empty_strided(a.shape, a.stride())
    run(group, {"a": a.as_strided((a.numel(),), (1,)), "b": b, "c": c.as_strided((c.numel(),), (1,))})
    want = evaluate(program, (a,))
    torch.testing.assert_close((b, c), tuple(want), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_names_of_sizes_are_their_own(monkeypatch):
    """Counts of tiles are no sizes, in a kernel with many of these."""
    for module, name in (plan, "LONGEST_ROW"), (split, "LONGEST_ROW"), (Squares, "longest"):
        monkeypatch.setattr(module, name, 4)
    monkeypatch.setattr(plan, "TILE", 16)
    text = """\
input a: float32[3, 4, 5, 6, 17] strides (2040, 510, 102, 17, 1)
output b: float32[3, 6, 5, 4]
group g for i < 3, l < 6, k < 5, j < 4
  loop m < 17
    r0: float32 = sum(a[i, j, k, l, m])
  loop m < 17
    t0 = a[i, j, k, l, m] - r0 * 0.0588235294117647
    r1: float32 = sum(t0 * t0)
  loop
    b[i, l, k, j] = r1
output b
"""
    program = parse_program(text)
    (group,) = program.items
    assert isinstance(group, Group)
    a, b = torch.randn(3, 4, 5, 6, 17), torch.empty(3, 6, 5, 4)
    run(group, {"a": a, "b": b})
    torch.testing.assert_close(b, a.var(-1, correction=0).permute(0, 3, 2, 1) * 17, rtol=1e-4, atol=1e-4)


def test_elements_that_are_written_to_meanwhile(monkeypatch):
    """The second loop reads others than the first."""
    monkeypatch.setattr(plan, "LONGEST_ROW", 1)
    monkeypatch.setattr(plan, "TILE", 16)
    text = """\
input a: float32[3, 40]
output b: float32[3]
group g for i < 3
  loop j < 40
    r0: float32 = sum(a[i, j])
  loop j < 40
    a[i, j] = a[i, j] * 3.0
  loop j < 40
    t0 = a[i, j] - r0 * 0.025
    r1: float32 = sum(t0 * t0)
  loop
    b[i] = r1
output b
"""
    (group,) = parse_program(text).items
    assert isinstance(group, Group)
    a, b = torch.randn(3, 40), torch.empty(3)
    want = ((3 * a - a.mean(1, keepdim=True)) ** 2).sum(1)
    run(group, {"a": a, "b": b})
    torch.testing.assert_close(b, want, rtol=1e-4, atol=1e-4)
