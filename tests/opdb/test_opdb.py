"""A fixed part of the operator database, through `dovetail.compile`, against eager.

Every entry with float32 and one sample; of the integer and half entries every eighth. The whole of it:
`python -m tests.opdb.sweep`.
"""

from __future__ import annotations

import zlib

import pytest
import torch

from tests.opdb.entries import Entry, entries
from tests.opdb.workers import run_entry


def chosen() -> list[Entry]:
    """float32 always, other dtypes by a hash of the name: the same ones on every machine."""
    return [e for e in entries() if e.dtype is torch.float32 or zlib.crc32(e.name.encode()) % 8 == 0]


@pytest.mark.parametrize("entry", chosen(), ids=lambda e: e.name)
def test_entry(entry):
    result = run_entry(entry, 1)
    assert result.failures == []
