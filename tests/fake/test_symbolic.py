"""A fixed part of the operator database with symbolic sizes. The whole of it: `python -m tests.fake.symbolic`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fake.symbolic import cases, check, floats
from tests.opdb.entries import Entry
from tests.opdb.test_opdb import chosen
from tests.versions import since


@pytest.mark.parametrize("entry", chosen(floats(), 8, 1), ids=lambda e: e.name)
def test_sizes_are_eagers(entry: Entry) -> None:
    wrong = [found.wrong for case, size in cases(entry, 1) if (found := check(case, size)) is not None and found.wrong]
    assert wrong == []


#: Operators of which no size may be made a constant.
FREE = ("addmm", "bmm", "softmax", "cat", "cumsum", "gather", "index_select", "matmul", "mean", "nn_functional_gelu",
        "nn_functional_max_pool2d", "nn_functional_scaled_dot_product_attention", "permute", "sum", "where")


PARITY = since(12, "the meta kernel of a pool with ceil_mode asks for the remainder's sign")


def _free(entry: Entry) -> Any:
    marks = [PARITY] if entry.op.formatted_name == "nn_functional_max_pool2d" else []
    return pytest.param(entry, id=entry.name, marks=marks)


@pytest.mark.parametrize("entry", [_free(e) for e in floats() if e.op.formatted_name in FREE])
def test_sizes_stay_free(entry: Entry) -> None:
    found = [check(case, size) for case, size in cases(entry, 1)]
    assert all(f is None or f.free and not f.wrong for f in found)
