"""The reference evaluator against torch, and the misdeeds that it catches."""

from __future__ import annotations

import pytest
import torch

from dovetail.errors import InternalError
from dovetail.ir.evaluate import evaluate
from dovetail.ir.parse import parse_program
from tests.ir.programs import arguments, random_program

X = torch.arange(24, dtype=torch.float32).reshape(4, 6).sub(7).div(3)


def run(body: str, *inputs: torch.Tensor, **constants: torch.Tensor) -> list:
    return evaluate(parse_program(body, constants), inputs)


def one(statement: str, x: torch.Tensor = X, dtype: str = "float32") -> torch.Tensor:
    rank = ", ".join(map(str, x.shape))
    name = str(x.dtype).removeprefix("torch.")
    return run(f"input x: {name}[{rank}]\noutput y: {dtype}[{rank}]\ngroup g for i < {x.shape[0]}, j < {x.shape[1]}\n"
               f"  loop\n    y[i, j] = {statement}\noutput y\n", x)[0]


@pytest.mark.parametrize("statement, expected", [
    ("x[i, j] * 2.0 + 1.0", X * 2 + 1),
    ("exp(x[i, j])", X.exp()),
    ("x[i, 5 - j]", X.flip(1)),
    ("x[3 - i, j // 2]", X.flip(0)[:, torch.arange(6) // 2]),
    ("where(x[i, j] > 0.0, x[i, j], -x[i, j])", X.abs()),
    ("x[i, j + 1] if index(j) < 5 else 0", torch.nn.functional.pad(X[:, 1:], (0, 1))),
    ("float32(index(6*i + j))", torch.arange(24.0).reshape(4, 6)),
    ("float32(bfloat16(x[i, j]))", X.bfloat16().float()),
    ("op('bitcast', float32, op('bitcast', int32, x[i, j]))", X),
    ("float32(int64(x[i, j]) // 2)", torch.div(X.long(), 2, rounding_mode="floor").float()),
    ("float32(int64(x[i, j]) // index(0*j))", torch.zeros(4, 6)),
    ("float32(fmod(int64(x[i, j]), index(i - 1)))",
     torch.stack([X[0].long().fmod(-1), torch.zeros(6), X[2].long().fmod(1), X[3].long().fmod(2)]).float()),
])
def test_pointwise(statement, expected):
    torch.testing.assert_close(one(statement), expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind, expected", [
    ("sum", lambda x: x.double().sum(1).float()), ("prod", lambda x: x.double().prod(1).float()),
    ("max", lambda x: x.amax(1)), ("min", lambda x: x.amin(1)),
])
@pytest.mark.parametrize("columns", [6, 1])
def test_reductions(kind, expected, columns):
    x = X[:, :columns].contiguous()
    (y,) = run(f"input x: float32[4, {columns}]\noutput y: float32[4]\ngroup g for i < 4\n  loop j < {columns}\n"
               f"    r: float32 = {kind}(x[i, j])\n  loop\n    y[i] = r\noutput y\n", x)
    torch.testing.assert_close(y, expected(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_positions_of_extremes_are_the_first_and_nan_wins(kind):
    x = torch.tensor([[1.0, 3.0, 3.0, 1.0], [0.0, float("nan"), 9.0, float("nan")]])
    (y,) = run(f"input x: float32[2, 4]\noutput y: int64[2]\ngroup g for i < 2\n  loop j < 2, k < 2\n"
               f"    r: int64 = {kind}(x[i, 2*j + k])\n  loop\n    y[i] = r\noutput y\n", x)
    assert y.tolist() == [1 if kind == "argmax" else 0, 1]


def test_empty_reductions_give_their_identity():
    text = """\
input x: float32[2, 0]
output y: float32[2]
output z: bool[2]
group g for i < 2
  loop j < 0
    r: float32 = sum(x[i, j])
    s: float32 = prod(x[i, j])
    u: bool = all(x[i, j] > 0.0)
    v: bool = any(x[i, j] > 0.0)
  loop
    y[i] = r + s
    z[i] = u & ~v
output y
output z
"""
    y, z = run(text, torch.empty(2, 0))
    assert y.tolist() == [1, 1] and z.tolist() == [True, True]


SOFTMAX = """\
size s0 >= 2
input x: float32[s0, 6]
output y: float32[s0, 6]
group g for i < s0
  local row: float32[6]
  loop j < 6
    r0: float32 = max(x[i, j])
  loop j < 6
    t0 = exp(x[i, j] - r0)
    row[j] = t0
    r1: float32 = sum(t0)
  loop j < 6
    y[i, j] = row[j] / r1
output y
output s0 * 2
"""


@pytest.mark.parametrize("rows", [4, 3])
def test_locals_and_symbolic_sizes(rows):
    y, twice = run(SOFTMAX, X[:rows])
    torch.testing.assert_close(y, X[:rows].softmax(1))
    assert twice == 2 * rows


def test_layouts_offsets_and_aliases():
    text = """\
input x: float32[3, 2] strides (2, 12)
temporary y: float32[2, 3] strides (1, 2)
group g for i < 2, j < 3
  loop
    y[i, j] = x[j, i] + 1.0
temporary v: float32[2] strides (2) offset 3
view v = y
output d: float32[2]
library add_0: d, = aten.add.Tensor(v, v)
output d
"""
    base = torch.arange(40.0)
    x = base.as_strided((3, 2), (2, 12), 1)
    (d,) = run(text, x)
    y = (x.t() + 1).t().contiguous().flatten()
    assert d.tolist() == (2 * y[[3, 5]]).tolist()


def test_mutation_and_constants():
    text = """\
input x: float32[4]
input c: float32[4]
constant c
output b: float32[4]
group g for i < 4
  loop
    b[i] = x[i] + c[i]
mutate x = b
output b
"""
    x = torch.zeros(4)
    (b,) = run(text, x, c=torch.ones(4))
    assert x.tolist() == b.tolist() == [1.0] * 4 and x.data_ptr() != b.data_ptr()


CHECK = """\
input x: float32[3, 2]
input k: int64[4]
output y: float32[4, 2]
group c for i < 4
  loop
    assert (k[i] >= 0) & (k[i] < 3), 'row out of range'
group g for i < 4, j < 2
  loop
    y[i, j] = x[value(k[i], 3), j]
output y
"""


def test_run_time_indices():
    x, k = torch.randn(3, 2), torch.tensor([2, 0, 0, 1])
    assert run(CHECK, x, k)[0].equal(x[k])


def test_a_failed_check_raises():
    with pytest.raises(IndexError, match="row out of range"):
        run(CHECK, torch.randn(3, 2), torch.tensor([2, 0, 3, 1]))


WRONG = [
    ("    y[i] = x[i + 1]", "leaves \\[0, 4\\)"),
    ("    y[0] = x[i]", "written twice"),
    ("    y[i] = x[value(index(i - 1), 4)]", "leaves"),
    ("    z[i] = y[i]", "read where nothing was written|before it is defined"),
    ("    y[i] = q", "before it is reduced"),
    ("    x[i] = 1.0", "writes the input"),
]


@pytest.mark.parametrize("statement, message", WRONG)
def test_misdeeds_are_caught(statement, message):
    if "= q" in statement:
        statement = "    q: float32 = sum(1.0)\n" + statement
    with pytest.raises(InternalError, match=message):
        declared = "input x: float32[4]\noutput y: float32[4]\noutput z: float32[4]\n"
        program = parse_program(f"{declared}group g for i < 4\n  loop\n{statement}\n")
        if "q:" in statement:
            loop = program.items[0].loops[0]
            program = program.with_items((program.items[0].__class__("g", program.items[0].outer,
                                                                     (loop.__class__((), loop.body[1:]),)),))
        evaluate(program, [torch.ones(4)])


OVERWRITTEN = """\
input x: float32[4]
temporary b: float32[4]
temporary c: float32[4]
output d: float32[4]
library l: b, = aten.neg.default(x)
view c = b
group g for i < 4
  loop
    c[i] = b[i] + 1.0
    STATEMENT
group h for i < 4
  loop
    d[i] = READ
output d
"""


def test_what_is_written_over_something_takes_its_place():
    assert run(OVERWRITTEN.replace("    STATEMENT\n", "").replace("READ", "c[i]"), X[0, :4])[0].equal(1 - X[0, :4])


@pytest.mark.parametrize("statement, read", [("", "b[i]"), ("", "b[0] + c[i]"), ("b4[i] = b[i]", "c[i]")])
def test_what_was_overwritten_is_not_read(statement, read):
    text = OVERWRITTEN.replace("    STATEMENT\n", f"    {statement}\n" if statement else "").replace("READ", read)
    with pytest.raises(InternalError, match="b is read where nothing was written"):
        run(text.replace("output d:", "temporary b4: float32[4]\noutput d:"), X[0, :4])


def test_a_library_call_must_give_what_the_program_says():
    with pytest.raises(InternalError, match=r"gave torch\.float32"):
        run("input x: float32[4]\noutput y: float32[3]\nlibrary l: y, = aten.neg.default(x)\noutput y\n", torch.ones(4))


def test_random_programs_run():
    for seed in range(30):
        program = random_program(seed)
        first = evaluate(program, arguments(program, seed))
        again = evaluate(program, arguments(program, seed))
        for a, b in zip(first, again, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0) if isinstance(a, torch.Tensor) else a == b
