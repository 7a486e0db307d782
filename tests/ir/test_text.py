"""Programs print as text that parses back to an equal program."""

from __future__ import annotations

import pytest
import torch

from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.ir.text import program_text
from tests.ir.programs import random_program


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_random_programs_round_trip(start):
    for seed in range(start, start + 50):
        program = random_program(seed)
        verify(program)
        assert parse_program(program_text(program)) == program


EXAMPLE = """\
size s0 >= 2
input a0: float32[s0, 8] strides (8*s0, s0) offset 3
input a1: int64[s0]
constant a1
temporary b0: float32[s0, 8]
group softmax_0 for i0 < s0
  local row: float32[8]
  loop
    assert a1[i0] < index(s0), 'out of range'
  loop j1 < 8
    t0 = exp(a0[value(a1[i0], s0), j1] - 1.5)
    row[j1] = t0 * t0
    r0: float32 = sum(t0)
  loop j1 < 8
    t1 = index(j1) < 7
    b0[i0, j1] = where(t1, row[j1] / r0, -(row[j1 + 1] if t1 else 0))
temporary b1: float32[8, s0] strides (1, 8) offset 2
view b1 = b0
temporary b2: float32[s0, s0]
library mm_1: b2, = aten.mm.default(a0, b1)
temporary b3: bfloat16[s0] on cuda:1
library weird_2: b3, _, = aten.max.dim(b2, -1, keepdim=False)
mutate a0 = b0
output b2 in bucket 0
output b0 after a0 in bucket 1 as view
output 3
output None
output s0 + 1
"""


def test_example_round_trips_as_text():
    constants = {"a1": torch.tensor([1, 0])}
    program = parse_program(EXAMPLE, constants)
    assert program_text(program) == EXAMPLE
    assert parse_program(program_text(program), constants) == program


def test_deep_expressions_are_cut_into_names():
    lines = ["input a0: float32[4]", "output b0: float32[4]", "group g for i0 < 4", "  loop", "    t0 = a0[i0]"]
    lines += [f"    t{k} = exp(t{k - 1}) * 2.0" for k in range(1, 400)]
    program = parse_program("\n".join([*lines, "    b0[i0] = t399", "output b0"]))
    text = program_text(program)
    assert max(map(len, text.splitlines())) < 150
    assert parse_program(text) == program


UNREADABLE = ["nonsense 1", "library x: b, = aten.mm.default(q)", "input a0: float33[2]", "view a = b"]


@pytest.mark.parametrize("line", UNREADABLE)
def test_unreadable_lines_are_named(line):
    with pytest.raises(ValueError, match="line 1: "):
        parse_program(line)
