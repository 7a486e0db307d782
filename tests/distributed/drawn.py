"""Random training programs of several ranks: which layers, how they are wrapped, compiled, called and updated.

`Plan.drawn(seed)` says all of it. `trained(plan, compiled)` trains the model, compiled or in eager mode, and gives
losses and parameters.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import dovetail

WIDTH, WORDS, STEPS = 8, 16, 3


@dataclass(frozen=True)
class Plan:
    """`layers` are kinds of blocks, `extras` what the model has beside them. `parts`: of a batch, whose gradients are
    added up; `sizes`: of the batches. `later`: what was drawn when all else was, so that seeds stay what they are."""

    ranks: int
    layers: tuple[str, ...]
    extras: frozenset[str]
    wrapper: str
    choices: frozenset[str]
    way: str
    dynamic: bool | None
    optimizer: str
    parts: int
    sizes: tuple[int, ...]
    loop: frozenset[str]
    later: frozenset[str] = frozenset()

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        choose = random.Random(seed)
        wrapper = choose.choice(list(WRAPPERS))
        kinds = SPREAD if wrapper in ("spread", "both") else list(BLOCKS)
        layers = _layers(choose, kinds)
        sizes = (4,) * STEPS if choose.random() < 0.6 else tuple(choose.choice((2, 4, 6)) for _ in range(STEPS))
        way = choose.choice([way for way in WAYS if way not in WRAPPERS[wrapper].not_compiled])
        plan = cls(
            4 if choose.random() < 0.15 else 2, layers, _some(choose, WRAPPERS[wrapper].extras), wrapper,
            _some(choose, WRAPPERS[wrapper].choices), way, choose.choice((None, None, False, True)),
            choose.choice(list(OPTIMIZERS)), choose.choice((1, 1, 2)), sizes, _some(choose, LOOP),
        )  # fmt: skip
        later = _some(choose, WRAPPERS[wrapper].later)
        sizes = (4,) * (STEPS - 1) + (2,) if "last batch" in later else plan.sizes
        return replace(plan, later=later, sizes=sizes, optimizer="momentum" if "mixed" in later else plan.optimizer)

    @property
    def precise(self) -> bool:
        """Is all of it computed in float64?"""
        return "mixed" not in self.later


def _some(choose: random.Random, names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name in names if choose.random() < 0.3)


def _layers(choose: random.Random, kinds: list[str]) -> tuple[str, ...]:
    """Often equal ones, sometimes so many that they are known by what they hold."""
    count = choose.choice((1, 2, 3, 5))
    one = choose.choice(kinds)
    return tuple(one if choose.random() < 0.8 else choose.choice(kinds) for _ in range(count))


# ---------------------------------------------------------------- models


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Gated(Block):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        found = (linear(y).unflatten(-1, (-1, 2)).transpose(1, 2) for linear in (self.query, self.key, self.value))
        return x + self.out(F.scaled_dot_product_attention(*found).transpose(1, 2).flatten(2))


class Broken(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        dovetail.graph_break()
        return x.tanh()


class Counting(Block):
    """With a buffer that changes in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) / self.calls


class Normalized(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)  # type: ignore[assignment]


BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "plain": Block, "gated": Gated, "attending": Attending, "broken": Broken, "counting": Counting,
    "normalized": Normalized,
}  # fmt: skip
#: Those that have a plan for spreading them.
SPREAD = ["plain", "gated", "attending"]
_COLUMNS, _ROWS = ("up", "gate", "query", "key", "value"), ("down", "out")


