"""Kernels write over inputs that die there, where nobody can tell."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.codegen import cpu
from dovetail.codegen.host import program as host
from dovetail.codegen.host.library_calls import HAS_OUT
from dovetail.ir import dims
from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Batch, Group, Program, View
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.ir.text import program_text
from dovetail.options import Options
from dovetail.runtime import cpu as cpu_runtime
from dovetail.runtime.call import program as program_runtime
from dovetail.schedule import gather, plan_memory, reuse, schedule
from dovetail.schedule.memory import block
from tests.schedule.test_meaning import lowered

HEAD = """\
input a0: float32[6, 8]
input a1: float32[8, 8]
temporary b1: float32[6, 8]
temporary b2: float32[6, 8]
temporary b3: float32[6, 8]
temporary b4: float32[48]
output c: float32[6, 8]
output d: float32[6, 8]
output e: float32[6]
"""
MM = "library mm: b1, = aten.mm.default(a0, a1)\n"
ENDS = "library mm_2: c, = aten.mm.default(b2, a1)\noutput c\n"


def group(*loops: str, name: str = "g", outer: str = "i < 6") -> str:
    """Each loop is its ranges, a colon and statements."""
    lines = [f"group {name} for {outer}"]
    for loop in loops:
        inner, _, body = loop.partition(": ")
        lines += [f"  loop {inner}".rstrip(), *(f"    {statement}" for statement in body.split(" ; "))]
    return "\n".join(lines) + "\n"


def flat(body: str, name: str = "g") -> str:
    return group(f": {body}", name=name, outer="i < 6, j < 8")


SIN = flat("b2[i, j] = sin(b1[i, j])")
ROWS = ("j < 8: m: float32 = max(b1[i, j])", "k < 8: s: float32 = sum(exp(b1[i, k] - m))")

#: Program, which results lie over what.
WRITTEN_OVER = {
    "a product": (HEAD + MM + SIN + ENDS, {"b2": "b1"}),
    "a kernel's result": (HEAD + flat("b1[i, j] = exp(a0[i, j])", "f") + SIN + ENDS, {"b2": "b1"}),
    "under other sizes": (
        HEAD + MM + group(": b4[k] = b1[k // 8, k % 8] + 1.0", outer="k < 48")
        + "view b2 = b4\n" + ENDS, {"b4": "b1"}),
    "through a view": (
        HEAD + MM + "view b4 = b1\n" + group(": b2[k // 8, k % 8] = b4[k] + 1.0", outer="k < 48") + ENDS, {"b2": "b1"}),
    "at another element of the index, but the same in memory": (
        HEAD.replace("b2: float32[6, 8]", "b2: float32[8, 6] strides (1, 8)") + MM + flat("b2[j, i] = sin(b1[i, j])")
        + "output q: float32[6, 6]\nlibrary mm_2: q, = aten.mm.default(a0, b2)\noutput q\n", {"b2": "b1"}),
    "one after the other": (
        HEAD + MM + SIN + flat("b3[i, j] = b2[i, j] * a0[i, j]", "h")
        + ENDS.replace("b2", "b3"), {"b2": "b1", "b3": "b2"}),
    "read in earlier loops": (
        HEAD + MM + group(*ROWS, "l < 8: b2[i, l] = exp(b1[i, l] - m) / s") + ENDS, {"b2": "b1"}),
    "one of two results": (HEAD + MM + flat("c[i, j] = b1[i, j] ; d[i, j] = cos(b1[i, j])") + "output c\noutput d\n",
                           {"d": "b1"}),
    "one of two inputs": (
        HEAD + MM + "library mm_3: b3, = aten.mm.default(a0, a1)\n" + flat("b2[i, j] = b1[i, j] + b3[i, j]") + ENDS,
        {"b2": "b3"}),
    "read where a condition holds": (
        HEAD + MM + flat("b2[i, j] = b1[i, j] if index(j) < 7 else 0") + ENDS, {"b2": "b1"}),
    "returned": (HEAD + MM + flat("c[i, j] = sin(b1[i, j])") + "output c\n", {"c": "b1"}),
    "what a library that may keep it sees is the last thing there": (
        HEAD + MM + SIN + "library seen: d, = aten.relu.default(b2)\n" + flat("b3[i, j] = b2[i, j] + 1.0", "h")
        + ENDS.replace("b2", "b3") + "output d\n", {"b2": "b1"}),
    "a new value of an input": (HEAD + MM + flat("c[i, j] = sin(b1[i, j])") + "mutate a0 = c\n", {"c": "b1"}),
}  # fmt: skip

#: Nothing may be written over anything.
APART = {
    "an input of the program": HEAD + flat("b2[i, j] = sin(a0[i, j])") + ENDS,
    "an input that is written to": HEAD + MM + flat("a0[i, j] = sin(b1[i, j])") + "mutate a0 = a0\n",
    "read by a later kernel": (
        HEAD + MM + SIN + flat("d[i, j] = b1[i, j] + b2[i, 7 - j] + b1[5 - i, j]", "h") + "output d\n"),
    "read by a later call": HEAD + MM + SIN + ENDS + "library late: d, = aten.mm.default(b1, a1)\noutput d\n",
    "read later through a view": (
        HEAD + MM + "view b4 = b1\n" + SIN + ENDS
        + "output f: float32[48]\ngroup h for k < 48\n  loop\n    f[k] = b4[k]\noutput f\n"),
    "returned": HEAD + MM + SIN + ENDS + "output b1\n",
    "returned through a view": HEAD + MM + "view b4 = b1\n" + SIN + ENDS + "output b4\n",
    "what an input becomes": HEAD + MM + SIN + ENDS + "mutate a0 = b1\n",
    "returned under other sizes": (
        HEAD + MM + "output f: float32[48]\n" + group(": f[k] = b1[k // 8, k % 8]", outer="k < 48") + "output f\n"),
    "made by the same kernel": (
        HEAD + group("j < 8: b1[i, j] = exp(a0[i, j]) ; s: float32 = sum(exp(a0[i, j]))",
                     "k < 8: b2[i, k] = b1[i, k] / s") + ENDS),
    "read at another place": HEAD + MM + flat("b2[i, j] = b1[i, 7 - j]") + ENDS,
    "read at another place too": HEAD + MM + flat("b2[i, j] = b1[i, j] + b1[5 - i, j]") + ENDS,
    "one element for all": HEAD + MM + flat("b2[i, j] = b1[i, j] - b1[i, 0]") + ENDS,
    "transposed": HEAD.replace("a0: float32[6, 8]", "a0: float32[8, 8]").replace("[6, 8]", "[8, 8]")
    + MM + group(": b2[i, j] = b1[j, i]", outer="i < 8, j < 8") + ENDS,
    "a neighbour where there is one": (
        HEAD + MM + flat("b2[i, j] = b1[i, j] + (b1[i, j + 1] if index(j) < 7 else 0)") + ENDS),
    "read by a later statement": (
        HEAD + MM + flat("b2[i, j] = b1[i, j] ; b4[8*i + 7 - j] = b1[i, j]") + ENDS + "output b4\n"),
    "read by a later loop": (
        HEAD + MM + group("j < 8: b2[i, j] = exp(b1[i, j])", "k < 8: s: float32 = sum(b1[i, k])", ": e[i] = s") + ENDS
        + "output e\n"),
    "an earlier loop reads what another row writes": (
        HEAD + MM + group("j < 8: s: float32 = sum(b1[5 - i, j])", "k < 8: b2[i, k] = b1[i, k] / s") + ENDS),
    "another type": HEAD.replace("b2: float32", "b2: int32") + MM + flat("b2[i, j] = int32(b1[i, j])") + "output b2\n",
    "a part": HEAD.replace("b2: float32[6, 8]", "b2: float32[3, 8]") + MM
    + group(": b2[i, j] = b1[i, j]", outer="i < 3, j < 8")
    + "output q: float32[3, 8]\nlibrary mm_2: q, = aten.mm.default(b2, a1)\noutput q\n",
    "written by two kernels": (
        HEAD + MM + group(": b2[i, j] = b1[i, j]", outer="i < 3, j < 8")
        + group(": b2[i + 3, j] = b1[i + 3, j]", name="h", outer="i < 3, j < 8") + ENDS),
    "a library's that may keep it": HEAD + MM.replace("mm.default(a0, a1)", "relu.default(a0)") + SIN + ENDS,
    "seen by a library that may keep it": (
        HEAD + MM + "library seen: d, = aten.relu.default(b1)\n" + SIN + ENDS + "output d\n"),
    "shorter than another loop of its kernel": (
        HEAD + "input a2: float32[8]\ntemporary b5: float32[6]\nlibrary mv: b5, = aten.mv.default(a0, a2)\n"
        + group("j < 8: s: float32 = sum(a0[i, j])", ": e[i] = s + b5[i]") + "output e\n"),
}  # fmt: skip


def over(program: Program) -> dict[str, str]:
    stored = {name for item in program.items if isinstance(item, Group) for name in _stored(item)}
    return {v.result.name: v.base.name for v in program.items if isinstance(v, View) and v.result.name in stored}


def _stored(group: Group) -> set[str]:
    return {s.buffer.name for s in group.statements() if hasattr(s, "buffer")}


def arguments(program: Program) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(b.sizes, generator=generator) for b in program.inputs]


def compiled(program: Program):
    """The program with machine code, as the pipeline makes it."""
    groups = [g for item in program.items if isinstance(item, (Group, Batch)) for g in getattr(item, "groups", (item,))]
    kernels = {g.name: cpu.generate(g) for g in groups}
    kernels |= {i.name: cpu.generate(i.groups[0], many=True) for i in program.items if isinstance(i, Batch)}
    text = host.generate(program, kernels, plan_memory(program, HAS_OUT))
    return program_runtime.load(text, cpu_runtime.load(list(text.kernels)))


def check(before: Program, after: Program, args: list[torch.Tensor]) -> None:
    """Both mean the same to the evaluator, and what is made of the latter does it, more than once."""
    want_args = [a.clone() for a in args]
    want = evaluate(before, want_args)
    run = compiled(after)
    for call in (lambda *inputs: evaluate(after, inputs), run, run, run):
        given = [a.clone() for a in args]
        got = call(*given)
        torch.testing.assert_close(list(got), list(want), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(given, want_args, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WRITTEN_OVER)
def test_written_over(name):
    text, expected = WRITTEN_OVER[name]
    before = parse_program(text)
    verify(before)
    after = reuse(before)
    verify(after)
    assert over(after) == expected and reuse(after).items == after.items
    assert program_text(parse_program(program_text(after))) == program_text(after)
    check(before, after, arguments(before))


@pytest.mark.parametrize("name", APART)
def test_apart(name):
    before = parse_program(APART[name])
    verify(before)
    after = reuse(before)
    assert over(after) == {}
    check(before, after, arguments(before))


#: How a group may read a buffer of 8 x 8.
PLACES = ("i, j", "i, j", "i, j", "j, i", "7 - i, j", "i, 0", "0, j", "i, 7 - j")


class Maker:
    """A random program of kernels and products, most of them of what was computed before."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = ["input a0: float32[8, 8]", "input a1: float32[8, 8]"]
        self.known = ["a0", "a1"]

    def new(self) -> str:
        name = f"b{len(self.lines)}"
        self.lines.append(f"temporary {name}: float32[8, 8]")
        return name

    def old(self) -> str:
        return self.random.choice(self.known[-3:])

    def program(self) -> Program:
        for number in range(self.random.randint(3, 7)):
            made = self.random.choice((self.product, self.kernel, self.kernel, self.rows))(number)
            self.known += made
        outputs = {self.known[-1], *self.random.sample(self.known[2:], 1)}
        return parse_program("\n".join([*self.lines, *(f"output {name}" for name in sorted(outputs))]) + "\n")

    def product(self, number: int) -> list[str]:
        made = self.new()
        self.lines.append(f"library l{number}: {made}, = aten.mm.default({self.old()}, {self.old()})")
        return [made]

    def value(self, j: str) -> str:
        places = [self.random.choice(PLACES).replace("j", j) for _ in range(self.random.randint(1, 2))]
        return " + ".join(f"0.25 * sin({self.old()}[{place}])" for place in places)

    def kernel(self, number: int) -> list[str]:
        made = [self.new() for _ in range(self.random.randint(1, 2))]
        self.lines += [f"group g{number} for i < 8, j < 8", "  loop"]
        self.lines += [f"    {name}[i, j] = {self.value('j')}" for name in made]
        return made

    def rows(self, number: int) -> list[str]:
        """Reductions, then one or two results; rows are read as far as they are this row's, or anybody's."""
        made = [self.new() for _ in range(self.random.randint(1, 2))]
        self.lines.append(f"group g{number} for i < 8")
        self.lines += ["  loop k < 8", f"    s{number}: float32 = max({self.value('k')})"]
        for k, (name, j) in enumerate(zip(made, "lm")):
            more = f" - {made[0]}[i, {j}]" if k and self.random.random() < 0.5 else ""
            self.lines += [f"  loop {j} < 8", f"    {name}[i, {j}] = {self.value(j)} - s{number}{more}"]
        return made


