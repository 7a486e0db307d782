"""Ranks that do not compile alike: they make the same collectives all the same, in the same order."""

from __future__ import annotations

import functools
import warnings

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives
from torch.nn.parallel import DistributedDataParallel

import dovetail
from tests.distributed.programs.common import Blocks, batches, same_training, train

ddp = functools.partial(DistributedDataParallel, bucket_cap_mb=0.002)


def summed(x, y):
    return collectives.all_reduce(x.sin(), "sum", dist.group.WORLD) * y


def expected(x, y):
    total = x.sin()
    dist.all_reduce(total)
    return total * y


def case_one_rank_finds_kept_compilations():
    with dovetail.config.patch(warm_start=True):
        if dist.get_rank() == 0:
            train(dovetail.compile(Blocks()), batches())
        same_training(Blocks, ddp, lambda m: ddp(dovetail.compile(m)))
        same_training(Blocks, ddp, lambda m: dovetail.compile(ddp(m)))


def case_one_rank_recompiles():
    def run(model):
        return train(model, [batch[: 4 - number * dist.get_rank()] for number, batch in enumerate(batches(3))])

    for dynamic in (None, False):
        same_training(Blocks, ddp, lambda m: ddp(dovetail.compile(m, dynamic=dynamic)), run)
        same_training(Blocks, ddp, lambda m: dovetail.compile(ddp(m), dynamic=dynamic), run)


def case_one_rank_recompiles_what_has_collectives_inside():
    x, compiled = torch.arange(4.0) + dist.get_rank(), dovetail.compile(summed)
    for step in range(4):
        y = torch.arange(4.0) if dist.get_rank() == 0 or step % 2 else torch.arange(4)
        torch.testing.assert_close(compiled(x, y), expected(x, y))


def case_one_rank_cannot_compile():
    def fails(graph, inputs):
        raise RuntimeError("no")

    given = {"backend": fails} if dist.get_rank() else {}
    with dovetail.config.patch(strict=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_training(Blocks, ddp, lambda m: ddp(dovetail.compile(m, **given)), graphs=1 - dist.get_rank())
        same_training(Blocks, ddp, lambda m: dovetail.compile(ddp(m), **given), graphs=1 - dist.get_rank())
        x = torch.arange(4.0) + dist.get_rank()
        torch.testing.assert_close(dovetail.compile(summed, **given)(x, x), expected(x, x))


def case_one_rank_breaks_its_graph():
    def program(x, y):
        total = summed(x, y)
        if dist.get_rank():
            dovetail.graph_break()
        return summed(total, y)

    x = torch.arange(4.0) + dist.get_rank()
    torch.testing.assert_close(dovetail.compile(program)(x, x), expected(expected(x, x), x))


def case_one_rank_raises_behind_a_collective():
    """It must not be made again in order to raise what eager raises: the other rank makes it once."""

    def program(x, places):
        return summed(x, x)[places] * 2

    x, compiled = torch.arange(4.0), dovetail.compile(program)
    for last in (3, 9 if dist.get_rank() else 2, 1):
        places = torch.tensor([0, last])
        try:
            found = compiled(x, places)
        except (IndexError, RuntimeError) as error:
            assert last == 9, error
        else:
            assert last != 9
            torch.testing.assert_close(found, (2 * x.sin() * x)[places] * 2)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 2
