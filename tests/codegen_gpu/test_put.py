"""Rows put into inputs at indices: what it means, and its GPU kernels under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from dovetail.ir import evaluate as evaluation
from dovetail.ir.loops import Group, LibraryCall
from dovetail.ir.spec import verify
from dovetail.options import Options
from dovetail.schedule import schedule
from tests.codegen_gpu.test_programs import _Machine
from tests.schedule import test_in_place
from tests.schedule.test_in_place import AT, A, B
from tests.schedule.test_meaning import lowered
from tests.traits import give_host

LAST = torch.tensor(3)


def put(x, y, i):
    x[:, i - 8] = y[0, :2]


#: Program, arguments, calls that are left.
CASES = {
    **{name: (*test_in_place.CASES[name][:2], 0) for name in ("cached", "cached by index", "decoded")},
    "cached in a transposed one": (*test_in_place.CASES["cached in a transposed one"][:2], 0),
    "from the end, a row for all": (put, (A, B, AT), 0),
    "one": (lambda x, y, i: x.index_copy_(1, i, y[:, 3:4]), (A, B, LAST), 0),
    "short indices": (lambda x, y, i: x.__setitem__(i, y[1:3]), (A, B, AT.int()), 0),
    "added": (lambda x, y, i: x.index_put_((i,), y[1:3], accumulate=True), (A, B, AT), 1),
    "of two": (lambda x, y, i: x.__setitem__((i, i), y[1, :2]), (A, B, AT), 1),
    "of a table": (lambda x, y, i: x.__setitem__(i[None], y[1:3]), (A, B, AT), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_meaning(name, monkeypatch):
    give_host(monkeypatch, puts=True)
    fn, args, left = CASES[name]
    program = schedule(lowered(fn, *args), Options())
    verify(program)
    assert sum(isinstance(item, LibraryCall) and "index" in item.name for item in program.items) == left
    eagers = [a.clone() for a in args]
    fn(*eagers)
    for run in (evaluation.evaluate, lambda *given: _Machine(*given).run()):
        ours = [a.clone() for a in args]
        run(program, ours)
        torch.testing.assert_close(ours, eagers)
        monkeypatch.setitem(evaluation._RUN, Group, _Machine.group)
