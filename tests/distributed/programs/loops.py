"""Training loops as users write them, with what they put around a model."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, StateDictType
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import dovetail
from tests.distributed.programs.common import (
    DEVICE,
    Blocks,
    Normalized,
    Wrap,
    batches,
    ddp,
    local,
    same_training,
    state,
)
from tests.distributed.programs.sharded import sharded

compiled = dovetail.compile


def exact() -> Blocks:
    """AdamW makes much of what little gradients differ by."""
    return Blocks().double()


def layers_compiled(model: Any) -> Any:
    for number, block in enumerate(model.blocks):
        model.blocks[number] = dovetail.compile(block, fullgraph=True)
    return model


def checkpointed(model: Any) -> Any:
    for number, block in enumerate(model.blocks):
        model.blocks[number] = checkpoint_wrapper(block)
    return model


def loop(
    model: Any, parts: int = 2, make: Callable[..., Any] = torch.optim.AdamW, step: Wrap = lambda step: step,
    precision: torch.dtype | None = None,
) -> list:  # fmt: skip
    """Batches in parts, of which the last one's gradients are synchronized; clipped, with a rate that changes, and an
    evaluation after each step."""
    optimizer = make(model.parameters(), lr=1e-2)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + k))
    update, losses = step(optimizer.step), []
    for batch in batches():
        batch = batch.to(next(iter(model.state_dict().values())).dtype)
        for number, part in enumerate(batch.chunk(parts), 1):
            with _synchronized(model, number == parts):
                with torch.autocast(DEVICE.type, precision) if precision else nullcontext():
                    loss = model(part).square().mean() / parts
                loss.backward()
        losses += [loss.detach(), local(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))]
        update()
        rates.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            losses.append(model(batch).square().mean())
        model.train()
    return [torch.stack([each.double() for each in losses]), state(model)]


def _synchronized(model: Any, last: bool) -> Any:
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)
    return nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()


# ---------------------------------------------------------------- replicas


def case_replicas():
    same_training(exact, ddp, lambda m: compiled(ddp(m)), loop)
    same_training(exact, ddp, lambda m: ddp(compiled(m)), lambda m: loop(m, step=compiled))


def more_case_replicas_under_autocast():
    def run(model):
        losses, parameters = loop(model, precision=torch.bfloat16)
        return [t.to(torch.bfloat16) for t in (losses, torch.stack([p.norm() for p in parameters.values()]))]

    same_training(Blocks, ddp, lambda m: compiled(ddp(m)), run)


def more_case_compressed_gradients():
    def wrap(model):
        wrapped = DistributedDataParallel(model)
        made = powerSGD_hook.PowerSGDState(None, 32, start_powerSGD_iter=2, min_compression_rate=0.01)
        wrapped.register_comm_hook(made, powerSGD_hook.powerSGD_hook)
        return wrapped

    run = functools.partial(loop, parts=1)
    same_training(exact, wrap, lambda m: compiled(wrap(m)), run)
    same_training(exact, wrap, lambda m: wrap(compiled(m)), run)


def more_case_an_optimizer_that_is_spread():
    def run(model):
        return loop(model, make=lambda p, lr: ZeroRedundancyOptimizer(p, torch.optim.AdamW, lr=lr))

    same_training(exact, ddp, lambda m: compiled(ddp(m)), run)


def more_case_replicas_of_checkpointed_layers():
    wrap = functools.partial(ddp, static_graph=True)
    eager, run = (lambda m: wrap(checkpointed(m))), functools.partial(loop, parts=1)
    same_training(exact, eager, lambda m: compiled(wrap(checkpointed(m))), run)
    same_training(exact, eager, lambda m: wrap(layers_compiled(checkpointed(m))), run)


def more_case_statistics_of_all_replicas():
    if DEVICE.type == "cpu":
        return  # PyTorch has them for GPUs alone

    def wrap(model):
        return ddp(nn.SyncBatchNorm.convert_sync_batchnorm(model))

    same_training(Normalized, wrap, lambda m: compiled(wrap(m)))
    same_training(Normalized, wrap, lambda m: ddp(compiled(nn.SyncBatchNorm.convert_sync_batchnorm(m))))


# ---------------------------------------------------------------- shards


def case_shards_of_checkpointed_layers():
    eager = lambda m: sharded(checkpointed(m))
    same_training(exact, eager, lambda m: sharded(layers_compiled(checkpointed(m))), loop)
    same_training(exact, eager, lambda m: compiled(sharded(checkpointed(m))), lambda m: loop(m, step=compiled))


def case_shards_in_the_memory_of_the_cpu():
    wrap = functools.partial(sharded, offload_policy=CPUOffloadPolicy(pin_memory=False))
    same_training(exact, wrap, lambda m: compiled(wrap(m)), loop)


class Tied(Blocks):
    """With one weight at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(8, 8), nn.Linear(4, 8)
        self.back = nn.Linear(8, 8, bias=False)
        self.back.weight = self.embedding.weight

    def forward(self, x):
        x = x + self.embedding(x[:, 0].abs().long().clamp(max=7))
        return self.back(self.head(super().forward(x)))