class Model(nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.blocks = nn.ModuleList(BLOCKS[kind]() for kind in plan.layers)
        self.spare = nn.Linear(3, 3) if "unused" in plan.extras else None
        if "tied" in plan.extras:
            self.head.weight = self.embedding.weight
        if "frozen" in plan.extras:
            self.blocks[0].requires_grad_(False)
        if "checkpointed" in plan.extras:
            self.blocks = nn.ModuleList(map(checkpoint_wrapper, self.blocks))

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# ---------------------------------------------------------------- wrappers

Wrap = Callable[[Any, Plan], Any]


@dataclass(frozen=True)
class Wrapper:
    """`not_compiled`: ways that it does not allow."""

    wrap: Wrap
    choices: tuple[str, ...] = ()
    extras: tuple[str, ...] = ("tied", "frozen", "checkpointed", "unused")
    not_compiled: tuple[str, ...] = ()
    later: tuple[str, ...] = ("last batch", "reloaded", "clipped by kind")


def _replicated(model: Any, plan: Plan) -> Any:
    static = "static" in plan.choices and plan.parts == 1
    return DistributedDataParallel(
        model, bucket_cap_mb=0.001, gradient_as_bucket_view="views" in plan.choices, static_graph=static,
        find_unused_parameters="unused" in plan.extras and not static,
    )  # fmt: skip


def _sharded(model: Any, plan: Plan, mesh: Any = None) -> Any:
    given: dict[str, Any] = {"reshard_after_forward": "stays" not in plan.choices}
    if not plan.precise:
        given["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float64)
    if "offloaded" in plan.choices:
        given["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if "replicas" in plan.choices and mesh is None:
        mesh = init_device_mesh("cpu", (2, plan.ranks // 2), mesh_dim_names=("replicas", "shards"))
    for block in () if "at once" in plan.choices else model.blocks:
        fully_shard(block, mesh=mesh, **given)
    return fully_shard(model, mesh=mesh, **given)


def _flat(model: Any, plan: Plan) -> Any:
    policy = None if "at once" in plan.choices else ModuleWrapPolicy({BLOCKS[kind] for kind in plan.layers})  # type: ignore[arg-type]
    return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"), auto_wrap_policy=policy)


def _spread(model: Any, plan: Plan, mesh: Any = None) -> Any:
    mesh = mesh or init_device_mesh("cpu", (plan.ranks,))
    lengthwise = "sequences" in plan.choices
    for block in model.blocks:
        names = {name.rpartition(".")[2] or name: name for name, _ in block.named_modules()}
        columns = ColwiseParallel(input_layouts=Shard(1)) if lengthwise else ColwiseParallel()
        rows = RowwiseParallel(output_layouts=Shard(1)) if lengthwise else RowwiseParallel()
        given = {names[n]: columns for n in _COLUMNS if n in names} | {names[n]: rows for n in _ROWS if n in names}
        parallelize_module(block, mesh, given | ({names["norm"]: SequenceParallel()} if lengthwise else {}))
    if lengthwise:
        whole = PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=True
        )  # fmt: skip
        first = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        parallelize_module(model, mesh, {"embedding": first, "head": whole})
    return model


def _both(model: Any, plan: Plan) -> Any:
    grid = (1, plan.ranks) if "one shard" in plan.choices else (plan.ranks // 2, 2)
    mesh = init_device_mesh("cpu", grid, mesh_dim_names=("shards", "parts"))
    return _sharded(_spread(model, plan, mesh["parts"]), plan, mesh["shards"])


WRAPPERS: Mapping[str, Wrapper] = {
    "replicated": Wrapper(_replicated, ("static", "views")),
    "sharded": Wrapper(_sharded, ("stays", "offloaded", "replicas", "at once"), later=("mixed", *Wrapper.later)),
    "flat": Wrapper(_flat, ("at once",), ("checkpointed",), ("layers after",), ("last batch",)),
    "spread": Wrapper(_spread, ("sequences", "fewer"), ("frozen",)),
    "both": Wrapper(_both, ("sequences", "one shard", "stays"), ("frozen",), later=("mixed", *Wrapper.later)),
}


# ---------------------------------------------------------------- what is compiled

Compile = Callable[[Any], Any]


def _each_layer(model: Any, compile: Compile) -> Any:
    for number, block in enumerate(model.blocks):
        model.blocks[number] = compile(block)
    return model


def _in_place(model: Any, compile: Compile) -> Any:
    with dovetail.install():
        for block in model.blocks:
            block.compile()
    return model


#: Before the model is wrapped, and after it. Without a compiler nothing happens.
WAYS: Mapping[str, tuple[Callable[[Any, Compile], Any] | None, Callable[[Any, Compile], Any] | None]] = {
    "around": (None, lambda model, compile: compile(model)),
    "inside": (lambda model, compile: compile(model), None),
    "layers before": (_each_layer, None),
    "layers after": (None, lambda model, compile: _each_layer(getattr(model, "module", model), compile) and model),
    "in place": (_in_place, None),
    "step": (None, None),
}


# ---------------------------------------------------------------- training

OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "one by one": lambda parameters: torch.optim.Adam(parameters, lr=0.01, foreach=False, amsgrad=True),
}
LOOP = ("clipped", "evaluated", "compiled update", "zeros")


class Training:
    """A model with its optimizer, and how they are called."""

    def __init__(self, plan: Plan, compiled: bool) -> None:
        ours = functools.partial(dovetail.compile, dynamic=plan.dynamic)
        compile: Compile = ours if compiled else lambda given: given
        before, after = WAYS[plan.way] if compiled else (None, None)
        model: Any = Model(plan).double()
        model = model if before is None else before(model, compile)
        model = WRAPPERS[plan.wrapper].wrap(model, plan)
        self.model = model if after is None else after(model, compile)
        self.loss = compile(_loss) if plan.way == "step" else _loss
        self.optimizer = OPTIMIZERS[plan.optimizer]([p for p in self.model.parameters() if p.requires_grad])
        self.update = compile(self.optimizer.step) if "compiled update" in plan.loop else self.optimizer.step

    def reloaded(self, plan: Plan, compiled: bool) -> Training:
        """Another one in the same state, as a checkpoint has it."""
        found = copy.deepcopy(get_state_dict(self.model, self.optimizer))
        other = Training(plan, compiled)
        set_state_dict(other.model, other.optimizer, model_state_dict=found[0], optim_state_dict=found[1])
        return other

    def step(self, plan: Plan, number: int) -> list[Tensor]:
        losses: list[Tensor] = []
        words = _batch(plan, number)
        for part, given in enumerate(words.chunk(plan.parts), 1):
            with _synchronized(self.model, part == plan.parts):
                loss = self.loss(self.model, given)
                loss.backward()
            losses.append(loss.detach())
        losses += self.clipped(plan)
        self.update()
        self.optimizer.zero_grad("zeros" not in plan.loop)
        if "evaluated" in plan.loop:
            self.model.eval()
            with torch.no_grad():
                losses.append(self.loss(self.model, words))
            self.model.train()
        return losses

    def clipped(self, plan: Plan) -> list[Tensor]:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        if "clipped by kind" in plan.later:  # a norm is of tensors on one mesh
            kinds: dict[Any, list[Any]] = {}
            for p in parameters:
                kinds.setdefault(getattr(p, "device_mesh", None), []).append(p)
            return [nn.utils.clip_grad_norm_(alike, 0.5) for alike in kinds.values()]
        if "clipped" in plan.loop and plan.wrapper in ("replicated", "sharded"):
            return [nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)]
        return []


def trained(plan: Plan, compiled: bool) -> list[Any]:
    """Losses, and the parameters in the end. Where it is `reloaded`, what is compiled goes on with what was not."""
    torch.manual_seed(0)
    training = Training(plan, compiled and "reloaded" not in plan.later)
    losses: list[Tensor] = []
    for number in range(STEPS):
        if number == 1 and "reloaded" in plan.later:
            training = training.reloaded(plan, compiled)
        losses += training.step(plan, number)
    return [torch.stack([_whole(loss) for loss in losses]), _parameters(training.model)]


def _loss(model: Any, words: Tensor) -> Tensor:
    found = model(words)
    return F.cross_entropy(found.flatten(0, 1), words.flatten()) * found.shape[0]


def _batch(plan: Plan, number: int) -> Tensor:
    """Ranks that one layer is spread over are given the same."""
    group = {"spread": plan.ranks, "both": plan.ranks if "one shard" in plan.choices else 2}.get(plan.wrapper, 1)
    generator = torch.Generator().manual_seed(10 * number + dist.get_rank() // group)
    return torch.randint(WORDS, (plan.sizes[number], 4), generator=generator)


def _synchronized(model: Any, last: bool) -> AbstractContextManager[None]:
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)
    found: AbstractContextManager[None] = nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()
    return found


def _whole(tensor: Any) -> Tensor:
    found: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach().double().clone()


def _parameters(model: Any) -> list[Tensor]:
    gathered = nullcontext()
    if isinstance(model, FullyShardedDataParallel):
        gathered = FullyShardedDataParallel.summon_full_params(model)  # type: ignore[assignment]
    with gathered:
        return [_whole(each) for each in (*model.parameters(), *model.buffers())]
