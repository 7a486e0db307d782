"""The benchmark of several processes, with small models on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.distributed import tables
from benchmarks.distributed.cases import PARTS
from tests.forks import python

pytest.importorskip("transformers")


def test_every_way_to_spread_a_model_learns_what_eager_mode_learns(tmp_path: Path) -> None:
    asked = "--tiny --parts fsdp,tp --contenders eager,dovetail --steps 3 --timed 1 --json"
    done = python("-m", "benchmarks.distributed", *asked.split(), str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "found.json").read_text())["figures"]
    assert figures.keys() == {"fsdp", "tp"}
    for rows in figures.values():
        assert not [found for found in rows.values() if "failed" in found]
        assert all(tables.drift(found["losses"], rows["eager"]["losses"]) < 1e-3 for found in rows.values())


def test_figures_of_processes_become_one() -> None:
    ranks = [{"ms": 2.0, "held": 5, "losses": [1.0, 3.0]}, {"ms": 3.0, "held": 4, "losses": [2.0, 3.0]}]
    assert tables.combined(ranks) == {"ms": 3.0, "held": 5, "losses": [1.5, 3.0]}
    assert tables.drift([1.0, 2.0], [1.0, 4.0]) == 0.5
    rows = {"eager": {"ms": 2.0, "first": 1.0, "losses": [1.0]}, "dovetail/whole": {"failed": "rank 1: no"}}
    assert tables.table(PARTS["fsdp"], 2, rows).row_count == 2
