"""Runs of one program with other numbers of processes, one after the other, which share the folder of compilations.

    python -m tests.distributed.elastic FOLDER

As after a restart with fewer or more machines. Each run compares with eager mode, and prints how many compilations it
traced itself, by rank; compilations hold sizes that depend on the number of ranks.
"""

from __future__ import annotations

import copy
import functools
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import dovetail
from benchmarks.distributed.processes import Ranks
from dovetail.diagnostics.times import RECORDS

#: Processes of each run.
RUNS = (2, 3)
LIMIT = 120


def summed(x: torch.Tensor) -> torch.Tensor:
    whole = collectives.all_gather_tensor(x.sin(), 0, dist.group.WORLD).cos()
    part = collectives.reduce_scatter_tensor(whole * 2, "sum", 0, dist.group.WORLD)
    return part + whole.sum() * dist.get_world_size() + dist.get_rank()


def gathered(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(dist.get_world_size() * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(out, x.sin())
    total = x.cos()
    dist.all_reduce(total)
    return out.sum(0) + total / dist.get_world_size()


def sharded(model: torch.nn.Module) -> torch.nn.Module:
    for block in model.blocks:  # type: ignore[union-attr]
        fully_shard(block)  # type: ignore[arg-type]
    return fully_shard(model)


def run(device: torch.device, folder: Path) -> int:
    os.environ["DOVETAIL_CACHE_DIR"] = str(folder)
    dovetail.config.warm_start = True
    common = importlib.import_module("tests.distributed.programs.common")  # which asks for the backend
    for program in (summed, gathered):
        x = torch.randn(4, 4)
        torch.testing.assert_close(dovetail.compile(program)(x) + 0, program(x) + 0)
    torch.manual_seed(0)
    model = common.Blocks(1)
    ways: tuple[Callable, ...] = DistributedDataParallel, sharded
    for way in ways:
        plain, other = (way(copy.deepcopy(model)) for _ in range(2))
        expected = common.train(plain, common.batches())
        torch.testing.assert_close(common.train(dovetail.compile(other), common.batches()), expected)
    return sum("capture" in [stage.name for stage in record.stages] for record in RECORDS.all())


def main() -> None:
    folder, traced = Path(sys.argv[1]), []
    for number in RUNS:
        with tempfile.TemporaryDirectory() as meeting:
            started = Ranks(number, Path(meeting), limit=LIMIT, alone=LIMIT)
            ended = started.run(functools.partial(run, folder=folder))
            assert all(each.code == 0 for each in ended), "\n".join(each.told for each in ended)
            traced.append([started.result(rank) for rank in range(number)])
    print(json.dumps(traced))


if __name__ == "__main__":
    main()
