"""The benchmark of several processes, with small models on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.distributed import tables
from benchmarks.distributed.cases import PARTS
from tests.forks import python

pytest.importorskip("transformers")


def test_figures_of_every_way_are_written(tmp_path: Path) -> None:
    """What they learn, `tests/distributed/programs/losses.py` compares."""
    asked = "--tiny --parts tp --contenders eager/,dovetail --steps 2 --timed 1 --json"
    done = python("-m", "benchmarks.distributed", *asked.split(), str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "found.json").read_text())["figures"]["tp"]
    assert figures.keys() == {"eager", "dovetail/whole", "dovetail/fewer"}
    assert all(found["ms"] > 0 and len(found["losses"]) == 2 for found in figures.values()), figures


FAILS = """
import os, sys, time, torch
from benchmarks.distributed.processes import Failed, together

def work(device):
    rank = torch.distributed.get_rank()
    if rank == 1:
        sys.argv[1] == "raises" and [][0]
        sys.argv[1] == "ends" and os._exit(3)
        sys.argv[1] == "hangs" and time.sleep(60)
    torch.distributed.all_reduce(torch.ones(1))
    return rank

for way in ("raises", "ends", "hangs", "passes"):
    sys.argv[1:] = [way]
    try:
        print(together(work, "cpu", 2, 3 if way == "hangs" else 60))
    except Failed as error:
        print(error)
"""


def test_a_process_that_fails_is_named_and_ends_the_others() -> None:
    done = python("-c", FAILS)
    assert done.stdout.splitlines() == [
        "rank 1: [rank1]: IndexError: list index out of range", "rank 1: ended with 3", "took longer than 3 s", "[0, 1]"
    ], done.stdout + done.stderr  # fmt: skip


def test_figures_of_processes_become_one() -> None:
    ranks = [{"ms": 2.0, "held": 5, "losses": [1.0, 3.0]}, {"ms": 3.0, "held": 4, "losses": [2.0, 3.0]}]
    assert tables.combined(ranks) == {"ms": 3.0, "held": 5, "losses": [1.5, 3.0]}
    assert tables.drift([1.0, 2.0], [1.0, 4.0]) == 0.5
    eager = {"ms": 2.0, "host": 1.0, "first": 1.0, "losses": [1.0]}
    rows = {"eager": eager, "dovetail/whole": {"failed": "rank 1: no"}}
    assert tables.table(PARTS["fsdp"], 2, rows).row_count == 2
