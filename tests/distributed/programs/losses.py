"""What the benchmark of several processes trains: losses of 50 steps are eager's, within what rounding does to them."""

from __future__ import annotations

from dataclasses import replace

import dovetail
from benchmarks.distributed import SHAKEN, worker
from benchmarks.distributed.cases import PARTS
from benchmarks.distributed.tables import drift
from tests.distributed.programs.common import DEVICE

STEPS = 50


def losses(name: str, contender: str, way: str) -> list[float]:
    tiny = PARTS[name].tiny
    part = replace(tiny, sizes=replace(tiny.sizes, layers=1, heads=8))  # four ranks have one of the keys' each
    found: list[float] = worker.measure(part, contender, way, DEVICE, STEPS, timed=1)["losses"]
    return found


def are_eagers(name: str, *ways: str) -> None:
    eager, shaken = losses(name, "eager", ""), losses(name, "eager", SHAKEN)
    assert eager[-1] < eager[0], eager
    for way in ways:
        ours = losses(name, "dovetail", way)
        assert drift(ours, eager) <= drift(shaken, eager), (way, drift(ours, eager), drift(shaken, eager))


def case_replicas():
    are_eagers("ddp", "around")
    are_eagers("ddp-llama", "layers")


def case_shards():
    are_eagers("fsdp", "layers")


def case_layers_spread_over_ranks():
    with dovetail.config.patch(fewer_collectives=False):  # the second way sets it
        are_eagers("tp", "whole", "fewer")