def test_random_programs():
    written = 0
    for seed in range(75):
        before = Maker(seed).program()
        verify(before)
        after = reuse(before)
        verify(after)
        written += len(over(after))
        check(before, after, arguments(before))
    assert written > 50


# ---------------------------------------------------------------- from the user's side


A, W, V = torch.linspace(-2, 2, 48).reshape(6, 8), torch.linspace(-1, 1, 128).reshape(8, 16), torch.ones(16, 8) / 7


def scheduled(fn, *args) -> Program:
    program = schedule(lowered(fn, *args), Options())
    return gather(program, {g.name: cpu.generate(g) for g in program.items if isinstance(g, Group)})


def test_an_expanded_layer_takes_one_block(monkeypatch):
    """The activation of a transformer's inner layer, which products lie around."""
    program = scheduled(lambda x, w, v: F.gelu(x.view(2, 3, 8) @ w) @ v, A, W, V)
    before, after = plan_memory(program, HAS_OUT).size, plan_memory(reuse(program), HAS_OUT).size
    expanded = 6 * 16 * 4
    assert before - after == expanded


def test_sizes_that_vary():
    def fn(x, w, v):
        return F.gelu(x @ w) @ v

    call = dovetail.compile(fn, dynamic=True)
    for rows in (6, 9, 64, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(call(x, W, V), fn(x, W, V))
    program = reuse(
        parse_program("""\
size s0 >= 2
input x: float32[s0, 8]
input w: float32[8, 8]
temporary b: float32[s0, 8]
temporary c: float32[s0, 8]
output d: float32[s0, 8]
library mm: b, = aten.mm.default(x, w)
group g for i < s0, j < 8
  loop
    c[i, j] = b[i, j] + 1.0
library mm_2: d, = aten.mm.default(c, w)
output d
""")
    )
    assert over(program) == {"c": "b"} and len(plan_memory(program, HAS_OUT).slots) == 1
    assert all(isinstance(s, dims.Poly) for s in plan_memory(program, HAS_OUT).slots[0])


@pytest.mark.parametrize("largest", [block.LARGEST_BLOCK, 0])
def test_results_of_calls_are_the_callers_own(monkeypatch, largest):
    """What is returned in memory that a call before it has left is not written to by the next call."""
    monkeypatch.setattr(block, "LARGEST_BLOCK", largest)

    def fn(x, w, v):
        y = torch.softmax(x @ w, -1)
        return y, (y @ v).tanh(), F.gelu(x @ w) @ v

    call = dovetail.compile(fn)
    inputs = [torch.randn(6, 8) for _ in range(4)]
    kept = [call(x, W, V) for x in inputs]
    for x, got in zip(inputs, kept, strict=True):
        torch.testing.assert_close(got, fn(x, W, V))
    assert not any(t._is_view() for got in kept for t in got)
    assert len({t.untyped_storage().data_ptr() for got in kept for t in got}) == 12


def test_what_a_users_operator_gave_is_left_alone():
    given = torch.ones(6, 8)

    @torch.library.custom_op("reuse::constant", mutates_args=())
    def constant(x: torch.Tensor) -> torch.Tensor:
        return given

    constant.register_fake(torch.empty_like)
    call = dovetail.compile(lambda x: (constant(x) + x).sin() @ W)
    for _ in range(3):
        call(A)
    assert given.eq(1).all()


def test_kernels_of_one_launch_are_left_what_they_read():
    """Groups of a batch run in any order."""
    text = HEAD.replace("[6, 8]", "[8, 8]") + MM
    text += (
        "".join(
            group(f": {to}[i, j] = b1[i, j] * {by}[i, j]", name=f"g{to}", outer="i < 8, j < 8")
            for to, by in (("c", "a0"), ("d", "a1"))
        )
        + "output c\noutput d\n"
    )
    program = parse_program(text)
    product, first, second = program.items
    batch = program.with_items((product, Batch("both", (first, second))))
    assert over(reuse(program)) == {"d": "b1"} and reuse(batch).items == batch.items


def test_training():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8), torch.nn.Softmax(-1))
    x = torch.randn(6, 8, requires_grad=True)
    call = dovetail.compile(layers)
    for _ in range(3):
        gradients = []
        for fn in (layers, call):
            fn(x).square().sum().backward()
            gradients.append([x.grad, *(p.grad for p in layers.parameters())])
            x.grad = None
            layers.zero_grad()
        torch.testing.assert_close(*gradients)
