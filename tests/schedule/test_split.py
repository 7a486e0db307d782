"""Groups for GPUs: shared out among programs, read once, computed the same."""

from __future__ import annotations

import itertools

import pytest
import torch

from dovetail.codegen.common import ranges
from dovetail.codegen.gpu import plan
from dovetail.ir.evaluate import evaluate
from dovetail.ir.followers import Exponentials, Squares
from dovetail.ir.launch import WIDE_TILE
from dovetail.ir.loops import Group, Loop, Program
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.ir.text import group_text, program_text
from dovetail.schedule.fusion.nest import count
from dovetail.schedule.gpu import cut, split

HEAD = "input a: float32[3, 37]\noutput b: float32[3]\noutput c: float32[3, 37]\ngroup g for i < 3\n"
VARIANCE = HEAD + """\
  loop j < 37
    r0: float32 = sum(a[i, j])
  loop j < 37
    t0 = a[i, j] - r0 * 0.02702702702702703
    r1: float32 = sum(t0 * t0)
  loop
    b[i] = r1
  loop j < 37
    c[i, j] = a[i, j] * r1
output b
output c
"""
SOFTMAX = HEAD + """\
  loop j < 37
    r0: float32 = max(a[i, j])
  loop
    b[i] = r0
  loop j < 37
    r1: float32 = sum(exp(a[i, j] - b[i]))
  loop j < 37
    c[i, j] = exp(a[i, j] - b[i]) / r1
output b
output c
"""
#: How many whole parts a row has, where one part is enough for both reductions.
SPLIT = {
    "variance": (VARIANCE, 2),
    "softmax": (SOFTMAX, 2),
    "another element": (VARIANCE.replace("t0 = a[i, j] -", "t0 = a[i, 36 - j] -"), None),
    "a sum of something else": (VARIANCE.replace("t0 * t0", "t0 * a[i, j]"), None),
    "a shift for each element": (VARIANCE.replace("r0 * 0.02702702702702703", "r0 * a[i, j]"), None),
    "the least element": (SOFTMAX.replace("max(", "min("), None),
}


def shared_out(program: Program, monkeypatch: pytest.MonkeyPatch, longest: int = 16) -> Program:
    for module in (cut, split):
        monkeypatch.setattr(module, "SHORT", 1 << 30)
    monkeypatch.setattr(split, "LONGEST_ROW", longest)
    for kind in Squares, Exponentials:
        monkeypatch.setattr(kind, "longest", longest)
    items = [split.spread(item) if isinstance(item, Group) else (item,) for item in program.items]
    made = program.with_items(tuple(itertools.chain.from_iterable(items)))
    verify(made)
    return made


def check(text: str, a: torch.Tensor, monkeypatch: pytest.MonkeyPatch, longest: int = 16) -> Program:
    before = parse_program(text)
    after = shared_out(before, monkeypatch, longest)
    torch.testing.assert_close(evaluate(after, (a,)), evaluate(before, (a,)), rtol=1e-4, atol=1e-5, equal_nan=True)
    return after


@pytest.mark.parametrize("name", SPLIT)
def test_rows_are_read_once_for_both_reductions(name, monkeypatch):
    text, parts = SPLIT[name]
    after = check(text, torch.randn(3, 37), monkeypatch)
    first = after.items[0]
    assert isinstance(first, Group)
    if parts is None:
        assert len(after.items) == 1, program_text(after)
    else:
        assert len(after.items) == 4 and len(first.loops) == 3, program_text(after)
        assert count(first.outer) == 3 * parts


def test_text(monkeypatch):
    parts, rest, joined, _ = shared_out(parse_program(SOFTMAX.replace("37", "36")), monkeypatch).items
    assert body(parts) == """\
group g_2 for i < 3, j.p < 2
  loop j.q < 16
    r0: float32 = max(a[i, 16*j.p + j.q])
  loop j.q < 16
    r1: float32 = sum(exp(a[i, 16*j.p + j.q] - where(r0 == -inf, 0.0, r0)))
  loop
    g_r0_0[i, j.p] = r0
    g_r1_1[i, j.p] = r1
"""
    assert body(rest) == """\
group g_3 for i < 3
  loop j.r < 4
    r0: float32 = max(a[i, j.r + 32])
  loop j.r < 4
    r1: float32 = sum(exp(a[i, j.r + 32] - where(r0 == -inf, 0.0, r0)))
  loop
    g_r0_0[i, 2] = r0
    g_r1_1[i, 2] = r1
"""
    assert body(joined) == """\
group g_6 for i < 3
  loop j.k < 3
    r0: float32 = max(g_r0_0[i, j.k])
  loop
    g_r0_4[i] = r0
  loop
    b[i] = g_r0_4[i]
  loop j.k < 3
    r1: float32 = sum(g_r1_1[i, j.k] * exp(g_r0_0[i, j.k] - b[i]))
  loop
    g_r1_5[i] = r1
"""


