"""Ranks that do not compile alike: they make the same collectives all the same, in the same order."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives
from torch.utils.checkpoint import checkpoint

import dovetail
from tests.distributed.programs.common import DEVICE, Blocks, batches, ddp, one_step, same_training, train


def summed(x, y):
    return collectives.all_reduce(x.sin(), "sum", dist.group.WORLD) * y


def expected(x, y):
    total = x.sin()
    dist.all_reduce(total)
    return total * y


def case_one_rank_finds_kept_compilations():
    with dovetail.config.patch(warm_start=True):
        if dist.get_rank() == 0:
            train(dovetail.compile(Blocks().to(DEVICE)), batches())
        same_training(Blocks, ddp, lambda m: ddp(dovetail.compile(m)))
        same_training(Blocks, ddp, lambda m: dovetail.compile(ddp(m)))


def case_one_rank_recompiles():
    def run(model):
        return train(model, [batch[: 4 - number * min(dist.get_rank(), 1)] for number, batch in enumerate(batches(3))])

    for dynamic in (None, False):
        same_training(Blocks, ddp, lambda m: ddp(dovetail.compile(m, dynamic=dynamic)), run)
        same_training(Blocks, ddp, lambda m: dovetail.compile(ddp(m), dynamic=dynamic), run)


def case_one_rank_recompiles_what_has_collectives_inside():
    x, compiled = torch.arange(4.0, device=DEVICE) + dist.get_rank(), dovetail.compile(summed)
    for step in range(4):
        y = torch.arange(4.0, device=DEVICE) if dist.get_rank() == 0 or step % 2 else torch.arange(4, device=DEVICE)
        torch.testing.assert_close(compiled(x, y), expected(x, y))


def case_one_rank_cannot_compile():
    def fails(graph, inputs):
        raise RuntimeError("no")

    given = {"backend": fails} if dist.get_rank() else {}
    with dovetail.config.patch(strict=False), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        same_training(Blocks, ddp, lambda m: ddp(dovetail.compile(m, **given)), graphs=1 - dist.get_rank())
        same_training(Blocks, ddp, lambda m: dovetail.compile(ddp(m), **given), graphs=1 - dist.get_rank())
        x = torch.arange(4.0, device=DEVICE) + dist.get_rank()
        torch.testing.assert_close(dovetail.compile(summed, **given)(x, x), expected(x, x))
    ours = [str(warning.message) for warning in told if "dovetail runs" in str(warning.message)]
    assert len(ours) == (3 if dist.get_rank() else 0), ours
    assert all(message.startswith(f"[rank{dist.get_rank()}] dovetail runs ") for message in ours), ours


def case_stages_of_a_rank_are_in_its_own_folder():
    with tempfile.TemporaryDirectory() as folder, dovetail.config.patch(compile_debug=True, debug_dir=folder):
        dovetail.compile(torch.sin)(torch.ones(2, device=DEVICE))
        assert os.listdir(folder) == [f"rank{dist.get_rank()}"]


def case_one_rank_breaks_its_graph():
    def program(x, y):
        total = summed(x, y)
        if dist.get_rank():
            dovetail.graph_break()
        return summed(total, y)

    x = torch.arange(4.0, device=DEVICE) + dist.get_rank()
    torch.testing.assert_close(dovetail.compile(program)(x, x), expected(expected(x, x), x))


def case_one_rank_raises_behind_a_collective():
    """It must not be made again in order to raise what eager raises: the other rank makes it once."""

    def program(x, places):
        return summed(x, x)[places] * 2

    if DEVICE.type == "cuda":
        return  # where an index out of range is no error that a program survives
    x, compiled = torch.arange(4.0, device=DEVICE), dovetail.compile(program)
    for last in (3, 9 if dist.get_rank() else 2, 1):
        places = torch.tensor([0, last], device=DEVICE)
        try:
            found = compiled(x, places)
        except (IndexError, RuntimeError) as error:
            assert last == 9, error
        else:
            assert last != 9
            torch.testing.assert_close(found, (dist.get_world_size() * x.sin() * x)[places] * 2)
    total = torch.ones(1, device=DEVICE)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()


class Unread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        collectives.all_reduce(x.cos(), "max", dist.group.WORLD)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def case_one_compiles_late():
    def run(model):
        if dist.get_rank():
            time.sleep(0.3)
        return train(model, batches())

    for way in (lambda m: ddp(dovetail.compile(m)), lambda m: dovetail.compile(ddp(m))):
        same_training(lambda: Blocks(4), ddp, way, run)


def case_one_runs_in_eager_mode():
    for way in (lambda m: ddp(dovetail.compile(m)), lambda m: dovetail.compile(ddp(m))):
        wrap = ddp if dist.get_rank() else way
        same_training(Blocks, ddp, wrap, graphs=1 - dist.get_rank())


def case_a_collective_whose_result_nobody_uses_is_made():
    """A peer in eager mode makes it."""

    def program(x):
        collectives.all_reduce(x.cos(), "max", dist.group.WORLD)
        return collectives.all_reduce(x.sin(), "sum", dist.group.WORLD) * 2

    def in_checkpoint(x):
        return checkpoint(program, x, use_reentrant=False) + 1

    x = torch.arange(4.0, device=DEVICE) + dist.get_rank()
    for function in (program, in_checkpoint, lambda x: Unread.apply(x)):
        found = (dovetail.compile(function, fullgraph=True) if dist.get_rank() == 0 else function)(x)
        torch.testing.assert_close(found + 0, function(x) + 0)


def case_independent_collectives_keep_their_order():
    """The ranks' tensors have other sizes, so their programs are scheduled apart."""

    def program(x, y):
        first = collectives.all_reduce(x, "sum", dist.group.WORLD)
        big = (y.sin() @ y.cos()).tanh().mean(0)
        second = collectives.all_reduce(big[:4], "max", dist.group.WORLD)
        third = collectives.all_reduce(y.mean()[None].expand(4) * 1, "min", dist.group.WORLD)
        return third - 1, second * 2, first + 1

    rank = dist.get_rank()
    width = 8 + 56 * rank
    x = torch.arange(4.0, device=DEVICE) + rank
    inputs = x, torch.linspace(0, 1, width**2, device=DEVICE).reshape(width, width)
    torch.testing.assert_close(dovetail.compile(program, fullgraph=True)(*inputs), program(*inputs))


def case_a_peer_that_never_comes_is_waited_for_no_longer_than_the_group_allows():
    group = dist.new_group(timeout=timedelta(seconds=1), backend="gloo")
    compiled = dovetail.compile(lambda x: collectives.all_reduce(x.sin(), "sum", group) * 2, fullgraph=True)
    compiled(torch.ones(3))
    if dist.get_rank():
        return
    begin = time.monotonic()
    try:
        compiled(torch.ones(3))
    except RuntimeError:
        assert time.monotonic() - begin < 30
    else:
        raise AssertionError("nothing was raised")


def case_a_loss_that_raises_on_all_ranks_leaves_them_in_step():
    model = Blocks().to(DEVICE)
    wrapped = dovetail.compile(ddp(model))
    one_step(wrapped, batches()[0])
    try:
        one_step(wrapped, torch.ones(4, 5, device=DEVICE))
    except RuntimeError:
        pass
    else:
        raise AssertionError("nothing was raised")
    wrapped.zero_grad()
    one_step(wrapped, batches()[0])
