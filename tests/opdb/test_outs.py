"""`out=` of a few operators: those with several results, one in 16 of the others. All: `python -m tests.opdb.outs`."""

from __future__ import annotations

import zlib

import pytest

from tests.opdb.outs import differences, operators

#: Composites that write to a view of what they are given, or that ignore it if it is no plain tensor.
COMPOSED = ("kron", "linalg_matrix_rank", "sort", "linalg_cond")
CHOSEN = [
    op for op in operators() if op.formatted_name in COMPOSED or zlib.crc32(op.formatted_name.encode()) % 16 == 0
]  # fmt: skip


@pytest.mark.parametrize("op", CHOSEN, ids=lambda op: op.formatted_name)
def test_operator(op):
    assert list(differences(op, 1)) == []
