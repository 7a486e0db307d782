"""Adding at indices: what it means, and its GPU kernels under Triton's interpreter."""

from __future__ import annotations

import itertools

import pytest
import torch

from dovetail.codegen.gpu import generate, plan
from dovetail.ir import evaluate as evaluation
from dovetail.ir.loops import Group, LibraryCall
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.ir.text import program_text
from dovetail.ops.lowering import segment_sums
from dovetail.options import Options
from dovetail.runtime.gpu.loading import to_binary
from dovetail.schedule import schedule
from dovetail.schedule.gpu.split import spread
from tests.codegen_gpu.test_programs import _Machine
from tests.schedule.test_meaning import lowered
from tests.traits import give_host

aten = torch.ops.aten

MIXED = torch.tensor([3, 0, 3, 3, 9, 3, 5, 3, 3, 3, 3, 3, 3, 3, 0, 3, 3, 3, 3, 3, 3, 9, 5, 0, 3, 3, 1, 3])
ONE, SPREAD = torch.full((28,), 4), torch.arange(28) % 10
WORDS = MIXED.reshape(4, 7)
SIGNED = torch.where(torch.arange(28) % 3 == 0, MIXED - 10, MIXED)


def _grad(*sizes, dtype=torch.float32):
    return torch.linspace(-2, 2, torch.Size(sizes).numel()).sin().reshape(sizes).to(dtype)


def _embedding(padding=-1, rows=10):
    return lambda grad, words: aten.embedding_dense_backward(grad, words, rows, padding, False)


def _put(*sizes):
    return lambda values, *indices: aten.index_put(values.new_zeros(sizes), list(indices), values, True)


CASES = {
    "words": (_embedding(), (_grad(28, 33), MIXED)),
    "sentences": (_embedding(), (_grad(4, 7, 33), WORDS)),
    "one word": (_embedding(), (_grad(28, 33), ONE)),
    "all words": (_embedding(), (_grad(28, 33), SPREAD)),
    "halves": (_embedding(), (_grad(28, 33, dtype=torch.float16), MIXED)),
    "doubles": (_embedding(), (_grad(28, 33, dtype=torch.float64), MIXED)),
    "short indices": (_embedding(), (_grad(28, 33), MIXED.int())),
    "padding": (_embedding(padding=3), (_grad(4, 7, 33), WORDS)),
    "nothing but padding": (_embedding(padding=4), (_grad(28, 33), ONE)),
    "transposed": (_embedding(), (_grad(33, 28).t(), MIXED)),
    "computed": (lambda grad, words: _embedding()(grad.exp() * 2, words).sin(), (_grad(28, 33), MIXED)),
    "with another gradient": (lambda g, w, t: _embedding()(g, w) + t, (_grad(28, 33), MIXED, _grad(10, 33))),
    "index_add": (lambda x, i: x.new_zeros(10, 33).index_add(0, i, x, alpha=3), (_grad(28, 33), MIXED)),
    "index_add in the middle": (
        lambda x, i: x.new_zeros(3, 10, 32).index_add(1, i, x), (_grad(3, 28, 32), MIXED)
    ),
    "short integers": (
        lambda x, i: x.new_zeros(10, 33).index_add(0, i, x), ((_grad(28, 33) * 60).to(torch.int8), MIXED)
    ),
    "integers": (lambda x, i: x.new_zeros(10, 33).index_add(0, i, x), ((_grad(28, 33) * 100).int(), MIXED)),
    "scatter_add": (
        lambda x, i: x.new_zeros(10, 33).scatter_add(0, i[:, None].expand(-1, 33), x), (_grad(28, 33), MIXED)
    ),
    "index_put": (_put(10, 33), (_grad(28, 33), MIXED)),
    "index_put from the end": (_put(10, 33), (_grad(28, 33), SIGNED)),
    "index_put of two": (_put(10, 3, 33), (_grad(28, 33), MIXED, MIXED % 3)),
    "index_put of two apart": (_put(10, 3, 10, 33), (_grad(4, 7, 3, 33), WORDS, None, WORDS[:1])),
    "index_put behind": (_put(5, 10, 33), (_grad(5, 28, 33), None, MIXED)),
    "index_put of elements": (_put(10, 3), (_grad(28), MIXED, MIXED % 3)),
    "index_put of one value": (_put(10, 33), (_grad(1), MIXED)),
}


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    give_host(monkeypatch, sorts_to_add=True)


