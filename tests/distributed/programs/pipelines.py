"""Stages of a pipeline (`torch.distributed.pipelining`), one or several in each process, whose modules are compiled."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed import pipelining

import dovetail
from tests.distributed.programs.common import DEVICE, Block, names_in
from tests.versions import VERSION

WIDTH, MICROBATCHES = 16, 4


def _stages(wrap, count):
    """This process's stages of `count`, and their modules."""
    torch.manual_seed(0)
    blocks, rank = [Block(WIDTH).to(DEVICE) for _ in range(count)], dist.get_rank()
    mine = range(rank, count, dist.get_world_size())
    return [pipelining.PipelineStage(wrap(blocks[k]), k, count, DEVICE) for k in mine], [blocks[k] for k in mine]


def _trained(schedule, wrap, count, steps=3):
    """The losses of some steps, and the parameters then."""
    stages, blocks = _stages(wrap, count)
    pipeline = schedule(stages if len(stages) > 1 else stages[0], MICROBATCHES, loss_fn=F.mse_loss)
    optimizer = torch.optim.SGD([p for block in blocks for p in block.parameters()], lr=0.1)
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        x = torch.randn(8, WIDTH, generator=generator).to(DEVICE)
        first, last = dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1
        pipeline.step(*([x] if first else []), **({"target": x.sin(), "losses": losses} if last else {}))
        optimizer.step()
        optimizer.zero_grad()
    losses = [loss.detach().clone() for loss in losses]
    return losses, [p.detach().clone() for block in blocks for p in block.parameters()]


def _in_place(module):
    with dovetail.install():
        module.compile()
    return module


def _same(schedule, stages=1):
    """With so many stages in each process."""
    count = stages * dist.get_world_size()
    expected = _trained(schedule, lambda m: m, count)
    for wrap in (dovetail.compile, _in_place):
        with torch.profiler.profile() as profile:
            found = _trained(schedule, wrap, count)
        torch.testing.assert_close(found, expected)
        ran = [name for name in names_in(profile) if name.startswith("dovetail graph")]
        assert len(ran) >= 2 * MICROBATCHES, ran


def case_all_forward_passes_come_first():
    _same(pipelining.ScheduleGPipe)


def case_one_forward_one_backward():
    _same(pipelining.Schedule1F1B)


def case_several_stages_in_each_process():
    _same(pipelining.ScheduleInterleaved1F1B, 2)


def case_gradients_of_inputs_come_before_those_of_parameters():
    if VERSION < (2, 13):
        return  # the schedule asks of nodes of the graph what those of an autograd.Function do not tell
    _same(pipelining.ScheduleInterleavedZeroBubble, 2)


def case_evaluation():
    stages, _ = _stages(dovetail.compile, dist.get_world_size())
    pipeline = pipelining.ScheduleGPipe(stages[0], MICROBATCHES)
    x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    with torch.no_grad():
        found = pipeline.step(*([x] if dist.get_rank() == 0 else []))
    if found is not None:
        torch.manual_seed(0)
        whole = torch.nn.Sequential(*(Block(WIDTH) for _ in range(dist.get_world_size()))).to(DEVICE)
        torch.testing.assert_close(found, whole(x))
