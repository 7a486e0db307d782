"""Training with PyTorch's own ways of using several processes; each of two runs all `PROGRAMS`.

`python -m tests.e2e.parallel_programs RANK MEETING`: every program eagerly and compiled, from the same weights and
data; what differs, or fails in one of both, is printed.
"""

from __future__ import annotations

import datetime
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel as DDP

import dovetail

Compiler = Callable[[Any], Any]
WORDS, WIDTH = 50, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.batch, self.unused = nn.Identity(), nn.Linear(3, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.batch(x.transpose(1, 2)).transpose(1, 2))


def net(batch: bool = False) -> Net:
    torch.manual_seed(0)
    made = Net()
    made.batch = nn.BatchNorm1d(WIDTH) if batch else made.batch
    return made


def batches(count: int) -> Iterator[torch.Tensor]:
    """Other words in each process, but the same whenever asked for."""
    draw = torch.Generator().manual_seed(dist.get_rank())
    return iter([torch.randint(0, WORDS, (4, 8), generator=draw) for _ in range(count)])


def loss_of(model: Any, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(words).flatten(0, 1).float(), words.flatten())


def trained(model: Any, whole: Any = None) -> list[Any]:
    """The losses of three steps, and what the parameters are then."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for words in batches(3):
        loss = loss_of(model, words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [losses, [t.detach() for t in (whole or model).state_dict().values()]]


def ddp(compiled: Compiler, inner: bool = False, hook: Any = None, **settings: Any) -> list[Any]:
    plain = net(batch=True)
    model = DDP(compiled(plain) if inner else plain, **({"find_unused_parameters": True} | settings))
    if hook is not None:
        model.register_comm_hook(None, hook)
    return trained(model if inner else compiled(model), model)


def accumulated(compiled: Compiler) -> list[Any]:
    model = DDP(net(), find_unused_parameters=True)
    fast = compiled(model)
    first, second = batches(2)
    with model.no_sync():
        loss_of(fast, first).backward()
    loss_of(fast, second).backward()
    return [p.grad for p in model.parameters()]


def whole_step(compiled: Compiler) -> list[Any]:
    model = DDP(net(), static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(words: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, words)
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = compiled(step)
    return [[fast(words) for words in batches(3)], [p.detach() for p in model.parameters()]]


def sharded(model: Net, **settings: Any) -> Net:
    for block in model.blocks:
        fully_shard(block, **settings)
    return fully_shard(model, **settings)


def blocks_of(model: Net, compiled: Compiler) -> Net:
    for k, block in enumerate(model.blocks):
        model.blocks[k] = compiled(block)
    return model


def flat(compiled: Compiler, **settings: Any) -> list[Any]:
    model = FullyShardedDataParallel(net(), use_orig_params=True, device_id=torch.device("cpu"), **settings)
    return trained(compiled(model), model)


def around(compiled: Compiler) -> Any:
    group = dist.group.WORLD

    def program(x: torch.Tensor) -> torch.Tensor:
        gathered = collectives.all_gather_tensor(x.sin(), 0, group) * 2
        summed = collectives.reduce_scatter_tensor(gathered, "sum", 0, group)
        return collectives.all_reduce(summed.cos(), "sum", group) + group.size()

    return compiled(program)(torch.arange(4.0) + dist.get_rank())


def staged(compiled: Compiler) -> list[Any]:
    """Each process has a stage of two."""
    torch.manual_seed(0)
    stages = [Block(), Block()]
    rank = dist.get_rank()
    stage = PipelineStage(compiled(stages[rank]), rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 4, loss_fn=F.mse_loss)
    given, losses = torch.randn(8, WIDTH), []
    if rank == 0:
        schedule.step(given)
    else:
        schedule.step(target=given.sin(), losses=losses)
    return [losses, [p.grad for p in stages[rank].parameters()]]


HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
PROGRAMS: dict[str, Callable[[Compiler], Any]] = {
    "compile(DDP)": ddp,
    "DDP(compile)": lambda compiled: ddp(compiled, inner=True),
    "DDP, static": lambda compiled: ddp(compiled, static_graph=True, gradient_as_bucket_view=True),
    "DDP, compressed": lambda compiled: ddp(compiled, hook=default_hooks.fp16_compress_hook),
    "DDP, accumulated": accumulated,
    "DDP, a step": whole_step,
    "FSDP2": lambda compiled: trained(compiled(sharded(net()))),
    "FSDP2, blocks after": lambda compiled: trained(blocks_of(sharded(net()), compiled)),
    "FSDP2, blocks before": lambda compiled: trained(sharded(blocks_of(net(), compiled))),
    "FSDP2, half": lambda compiled: trained(compiled(sharded(net(), mp_policy=HALF, reshard_after_forward=False))),
    "FSDP1": flat,
    "FSDP1, blocks": lambda compiled: flat(compiled, auto_wrap_policy=ModuleWrapPolicy({Block})),
    "collectives": around,
    "pipeline": staged,
}


def plain(found: Any) -> list[torch.Tensor]:
    tensors = [t for t in torch.utils._pytree.tree_leaves(found) if t is not None]
    return [getattr(t, "_local_tensor", t) + 0 for t in tensors]


def check(name: str) -> str:
    """What is wrong, or nothing. Half types round otherwise where kernels are fused."""
    program = PROGRAMS[name]
    tolerance = {"rtol": 0.05, "atol": 0.03} if "half" in name or "compressed" in name else {"rtol": 1e-3, "atol": 1e-4}
    try:
        expected = plain(program(lambda fn: fn))
        found = plain(program(dovetail.compile))
        torch.testing.assert_close(found, expected, **tolerance)
    except Exception:
        return traceback.format_exc()
    return ""


def main() -> None:
    rank, meeting = int(sys.argv[1]), sys.argv[2]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=wait)
    failures = 0
    for name in sys.argv[3:] or PROGRAMS:
        wrong = check(name)
        if wrong:
            failures += 1
            print(f"{name}: {wrong}", flush=True)
        dovetail.reset()
    dist.barrier()
    dist.destroy_process_group()
    print(f"{failures} wrong" if failures else "done")


if __name__ == "__main__":
    main()
