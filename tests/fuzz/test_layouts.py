"""A few operators behind convolutions; `python -m tests.fuzz.layouts` takes all of them."""

from __future__ import annotations

import subprocess
import sys
import zlib

import torch

from tests.fuzz.layouts import _tried, items, operators
from tests.fuzz.workers import spread
from tests.opdb.entries import entries
from tests.opdb.workers import sweep

SOME = [name for name in operators() if zlib.crc32(name.encode()) % 48 == 5]


def test_operators_behind_convolutions():
    """In a process of its own: its workers are forked, which threads do not survive, unless a GPU has been used."""
    only = f"^({'|'.join(SOME)})$"
    command = [sys.executable, "-m", "tests.fuzz.layouts", "--count", "1", "--only", only, "--jobs", "1"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert f"0 of {len(SOME)} programs differ" in made.stdout
    assert len(SOME) > 5


def test_processes_that_share_nothing_with_this_one(monkeypatch):
    """Where a GPU is used, nothing can be forked."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    todo, everything = items("^(tanh|mv)$", 0, 1), entries()
    assert dict(spread(_tried, todo, 1, lambda item, how: (item, how))) == dict.fromkeys(todo)
    some = [k for k, entry in enumerate(everything) if entry.name in ("tanh[float32]", "mv[float32]")]
    assert [(result.passed > 0, result.failures) for result in sweep(everything, some, 1, 1)] == [(True, [])] * 2
