"""A fixed part of the operator database, through `dovetail.compile`, against eager.

Every entry with float32 and one sample; of the integer and half entries every eighth. Gradients: every fourth entry
with float32, every 32nd with another type. The whole of it: `python -m tests.opdb.sweep [--backward]`.
"""

from __future__ import annotations

import zlib

import pytest
import torch

from tests.opdb import gradients
from tests.opdb.entries import Entry, entries
from tests.opdb.workers import BACKWARD, run_entry


def chosen(everything: list[Entry], floats: int, others: int) -> list[Entry]:
    """One in `floats` with float32, one in `others`; by a hash of the name: the same ones on every machine."""

    def one_in(entry: Entry) -> int:
        return floats if entry.dtype is torch.float32 else others

    return [e for e in everything if zlib.crc32(e.name.encode()) % one_in(e) == 0]


@pytest.mark.parametrize("entry", chosen(entries(), 1, 8), ids=lambda e: e.name)
def test_entry(entry):
    result = run_entry(entry, 1)
    assert result.failures == []


@pytest.mark.parametrize("entry", chosen(gradients.entries(), 4, 32), ids=lambda e: e.name)
def test_gradients(entry):
    result = run_entry(entry, 1, BACKWARD)
    assert result.failures == []
