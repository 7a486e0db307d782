"""The memory behind tensors, which what is captured has none of: asked for between graphs."""

from __future__ import annotations

import pytest
import torch

import dovetail

#: Expressions of `x`, and of `y`, a part of it.
LINES = """
x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr(), x * 2
x.untyped_storage()._cdata == y.untyped_storage()._cdata, x.sin()
x.untyped_storage().nbytes() + y.storage_offset(), (x + y.sum()).cos()
(x * 2).untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
x.untyped_storage().resize_(x.untyped_storage().size()) is not None, x + 1
[s := x.untyped_storage(), s.fill_(1), x + 1][2]
x.new_empty(0).set_(x.untyped_storage(), 1, (2,), (2,)).sin()
type(x.storage()), x.cos()
""".strip().splitlines()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("line", LINES)
def test_as_eager(line):
    program = eval(f"lambda x, y: ({line})")
    compiled = dovetail.compile(program)
    for _ in range(2):
        (ours, given), (eager, expected) = ((f(x, x[1:]), x) for f in (compiled, program) for x in [torch.arange(4.0)])
        torch.testing.assert_close(ours, eager) if not isinstance(eager, tuple) else None
        assert repr(ours) == repr(eager)
        assert torch.equal(given, expected)
