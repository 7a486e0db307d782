"""Scans: their meaning, what they share a kernel with, and GPU kernels of them under Triton's interpreter."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from dovetail.codegen.gpu import generate
from dovetail.ir import evaluate as evaluation
from dovetail.ir.loops import Group, LibraryCall
from dovetail.ir.parse import parse_program
from dovetail.ir.spec import verify
from dovetail.ir.text import program_text
from dovetail.options import Options
from dovetail.runtime.gpu.loading import to_binary
from dovetail.schedule import schedule
from dovetail.schedule.gpu.split import spread
from tests.codegen_gpu.test_programs import _Machine
from tests.schedule.test_meaning import lowered
from tests.traits import give_host

X = torch.linspace(-2, 2, 24 * 20).reshape(24, 20).sin()
TALL = torch.linspace(-1, 1, 3 * 7 * 5).reshape(3, 7, 5)
INF, NAN = math.inf, math.nan
SPECIAL = torch.tensor([[1.0, INF, -INF, 0.0], [-INF, -INF, 1.0, NAN], [INF, 1.0, INF, 2.0]])
TIES = torch.tensor([[1.0, 1.0, 0.0, 2.0, 2.0], [NAN, 1.0, NAN, 3.0, 0.0], [-1.0, -2.0, -1.0, -1.0, -3.0]])

CASES = {
    # function, arguments, kernels
    "sum": (lambda x: x.cumsum(-1), (X,), 1),
    "sum of integers": (lambda x: (x * 9).int().cumsum(1), (X,), 1),
    "sum of truth": (lambda x: (x > 0).cumsum(-1), (X,), 1),
    "sum of halves": (lambda x: x.bfloat16().cumsum(-1), (X,), 1),
    "sum in doubles": (lambda x: x.cumsum(-1, dtype=torch.float64), (X,), 1),
    "sum across memory": (lambda x: x.cumsum(0), (X,), 1),
    "sum in the middle": (lambda x: x.cumsum(1), (TALL,), 1),
    "product": (lambda x: x.cumprod(-1), (X,), 1),
    "log": (lambda x: x.logcumsumexp(-1), (X,), 1),
    "log of special values": (lambda x: x.logcumsumexp(-1), (SPECIAL,), 1),
    "maximum": (lambda x: x.cummax(-1), (X,), 1),
    "minimum across memory": (lambda x: x.cummin(0), (X,), 1),
    "ties": (lambda x: (*x.cummax(-1), *x.cummin(-1)), (TIES,), None),
    "halves": (lambda x: x.half().cummax(-1), (X,), 1),
    "with what surrounds it": (lambda x: (x.exp() * 2).cumsum(-1).sin() + x, (X,), 1),
    "after a reduction of the row": (lambda x: torch.softmax(x, -1).cumsum(-1) * 2, (X,), 1),
    "normalized": (lambda x: F.layer_norm(x.cumsum(-1), (20,)), (X,), 1),
    "a scan of a scan": (lambda x: x.cumsum(-1).cumsum(-1), (X,), 1),
    "both ways": (lambda x: x.cumsum(-1) + x.cumsum(0), (X,), 2),
    "then a sum of everything": (lambda x: x.cumsum(-1).sum(), (X,), None),
    "then over two dimensions": (lambda x: F.layer_norm(x.cumsum(-1), (7, 5)), (TALL,), None),
    "read backwards": (lambda x: x.flip(-1).cumsum(-1).flip(-1), (X,), 2),
    "rows that one loop divides": (
        lambda x: x.reshape(-1).flip(0).cumsum(0) * x.permute(2, 1, 0).reshape(-1), (TALL,), 1,
    ),
    "of one": (lambda x: x[:, :1].cumsum(1), (X,), 1),
    "empty": (lambda x: x[:0].cumsum(1), (X,), None),
    "masked rows": (lambda x: x[:, 3:].cumsum(1)[:, 2:] * 2, (X,), None),
}


@pytest.fixture(autouse=True)
def _scanned_in_kernels(monkeypatch):
    give_host(monkeypatch, scans=True)


def _scheduled(name):
    fn, args, _ = CASES[name]
    before = lowered(fn, *args)
    program = schedule(before, Options())
    items = [spread(item) if isinstance(item, Group) else (item,) for item in program.items]
    program = program.with_items(tuple(itertools.chain.from_iterable(items)))
    verify(program)
    assert not any(isinstance(item, LibraryCall) for item in program.items)
    return before, program


@pytest.mark.parametrize("name", CASES)
def test_meaning(name, monkeypatch):
    fn, args, count = CASES[name]
    before, program = _scheduled(name)
    assert count is None or len(program.items) == count
    want = fn(*args)
    want = list(want) if isinstance(want, tuple) else [want]
    plain, arranged = evaluation.evaluate(before, args), evaluation.evaluate(program, args)
    monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
    for got in (plain, arranged, _Machine(program, args).run()):
        for g, w in zip(got, want, strict=True):
            tolerance = 2e-2 if w.dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    _, program = _scheduled(name)
    text = program_text(program)
    assert program_text(parse_program(text)) == text


@pytest.mark.parametrize("name", ["sum across memory", "log", "maximum", "normalized", "product", "sum of integers"])
def test_machine_code(name):
    _, program = _scheduled(name)
    for item in program.items:
        assert to_binary(generate(item), 90).code.startswith(b"\x7fELF")


@pytest.mark.parametrize("shape", [(2, 20000), (2000, 2)])
def test_long_rows_are_left_to_the_library(shape):
    program = lowered(lambda x: x.cumsum(0 if len(x) > 2 else 1), torch.empty(shape))
    assert [type(item) for item in program.items] == [LibraryCall]