def more_case_a_weight_at_two_places():
    same_training(lambda: Tied().double(), sharded, lambda m: sharded(layers_compiled(m)), loop)
    same_training(lambda: Tied().double(), ddp, lambda m: compiled(ddp(m)), loop)


def more_case_parameters_that_come_when_all_is_wrapped():
    def wrap(model, way=lambda m: m):
        values = copy.deepcopy(model.state_dict())
        with torch.device("meta"):
            bare = exact()
        bare = sharded(way(bare))
        bare.to_empty(device=DEVICE)
        set_model_state_dict(bare, values, options=StateDictOptions(full_state_dict=True))
        return bare

    same_training(exact, wrap, lambda m: wrap(m, layers_compiled), loop)


def more_case_replicas_of_shards_that_are_gathered_ahead():
    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(), 1), mesh_dim_names=("replicas", "shards"))

    def wrap(model, way=lambda m: m):
        model = sharded(way(model), mesh=mesh)
        first, second = model.blocks
        first.set_modules_to_forward_prefetch([second])
        second.set_modules_to_backward_prefetch([first])
        return model

    same_training(exact, wrap, lambda m: wrap(m, layers_compiled), loop)


def _updated(model: Any, optimizer: torch.optim.Optimizer) -> None:
    for batch in batches(2):
        model(batch.double()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def case_checkpoints_that_others_have_saved():
    """Of one that is compiled or is not, loaded by one that is not or is."""
    for first, second in ((lambda m: m, layers_compiled), (compiled, lambda m: m)):
        made = []
        for seed, way in enumerate((first, second)):
            torch.manual_seed(seed)
            model = sharded(way(exact().to(DEVICE)))
            made.append((model, torch.optim.AdamW(model.parameters(), lr=1e-2)))
        names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(names, 0)
        _updated(*made[0])
        dcp.save(dict(zip(("model", "optimizer"), get_state_dict(*made[0]), strict=True)), checkpoint_id=names[0])
        found = dict(zip(("model", "optimizer"), get_state_dict(*made[1]), strict=True))
        dcp.load(found, checkpoint_id=names[0])
        set_state_dict(*made[1], model_state_dict=found["model"], optim_state_dict=found["optimizer"])
        for model, optimizer in made:
            _updated(model, optimizer)
        torch.testing.assert_close(state(made[1][0]), state(made[0][0]))


# ---------------------------------------------------------------- flat shards

flat = functools.partial(FullyShardedDataParallel, use_orig_params=True, device_id=DEVICE)


def _flat_loop(model: Any) -> list:
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for batch in batches():
        loss = model(batch).square().mean()
        loss.backward()
        found += [loss.detach(), local(model.clip_grad_norm_(0.5))]
        optimizer.step()
        optimizer.zero_grad()
    for kind in (StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT):
        with FullyShardedDataParallel.state_dict_type(model, kind):
            values = model.state_dict().items()
            found.append({k: v.local_tensor().clone() if hasattr(v, "local_shards") else local(v) for k, v in values})
    return found


def more_case_flat_shards():
    same_training(Blocks, flat, lambda m: compiled(flat(m)), _flat_loop)
    ahead = functools.partial(flat, limit_all_gathers=False, forward_prefetch=True)
    same_training(Blocks, ahead, lambda m: ahead(layers_compiled(m)), _flat_loop)
