"""Each way in which a program can be illegal, and the words that say so."""

from __future__ import annotations

import re

import pytest

from dovetail.errors import VerificationError
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import problems, verify

HEAD = """\
input a0: float32[4, 6]
input a1: int64[4]
input a2: float16[4, 6]
input a3: bool[4, 6]
output b0: float32[4, 6]
temporary b1: float32[4, 6]
temporary b2: float32[4]
"""


def group(body: str, head: str = "group g for i < 4, j < 6\n  loop") -> str:
    lines = "\n".join(f"    {line}" for line in body.split(" ; "))
    return f"{HEAD}{head}\n{lines}\noutput b0\n"


REDUCING = "group g for i < 4\n  loop j < 6"
ROW = "group g for i < 4\n  local row: float32[6]\n  loop j < 6"

#: b0 is written over b1.
OVER = "view b0 = b1\ngroup h for i < 4, j < 6\n  loop\n    b0[i, j] = b1[i, j] + 1.0\n"

LEGAL = [
    group("b0[i, j] = a0[i, j] + 1.0"),
    group("row[j] = a0[i, j] ; r: float32 = sum(row[j]) ; b0[i, j] = row[j]", ROW),
    group("b0[i, j] = a0[i, j + 1] if index(j) < 5 else 0"),
    group("b0[i, j] = a0[value(a1[i], 4), j]"),
    group("b0[i, 5 - j] = float32(a2[i, j])"),
    group("b0[i, 2*j] = 1.0", "group g for i < 4, j < 3\n  loop").replace("output b0\n", "") +
    "group h for i < 4, j < 3\n  loop\n    b0[i, 2*j + 1] = 2.0\noutput b0\n",
    group("b1[i, j] = a0[i, j]") .replace("output b0\n", "") + "mutate a0 = b1\n",
    group("b1[i, j] = a0[i, j] ; b0[i, j] = b1[i, j]"),
    HEAD + "output a0\noutput 3\n",
    group("b1[i, j] = a0[i, j]").replace("output b0\n", "") + OVER + "output b0\n",
]