def _scheduled(name):
    fn, args = CASES[name]
    before = lowered(fn, *args)
    program = schedule(before, Options())
    items = [spread(item) if isinstance(item, Group) else (item,) for item in program.items]
    program = program.with_items(tuple(itertools.chain.from_iterable(items)))
    verify(program)
    calls = [item.operator for item in program.items if isinstance(item, LibraryCall)]
    assert calls == [aten.sort.stable] * (segment_sums.COMPARED == 0)
    return before, program


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("block", "few", "wide", "compared"), [(2, 3, True, 0), (4, 2, False, 28), (4, 10, True, 28), (8, 64, False, 0)]
)
def test_meaning(name, block, few, wide, compared, monkeypatch):
    """`wide`: rows by themselves."""
    monkeypatch.setattr(segment_sums, "COMPARED", compared)
    monkeypatch.setattr(segment_sums, "BLOCK", block)
    monkeypatch.setattr(segment_sums, "FEW", few)
    monkeypatch.setattr(plan, "FLAT", 32 if wide else 1024)
    args = [a for a in CASES[name][1] if a is not None]
    before, program = _scheduled(name)
    want = CASES[name][0](*CASES[name][1])
    plain, arranged = evaluation.evaluate(before, args), evaluation.evaluate(program, args)
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    for (got,) in (plain, arranged, _Machine(program, args).run()):
        tolerance = {torch.float16: 2e-2, torch.float64: 1e-12}.get(want.dtype, 1e-5)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    _, program = _scheduled(name)
    text = program_text(program)
    assert program_text(parse_program(text)) == text


@pytest.mark.parametrize("name", ["words", "halves", "index_put of two apart", "index_put of elements"])
@pytest.mark.parametrize("wide", [False, True], ids=["", "rows by themselves"])
def test_machine_code(name, wide, monkeypatch):
    monkeypatch.setattr(plan, "FLAT", 32 if wide else 1024)
    monkeypatch.setattr(segment_sums, "FEW", 2)
    for item in _scheduled(name)[1].items:
        if isinstance(item, Group):
            assert to_binary(generate(item), 90).code.startswith(b"\x7fELF")


@pytest.mark.parametrize("rows", [32767, 32768, 65535, 65536])
def test_row_numbers_are_short(rows, monkeypatch):
    monkeypatch.setattr(segment_sums, "COMPARED", 0)
    words = torch.tensor([0, 1, rows - 1, 32766, 0, 3, 2, 1, rows - 2, 3])
    grad = _grad(10, 32)
    program = lowered(_embedding(rows=rows), grad, words)
    keys = next(item for item in program.items if isinstance(item, LibraryCall)).args[0].buffer
    assert keys.dtype is (torch.int16 if rows < 65536 else torch.int32)
    torch.testing.assert_close(evaluation.evaluate(program, (grad, words))[0], _embedding(rows=rows)(grad, words))


def test_a_row_takes_as_many_steps_as_it_has_elements():
    groups = [item for item in _scheduled("words")[1].items if isinstance(item, Group)]
    assert "in range(tl.minimum(" in generate(groups[-1]).text


def test_what_follows_a_row_is_read_before_its_loop():
    def fn(grad, words, other, places):
        total = _embedding()(grad, words)
        return total * other + other[places], total.sin()

    group = schedule(lowered(fn, _grad(28, 33), MIXED, _grad(10, 33), torch.arange(10)), Options()).items[-1]
    before, _, after = generate(group).text.partition("    for ")
    reads = [line for line in before.splitlines() if "tl.load" in line]
    behind = [line for line in after.splitlines() if line[4] != " " and "tl.load" in line]
    assert not behind and "(x_1_ * " in reads[1] and len(reads) == 5, (reads, behind)


@pytest.mark.parametrize("fn", [
    lambda x, i: x.new_zeros(1000, 2).index_add(0, i, x[:, :2]),  # short rows
    lambda x, i: x.new_zeros(33, 10).index_add(1, i, x.t()),  # rows across memory
    lambda x, i: x[:10].index_add(0, i, x),  # to what is not zero
    lambda x, i: torch.arange(330.0).view(10, 33).index_add(0, i, x),
    lambda x, i: x.new_zeros(10, 28).scatter_add(0, i.expand(28, 28), x[:, :28]),  # each with rows of its own
])
def test_left_to_the_library(fn):
    program = lowered(fn, _grad(28, 33), MIXED)
    assert sum(isinstance(item, LibraryCall) for item in program.items) == 1
