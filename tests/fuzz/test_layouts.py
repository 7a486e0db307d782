"""A few operators behind convolutions; `python -m tests.fuzz.layouts` takes all of them."""

from __future__ import annotations

import subprocess
import sys
import zlib

from tests.fuzz.layouts import operators

SOME = [name for name in operators() if zlib.crc32(name.encode()) % 48 == 5]


def test_operators_behind_convolutions():
    """In a process of its own: its workers are forked, which threads do not survive."""
    only = f"^({'|'.join(SOME)})$"
    command = [sys.executable, "-m", "tests.fuzz.layouts", "--count", "1", "--only", only, "--jobs", "1"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert f"0 of {len(SOME)} programs differ" in made.stdout
    assert len(SOME) > 5
