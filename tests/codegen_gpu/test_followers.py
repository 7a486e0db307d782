"""Two reductions of one row in one loop over its tiles."""

from __future__ import annotations

import pytest
import torch

from dovetail.codegen.gpu import generate, plan
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Group
from dovetail.ir.parse import parse_program
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
