"""Random programs of two ranks, and what goes wrong in one of them.

A program is a chain of steps with collectives, or a model that is trained by `DistributedDataParallel` or
`fully_shard`. It is called a few times, first in eager mode on both ranks, then compiled; before one of the compiled
calls a fault is put into one rank.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import dovetail
from dovetail import pipeline

WIDTH, CALLS = 8, 4
#: Stages of a compilation that a fault can hit, as `pipeline` names them.
STAGES = ("trace", "normalize", "normalize_joint", "partition", "build", "assemble")


class Injected(Exception):
    """What a fault raises."""


@dataclass
class State:
    """What the running program reads: shall it raise, or end?"""

    raises: bool = False
    ends: bool = False


STATE = State()


@dataclass(frozen=True)
class Plan:
    """`fault` happens in rank `where`, before call `when`."""

    kind: str
    steps: tuple[str, ...]
    fault: str
    where: int
    when: int
    stage: str
    grad: bool

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        choose = random.Random(seed)
        kind = choose.choice(("chain", "chain", "chain", "ddp around", "ddp inside", "sharded"))
        steps = tuple(choose.choice(list(STEPS)) for _ in range(choose.randint(3, 7)))
        fault = choose.choice([*HARMLESS, *FATAL])
        if kind == "chain":
            steps = (*steps, "outside") if fault == "killed" else steps
            steps = (*steps, "raises", "reduced") if fault == "raises" else steps
            steps = (*steps, "chosen", "reduced") if fault == "wrong index" else steps
        where, when = choose.randrange(2), choose.randrange(CALLS)
        return cls(kind, steps, fault, where, when, choose.choice(STAGES), choose.random() < 0.5)


# ---------------------------------------------------------------- steps of a chain; ranks' batches may differ in size


def _mean(x: Tensor) -> Tensor:
    return x.mean(0)


def _later(x: Tensor) -> Tensor:
    part = x.detach().mean(0)
    work = dist.all_reduce(part, async_op=True)
    y = x.cos()
    work.wait()
    return y + part


def _in_place(x: Tensor) -> Tensor:
    part = x.detach().mean(0)
    dist.all_reduce(part)
    return x - part.tanh()


def _raises(x: Tensor) -> Tensor:
    if STATE.raises:
        raise Injected("in the middle")
    return x


@dovetail.disable
def _outside(x: Tensor) -> Tensor:
    if STATE.ends:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def _synchronized(x: Tensor) -> Tensor:
    dist.barrier()
    return x.sigmoid()


def _broken(x: Tensor) -> Tensor:
    dovetail.graph_break()
    return x * 1.5


STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "sine": lambda x: x.sin() * 2,
    "product": lambda x: x @ (x.mT @ x / len(x)).tanh(),
    "norm": lambda x: F.layer_norm(x, (WIDTH,)),
    "reduced": lambda x: x + collectives.all_reduce(_mean(x), "sum", dist.group.WORLD) * 0.5,
    "largest": lambda x: x - collectives.all_reduce(_mean(x.detach()), "max", dist.group.WORLD) * 0.5,
    "gathered": lambda x: x + collectives.all_gather_tensor_autograd(_mean(x), 0, dist.group.WORLD)[:WIDTH],
    "scattered": lambda x: x * collectives.reduce_scatter_tensor_autograd(
        _mean(x), "sum", 0, dist.group.WORLD).square().sum().tanh(),
    "in place": _in_place,
    "later": _later,
    "synchronized": _synchronized,
    "broken": _broken,
}  # fmt: skip
#: What makes a fault happen.
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {"raises": _raises, "outside": _outside}


# ---------------------------------------------------------------- faults


@contextmanager
def _hit(stage: str, act: Callable[[], None]) -> Iterator[None]:
    """All is compiled anew, and something happens as the stage begins."""
    dovetail.reset()
    real = getattr(pipeline, stage)

    def instead(*args: Any, **given: Any) -> Any:
        act()
        return real(*args, **given)

    with mock.patch.object(pipeline, stage, instead):
        yield


def _fail() -> None:
    raise Injected("in a stage")


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _cold(plan: Plan) -> Iterator[None]:
    with dovetail.config.patch(warm_start=False):
        dovetail.reset()
        yield


@contextmanager
def _set(name: str, plan: Plan) -> Iterator[None]:
    with mock.patch.object(STATE, name, True):
        yield


@contextmanager
def _late(plan: Plan) -> Iterator[None]:
    time.sleep(2)
    yield


@contextmanager
def _nothing(plan: Plan) -> Iterator[None]:
    """The fault lies in the batch."""
    yield


Fault = Callable[[Plan], Any]
#: After these, every rank computes what it computes in eager mode.
HARMLESS: dict[str, Fault] = {
    "cold cache": _cold,
    "other size": _nothing,
    "delay": _late,
    "a stage fails": lambda plan: _hit(plan.stage, _fail),
    "a stage is slow": lambda plan: _hit(plan.stage, partial(time.sleep, 2)),
}
#: And these end one rank.
FATAL: dict[str, Fault] = {
    "raises": partial(_set, "raises"),
    "wrong index": _nothing,
    "killed": partial(_set, "ends"),
    "killed in a stage": lambda plan: _hit(plan.stage, _end),
}


# ---------------------------------------------------------------- programs


Call = Callable[[int], list[Tensor]]


def batch(plan: Plan, call: int, faulty: bool) -> Tensor:
    rank = dist.get_rank()
    size = 7 if faulty and plan.fault == "other size" else 4
    return torch.randn(size, WIDTH, generator=torch.Generator().manual_seed(10 * call + rank))


def program(plan: Plan, compile: Callable[[Any], Any]) -> Call:
    """What a call computes: results and gradients."""
    torch.manual_seed(0)
    return (_chain if plan.kind == "chain" else _trained)(plan, compile)


def _hits(plan: Plan, call: int) -> bool:
    return plan.where == dist.get_rank() and plan.when == call


def _chain(plan: Plan, compile: Callable[[Any], Any]) -> Call:
    weights = torch.linspace(-1, 1, WIDTH * WIDTH).reshape(WIDTH, WIDTH).requires_grad_(plan.grad)

    def chain(x: Tensor, places: Tensor) -> Tensor:
        x = x @ weights
        for name in plan.steps:
            x = x[places] if name == "chosen" else (STEPS | OTHERS)[name](x)
        return x

    compiled = compile(chain)

    def call(number: int) -> list[Tensor]:
        x = batch(plan, number, _hits(plan, number))
        wrong = plan.fault == "wrong index" and _hits(plan, number)
        found = compiled(x, torch.tensor([0, 99 if wrong else 1]))
        if found.requires_grad:
            weights.grad = None
            found.square().mean().backward()
            return [found.detach(), weights.grad]
        return [found.detach() + 0]

    return call


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return _outside(_raises(x + self.down(F.gelu(self.up(self.norm(x))))))


class Layers(nn.Module):
    def __init__(self, chosen: bool) -> None:
        super().__init__()
        self.layers, self.chosen = nn.ModuleList(Layer() for _ in range(2)), chosen

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x[places] if self.chosen else x


def _sharded(model: Layers) -> nn.Module:
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


_WRAPS: dict[str, Callable[[Layers, Any], Any]] = {
    "ddp around": lambda model, compile: compile(DistributedDataParallel(model, bucket_cap_mb=0.001)),
    "ddp inside": lambda model, compile: DistributedDataParallel(compile(model), bucket_cap_mb=0.001),
    "sharded": lambda model, compile: compile(_sharded(model)),
}


def _trained(plan: Plan, compile: Callable[[Any], Any]) -> Call:
    model = _WRAPS[plan.kind](Layers(plan.fault == "wrong index"), compile)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def call(number: int) -> list[Tensor]:
        x = batch(plan, number, _hits(plan, number))
        wrong = plan.fault == "wrong index" and _hits(plan, number)
        loss = model(x, torch.tensor([0, 99 if wrong else 1])).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return [loss.detach()]

    return call


def put_in(plan: Plan, call: int, stack: ExitStack) -> None:
    """The fault, if this call of this rank has it."""
    if _hits(plan, call):
        stack.enter_context((HARMLESS | FATAL)[plan.fault](plan))