CALL = "library l: b2, = aten.sum.default(a0)\n"
ILLEGAL = [
    (group("b0[i, j] = b1[i, j]"), "b1 is read before anything writes it"),
    (HEAD + "output b0\n", "output 0 is b0, which nothing writes"),
    (group("b0[i, j] = 1.0") + "output a0 in bucket 0\n", "output 0 is in no bucket"),
    (HEAD + "mutate a0 = b1\n", "the new value b1 of a0 is never written"),
    (group("a0[i, j] = 1.0 ; b0[i, j] = 2.0"), "g writes the input a0"),
    (group("b0[i, j] = a0[i, j + 1]"), "index j \\+ 1 of a0 reaches 6, beyond its size 6"),
    (group("b0[i, j] = a0[i, j - 1]"), "index j - 1 of a0 reaches -1"),
    (group("b0[i, 0] = a0[i, j]"), "an element of b0 is written twice"),
    (group("b0[i, j] = 1.0 ; b0[i, 5 - j] = 1.0"), "an element of b0 is written twice"),
    (group("b0[i, j // 2] = 1.0"), "an element of b0 is written twice"),
    (group("b0[i, j] = op('add', float32, a0[i, j], const(1.0, float64))"), "add of torch.float32, torch.float64"),
    (group("b0[i, j] = op('add', float32, a0[i, j])"), "unknown operator add/1"),
    (group("b0[i, j] = op('frob', float32, a0[i, j])"), "unknown operator frob/1"),
    (group("b0[i, j] = op('lt', float32, a0[i, j], 1.0)"), "lt of torch.float32 is torch.bool"),
    (group("b0[i, j] = float32(a2[i, j] + a2[i, j])"), "add of torch.float16, outside its domain"),
    (group("b0[i, j] = float32(exp(a1[i]))"), "exp of torch.int64, outside its domain"),
    (group("b0[i, j] = float32(a3[i, j] + a3[i, j])"), "add of torch.bool, outside its domain"),
    (group("b0[i, j] = float32(a2[i, j] & a2[i, j])"), "and of torch.float16"),
    (group("b0[i, j] = where(a1[i], 1.0, 2.0)"), "where's condition is torch.int64"),
    (group("b0[i, j] = a2[i, j]"), "b0 of torch.float32 is given torch.float16"),
    (group("b0[i, j] = float32(const(300, uint8))"), "the constant 300 does not fit"),
    (group("b0[i, j] = const(1, float32)"), "the constant 1 has dtype torch.float32"),
    (group("b0[i, j] = op('bitcast', float32, a2[i, j])"), "bitcast from torch.float16"),
    (group("r: float32 = sum(a0[i, j]) ; b0[i, j] = r", REDUCING), "r is used before it is reduced"),
    (group("r: float64 = sum(a0[i, j])", REDUCING), "r is torch.float64"),
    (group("r: int64 = total(a1[i])", REDUCING), "unknown kind 'total'"),
    (group("r: float32 = any(a0[i, j])", REDUCING), "any of torch.float32"),
    (group("r: float16 = sum(a2[i, j])", REDUCING), "accumulates in torch.float16"),
    (group("b0[i, j] = a0[i, j] if a1[i] else 0"), "the mask of .* is torch.int64"),
    (group("assert a1[i], 'bad' ; b0[i, j] = 1.0"), "a check's condition is torch.int64"),
    (group("b1[i, j] = a0[i, j] ; b0[i, j] = b1[3 - i, j]"), "an outer index reads b1"),
    (group("row[j] = a0[i, j] ; b0[i, j] = row[5 - j]", ROW), "an iteration reads row"),
    (group("row[j] = row[j]", ROW), "row is read before anything writes it"),
    (group("b1[i, i] = 1.0", "group g for i < 4\n  loop i < 4"), "the range i is bound twice"),
    (HEAD + "temporary v: float32[30]\nview v = b1\n", "b1 is read before anything writes it"),
    (group("b0[i, j] = 1.0") + "temporary v: float32[30]\nview v = b0\n", "the view v leaves the memory of b0"),
    (HEAD + "library l: b2, = aten.sum.default(b1)\n", "b1 is read before anything writes it"),
    (group("b1[i, j] = a0[i, j]") + OVER + "library m: b2, = aten.sum.default(b1)\n",
     "m reads b1, which b0 has overwritten"),
    (group("b1[i, j] = a0[i, j]") + "temporary v: float32[24]\nview v = b1\n" + OVER + "output v\n",
     "v outlives the program, and b0 has overwritten it"),
    (group("b1[i, j] = a0[i, j]") + OVER.replace("b1[i, j]", "b1[3 - i, j]"), "an outer index reads b1"),
    (group("b1[i, j] = a0[i, j]").replace("b1: float32", "b1: int32").replace("a0[i, j]", "int32(a0[i, j])")
     + OVER.replace("b1[i, j]", "1.0"), "b0 is written over b1, which has another dtype"),
    (HEAD + OVER.replace("b1", "a0"), "h writes the input a0"),
    (HEAD + CALL + "library m: b2, = aten.sum.default(a0)\n", "the name b2 is used twice"),
    (HEAD + CALL + "library l: b1, = aten.sum.default(a0)\n", "the name l is used twice"),
    ("input a0: float32[4, -6]\noutput a0\n", "a0 has a negative size"),
]


@pytest.mark.parametrize("text", LEGAL)
def test_legal(text):
    assert list(problems(parse_program(text))) == []


@pytest.mark.parametrize("text, message", ILLEGAL, ids=[m for _, m in ILLEGAL])
def test_illegal(text, message):
    program = parse_program(text)
    found = [f"{place}: {problem}" for place, problem in problems(program)]
    assert any(re.search(message, line) for line in found), found
    with pytest.raises(VerificationError):
        verify(program)


def test_the_place_is_named():
    with pytest.raises(VerificationError, match=r"^verify: g: "):
        verify(parse_program(group("b0[i, j] = b1[i, j]")))


def test_symbolic_sizes_are_taken_as_legal():
    verify(parse_program("""\
size s0 >= 2
input a0: float32[s0, 8]
output b0: float32[s0, 8]
group g for i < s0
  loop j < 8
    b0[i, j] = a0[i, j] * 2.0
output b0
"""))
