"""Predictions of steps of many processes, where they can be told by hand."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.distributed.simulate import Network, Step, replicated, sharded
from dovetail.interop.data_parallel import FIRST, OTHERS

MB = 1 << 20
#: 100 MB, of which each process sends as much in an all-reduce of two, takes 10 ms; beginning takes one.
TIMES = {1: 1.0, 100 * MB: 11.0}
HALF = {1: 1.0, 100 * MB: 6.0}
NETWORK = Network({"all_reduce": TIMES, "all_gather": HALF, "reduce_scatter": HALF}, 2, 8, 5 * MB)


def step(*gradients):
    return Step(10.0, 20.0, 4.0, gradients)


@pytest.mark.parametrize(
    ("name", "size", "ranks", "expected"),
    [
        ("all_reduce", 50 * MB, 2, 6.0),
        ("all_reduce", 0, 8, 3.0),
        ("all_reduce", 100 * MB, 8, 3.0 + 17.5),
        ("all_reduce", 100 * MB, 16, 4.0 + 37.5),
        ("all_gather", 100 * MB, 8, 3.0 + 8.75),
        ("reduce_scatter", 100 * MB, 1, 0.0),
    ],
)
def test_collectives(name, size, ranks, expected):
    assert NETWORK.milliseconds(name, size, ranks) == pytest.approx(expected)


def test_one_process_takes_what_it_takes_by_itself():
    alone = step((1.0, 5 * MB, 0), (20.0, 5 * MB, 1))
    assert replicated(alone, NETWORK, 1) == sharded(alone, NETWORK, 1) == 34.0


def test_what_is_ready_early_is_sent_meanwhile():
    """A bucket of 1 MB, then one of 25 MB that is full in the middle; or all at the end."""
    early = step((2.0, FIRST, 1), (10.0, OTHERS, 0))
    late = step((20.0, FIRST, 1), (20.0, OTHERS, 0))
    assert replicated(early, NETWORK, 2) == pytest.approx(34.0)
    assert replicated(late, NETWORK, 2) == pytest.approx(34.0 + 1.1 + 3.5)


def test_layers_are_gathered_while_the_one_before_computes():
    """Two layers of 20 MB: the first is waited for in each pass, the last gradient after the second pass."""
    found = sharded(step((10.0, 20 * MB, 1), (20.0, 20 * MB, 0)), NETWORK, 2)
    gather = scatter = 1 + 20 * 0.05
    assert found == pytest.approx(gather + 10 + gather + 20 + scatter + 2)


def test_the_table(tmp_path):
    pieces = {
        "session": "a machine", "ranks": 2, "collectives": NETWORK.measured,
        "steps": {"ddp/eager": vars(step((20.0, 5 * MB, 0)))},
    }  # fmt: skip
    file, measured = tmp_path / "pieces.json", tmp_path / "measured.json"
    file.write_text(json.dumps(pieces))
    figures = {"ddp": {"eager": {"ms": 36.5}, "eager/shaken": {"ms": 1}}}
    measured.write_text(json.dumps({"ranks": 4, "figures": figures}))
    words = "-m", "benchmarks.distributed.simulate", file, "--ranks", "2", "16", "--measured", measured
    told = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout
    assert "35.5 (96%)" in told and "36.5" in told and "measured, 4" in told and "a machine" in told
