"""Runs of one program with other numbers of processes, one after the other, which share the folder of compilations.

    python -m tests.distributed.elastic FOLDER

As after a restart, with as many machines or more. Each run compares with eager mode, and prints how many compilations
it traced itself, by rank: of what is the same for any number of ranks but for sizes, and of a model that is spread over
them.
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import dovetail
from benchmarks.distributed.processes import Ranks
from dovetail.diagnostics.times import RECORDS

#: Processes of each run.
RUNS = (2, 2, 3)
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


def spread(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:  # type: ignore[union-attr]
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})  # type: ignore[arg-type]
    return model


def same_programs() -> None:
    for program in (summed, gathered):
        x = torch.randn(4, 4)
        torch.testing.assert_close(dovetail.compile(program)(x) + 0, program(x) + 0)


def same_training(model: torch.nn.Module, way: Callable[..., torch.nn.Module], batches: list[torch.Tensor]) -> None:
    common = importlib.import_module("tests.distributed.programs.common")  # which asks for the backend
    plain, other = (way(copy.deepcopy(model)) for _ in range(2))
    expected = common.train(plain, batches)
    torch.testing.assert_close(common.train(dovetail.compile(other), batches), expected)


def run(device: torch.device, folder: Path) -> tuple[int, int]:
    os.environ["DOVETAIL_CACHE_DIR"] = str(folder)
    dovetail.config.warm_start = True
    common = importlib.import_module("tests.distributed.programs.common")
    torch.manual_seed(0)
    model, batches = common.Blocks(1, width=12), [torch.randn(4, 8)] * 2
    same_programs()
    for way in (DistributedDataParallel, sharded):
        same_training(model, way, common.batches())
    rest = traced()
    same_training(model, spread, batches)
    return rest, traced() - rest


def traced() -> int:
    return sum("capture" in [stage.name for stage in record.stages] for record in RECORDS.all())


def main() -> None:
    folder, told = Path(sys.argv[1]), []
    for number in RUNS:
        with tempfile.TemporaryDirectory() as meeting:
            started = Ranks(number, Path(meeting), limit=LIMIT, alone=LIMIT)
            ended = started.run(functools.partial(run, folder=folder))
            assert all(each.code == 0 for each in ended), "\n".join(each.told for each in ended)
            told.append([started.result(rank) for rank in range(number)])
    print(json.dumps(told))


if __name__ == "__main__":
    main()