def body(group: object) -> str:
    assert isinstance(group, Group)
    return "".join(line for line in group_text(group).splitlines(True) if line.startswith(("group", " ")))


@pytest.mark.parametrize("text", [VARIANCE, SOFTMAX], ids=["variance", "softmax"])
@pytest.mark.parametrize("values", ["large", "hidden", "all hidden", "infinite", "nan"])
@pytest.mark.parametrize("longest", [1, 5, 16, 30])
def test_values(text, values, longest, monkeypatch):
    check(text, row_values(values), monkeypatch, longest)


def row_values(kind: str) -> torch.Tensor:
    """Three rows of 37."""
    a, inf = torch.randn(3, 37), float("inf")
    if kind == "large":
        a += 300
    elif kind == "nan":
        a[1, 20] = float("nan")
    else:
        a[0] = inf if kind == "infinite" else -inf
        a[1, 5:] = -inf
        a[2, :30] = -inf if kind != "infinite" else inf
        a[0, 30:] = -inf if kind == "all hidden" else 1.0
    return a


@pytest.mark.parametrize(("kind", "dtype"), [
    *itertools.product(("sum", "prod"), ("float32", "int64")), ("any", "bool"), ("all", "bool"),
    *itertools.product(("min", "max"), ("float32", "int64", "uint8", "bool")),
])  # fmt: skip
def test_rests(kind, dtype, monkeypatch):
    """The last of the parts of a prime number of elements is shorter."""
    text = f"input a: {dtype}[2, 37]\noutput b: {dtype}[2]\ngroup g for i < 2\n"
    text += f"  loop j < 37\n    r0: {dtype} = {kind}(a[i, j])\n  loop\n    b[i] = r0\noutput b\n"
    monkeypatch.setattr(split, "_parts", lambda *args: 5)
    for low, high in (0, 2), (1, 2), (-1, 0):
        a = torch.randint(low, high, (2, 37)).to(getattr(torch, dtype))
        after = check(text, a, monkeypatch)
        assert len(after.items) == 3


def test_a_loop_of_stores_alone_is_every_index_at_once(monkeypatch):
    text = HEAD + "  loop j < 37\n    c[i, j] = a[i, j] + 1.0\noutput c\n"
    (group,) = check(text, torch.randn(3, 37), monkeypatch).items
    assert isinstance(group, Group) and group.loops == (Loop((), group.loops[0].body),) and len(group.outer) == 2


def test_columns_beside_numbers_of_rows():
    """Sums of columns are tiles of columns, whatever else is read: here two numbers a row, along it."""
    program = parse_program("""\
input x: float32[6304, 768]
input m: float32[6304]
input s: float32[6304]
output b: float32[768]
group g for i < 768
  loop j < 6304
    r0: float32 = sum((x[j, i] - m[j]) * s[j])
  loop
    b[i] = r0
output b
""")
    (group,) = program.items
    made = split.spread(group)
    assert len(made) == 2
    (columns,) = plan.choose(ranges.simplify(made[0])).axes
    assert columns.block == WIDE_TILE


@pytest.mark.parametrize(
    "rows, columns, parts, own", [(8192, 2048, 32, 256), (2048, 768, 16, 128), (6304, 768, 32, 197)]
)
def test_columns_are_added_up_in_few_parts(rows, columns, parts, own):
    """So long that a program has several tiles to load, one after the other; rather fewer than many more."""
    program = parse_program(f"""\
input x: float32[{rows}, {columns}]
output b: float32[{columns}]
group g for i < {columns}
  loop j < {rows}
    r0: float32 = sum(x[j, i])
  loop
    b[i] = r0
output b
""")
    first, _ = split.spread(program.items[0])
    assert (count(first.outer), count(first.loops[0].inner)) == (parts * columns, own)
    (inner, _) = plan.choose(ranges.simplify(first)).inner
    assert inner.looped and inner.block == 32


def test_short_columns_are_many_to_a_program():
    program = parse_program("""\
input x: float32[64, 2, 4096]
output b: float32[64, 4096]
group g for i < 64, k < 4096
  loop j < 2
    r0: float32 = sum(x[i, j, k])
  loop
    b[i, k] = r0
output b
""")
    made = plan.choose(ranges.simplify(program.items[0]))
    assert made.axes[0].block * made.inner[0].block == plan.FLAT
