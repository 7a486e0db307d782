"""What is trained, how it is spread over processes, and the ways to compile it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from ..contenders import Program
from ..models import language
from . import SHAKEN

Compile = Callable[[Program], Program]
Way = Callable[[nn.Module, Compile], nn.Module]
BF16 = torch.bfloat16


class WithLoss(nn.Module):
    """`forward(words, labels)`: the mean cross entropy of a language model's logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(words).logits.flatten(0, 1).float(), labels.flatten())

    @property
    def layers(self) -> nn.ModuleList:
        inner = self.model.transformer.h if hasattr(self.model, "transformer") else self.model.model.layers
        assert isinstance(inner, nn.ModuleList)
        return inner


@dataclass(frozen=True)
class Sizes:
    """Of a model, and of each process's batch."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    length: int

    @property
    def text(self) -> str:
        return f"{self.layers} layers, {self.width} wide, {self.batch}x{self.length}"


@dataclass(frozen=True)
class Part:
    """`alike`: so many neighbouring processes are given the same batches, 0 for all. `ways`: of each contender, those
    that are measured."""

    title: str
    sizes: Sizes
    model: Callable[[Sizes], nn.Module]
    ways: Mapping[str, Mapping[str, Way]]
    alike: int = 1

    @property
    def tiny(self) -> Part:
        return replace(self, sizes=Sizes(2, 64, 8, 64, 2, 16))


# ---------------------------------------------------------------- models


def _gpt(sizes: Sizes) -> nn.Module:
    model = language.gpt2(sizes.layers, sizes.width, sizes.heads, sizes.vocabulary, sizes.length)
    return WithLoss(model).to(BF16)


def _llama(sizes: Sizes) -> nn.Module:
    return WithLoss(language.llama(sizes.layers, sizes.width, sizes.heads, sizes.vocabulary))


def _llama_in_bfloat16(sizes: Sizes) -> nn.Module:
    return _llama(sizes).to(BF16)


# ---------------------------------------------------------------- ways


def _with_layers(model: nn.Module, compile: Compile) -> nn.Module:
    for number, layer in enumerate(model.layers):
        model.layers[number] = compile(layer)
    return model


def _sharded(model: nn.Module, mesh: DeviceMesh | None = None) -> nn.Module:
    """Parameters and their sums in float32, computation in bfloat16."""
    policy = MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


_COLUMNS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
_ROWS = ("self_attn.o_proj", "mlp.down_proj")


def _spread(model: nn.Module) -> nn.Module:
    """Heads and hidden units of each layer, in bfloat16."""
    mesh = init_device_mesh(_device(model), (dist.get_world_size(),))
    return _split(model.to(BF16), mesh)


def _split(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    plan = {name: ColwiseParallel() for name in _COLUMNS} | {name: RowwiseParallel() for name in _ROWS}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    return model


def _in_two_ways(model: nn.Module) -> nn.Module:
    """Each layer's heads and hidden units between two neighbours, and what each of them has over all such pairs."""
    mesh = init_device_mesh(_device(model), (dist.get_world_size() // 2, 2), mesh_dim_names=("pairs", "in a pair"))
    return _sharded(_split(model, mesh["in a pair"]), mesh["pairs"])


def _device(model: nn.Module) -> str:
    return next(model.parameters()).device.type


def _around(wrap: Callable[[nn.Module], nn.Module]) -> Way:
    return lambda model, compile: compile(wrap(model))


def _inside(wrap: Callable[[nn.Module], nn.Module]) -> Way:
    return lambda model, compile: wrap(compile(model))


def _layers(wrap: Callable[[nn.Module], nn.Module]) -> Way:
    return lambda model, compile: wrap(_with_layers(model, compile))


def _fewer_collectives(way: Way) -> Way:
    """The processes of a contender are its own, and so are their settings."""

    def chosen(model: nn.Module, compile: Compile) -> nn.Module:
        importlib.import_module("dovetail").config.fewer_collectives = True
        return way(model, compile)

    return chosen


def _shaken(way: Way) -> Way:
    """With weights that are changed in the last place of bfloat16: what rounding does to losses."""

    def changed(model: nn.Module, compile: Compile) -> nn.Module:
        with torch.no_grad():
            for parameter in model.parameters():
                up = torch.rand_like(parameter, dtype=torch.float32) < 0.5
                parameter.mul_(torch.where(up, 1 + 2**-8, 1 - 2**-8))
        return way(model, compile)

    return changed


def _ways(plain: Way, peer: Mapping[str, Way], own: Mapping[str, Way]) -> Mapping[str, Mapping[str, Way]]:
    return {"eager": {"": plain, SHAKEN: _shaken(plain)}, "dovetail": own, "peer": peer}


_REPLICAS, _SHARDS = _around(DistributedDataParallel), _around(_sharded)
_SPREAD, _GRID = _around(_spread), _around(_in_two_ways)
_SHARDED = {"whole": _SHARDS, "layers": _layers(_sharded)}
PARTS = {
    "ddp": Part(
        "GPT, DistributedDataParallel", Sizes(12, 768, 12, 50257, 8, 1024), _gpt,
        _ways(_REPLICAS, {"around": _REPLICAS}, {
            "around": _REPLICAS,
            "inside": _inside(DistributedDataParallel),
            "layers": _layers(DistributedDataParallel),
        }),
    ),
    "ddp-llama": Part(
        "Llama, DistributedDataParallel", Sizes(16, 2048, 16, 32000, 2, 2048), _llama_in_bfloat16,
        _ways(_REPLICAS, {"around": _REPLICAS}, {"around": _REPLICAS, "layers": _layers(DistributedDataParallel)}),
    ),
    "fsdp": Part(
        "Llama, fully_shard", Sizes(16, 2048, 16, 32000, 2, 2048), _llama, _ways(_SHARDS, _SHARDED, _SHARDED),
    ),
    "tp": Part(
        "Llama, parallelize_module", Sizes(16, 2048, 16, 32000, 4, 2048), _llama,
        _ways(_SPREAD, {"whole": _SPREAD}, {"whole": _SPREAD, "fewer": _fewer_collectives(_SPREAD)}), alike=0,
    ),
    "2d": Part(
        "Llama, parallelize_module and fully_shard", Sizes(16, 2048, 16, 32000, 2, 2048), _llama,
        _ways(_GRID, {"whole": _GRID}, {"whole": _GRID, "layers": _layers(_in_two_ways)}), alike=2,
    ),
}  # fmt: skip
