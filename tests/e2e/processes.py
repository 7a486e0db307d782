"""Two processes that run the same program and talk over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIMIT = 120  # seconds


def run_in_two(command: list[str], folder: Path) -> None:
    """`python COMMAND RANK MEETING` twice; each must end well, with "done"."""
    root = str(Path(__file__).resolve().parents[2])
    settings = os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "DOVETAIL_CACHE_DIR": str(folder / "kept")}
    ranks = [
        subprocess.Popen(
            [sys.executable, *command, str(rank), str(folder / "meeting")], env=settings, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        texts = [each.communicate(timeout=LIMIT)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    for each, text in zip(ranks, texts, strict=True):
        assert each.returncode == 0 and text.rstrip().endswith("done"), text
