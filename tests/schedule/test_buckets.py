"""Outputs in buckets: how they are divided, and how early they are computed."""

from __future__ import annotations

import pytest

from dovetail.ir.liveness import bucket_ends, needed_later
from dovetail.ir.loops import View
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.ir.text import program_text
from dovetail.schedule.launch.buckets import divided, in_buckets

PROGRAM = """\
input a0: float32[4, 4]
output b0: float32[4, 4]
library mm_0: b0, = aten.mm.default(a0, a0)
temporary b1: float32[4, 4]
group k1 for i0 < 4, i1 < 4
  loop
    b1[i0, i1] = sin(b0[i0, i1])
output b2: float32[4, 4]
library mm_2: b2, = aten.mm.default(b1, a0)
output b3: float32[4]
group k3 for i0 < 4
  loop j1 < 4
    r0: float32 = sum(b1[i0, j1])
  loop
    b3[i0] = r0
output b4: float32[16]
view b4 = b2
output b5: float32[4, 4]
library mm_5: b5, = aten.mm.default(a0, b1)
output b0
output None
output b3
output b4
output b5
"""


def _order(program) -> str:
    return " ".join("view" if isinstance(item, View) else item.name for item in program.items)


@pytest.mark.parametrize(
    ("first", "others", "expected"),
    [
        (1, 1, ((0,), (3,), (2,), (4,))),
        (1, 64, ((0,), (3,), (2, 4))),
        (65, 100, ((0, 3), (2, 4))),
        (64, 1000, ((0,), (2, 3, 4))),
        (1000, 1000, ()),
    ],
)
def test_a_bucket_is_full_when_it_has_so_many_bytes(first, others, expected):
    program = in_buckets(parse_program(PROGRAM), first, others, ())
    verify(program)
    assert program.buckets == expected


def test_what_is_returned_is_computed_as_soon_as_it_can_be():
    """Behind what it needs; nothing else changes its place, and what is in one bucket anyway none at all."""
    program = parse_program(PROGRAM)
    assert _order(program) == _order(in_buckets(program, 1000, 1000, ())) == "mm_0 k1 mm_2 k3 view mm_5"
    assert _order(in_buckets(program, 1, 1, ())) == "mm_0 k1 mm_2 view k3 mm_5"
    late = program.with_items((*program.items[:2], program.items[5], *program.items[2:5]))
    assert _order(late) == "mm_0 k1 mm_5 mm_2 k3 view"
    assert _order(in_buckets(late, 1, 1, ())) == "mm_0 k1 mm_5 mm_2 view k3"


def test_an_output_leaves_when_nothing_reads_its_memory_any_more():
    program = divided(parse_program(PROGRAM), ((0,), (2, 3), (1, 4)), ())
    assert bucket_ends(program) == [1, 4, 5]
    assert bucket_ends(divided(program, ((0,), (4,), (2,)), ())) == [1, 5, 5]


def test_an_output_leaves_when_nothing_reads_what_it_is_the_gradient_of():
    program = divided(parse_program(PROGRAM), ((0,), (2, 3), (4,)), (2,))
    assert program.outputs[2].after == program.inputs[0]
    assert bucket_ends(program) == [1, 5, 5] and needed_later(program) == [(0,), ()]
    assert in_buckets(parse_program(PROGRAM), 1, 1, (2,)).buckets == ((0,), (3,), (2, 4))
    assert parse_program(program_text(program)) == program
