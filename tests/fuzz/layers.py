"""Random models of layers that are almost equal, each compiled by itself: they share what all of them do, no more.

    python -m tests.fuzz.layers [--count 200] [--first 0] [--one SEED]

All layers are of one class. Most are alike, and some differ in a way that hides: another epsilon, flag, type or size,
a frozen, shared or missing parameter, a hook, a parametrization, a buffer that is written to, dropout. They are run one
after the other, twice in training and once in evaluation: results, gradients, buffers, counters and errors are those of
eager copies. Layers come as modules, as closures over them, through one function that is given the layer, or all in one
graph. What seeds before have left on disk is there to be taken, too.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import dovetail
from tests.fuzz.sweep import sweep

SIZE = 6


class Layer(nn.Module):
    def __init__(self, size: int = SIZE) -> None:
        super().__init__()
        self.norm, self.line, self.drop = nn.LayerNorm(size), nn.Linear(size, size), nn.Dropout(0.0)
        self.register_buffer("mean", torch.zeros(size))
        self.scale, self.flag, self.calls, self.parts = 1.0, True, 0, {"gain": 0.5}
        self.act: Callable[[Tensor], Tensor] = torch.tanh
        self.gain: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = self.line(self.norm(x).to(self.line.weight.dtype)).to(x.dtype)
        if self.flag:
            y = self.act(y) * self.scale
        if self.gain is not None:
            y = y * self.gain
        if self.training:
            self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return x + self.drop(y) * self.parts["gain"] + self.mean


class Halved(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


def _shared(layer: Layer, other: Layer) -> None:
    layer.line.weight = other.line.weight


def _shared_buffer(layer: Layer, other: Layer) -> None:
    layer.mean = other.mean


def _parametrized(layer: Layer, other: Layer) -> None:
    nn.utils.parametrize.register_parametrization(layer.line, "weight", Halved())


#: Ways to differ: each is given the layer and the one before it.
CHANGES: dict[str, Callable[[Layer, Layer], Any]] = {
    "eps": lambda layer, other: setattr(layer.norm, "eps", 0.5),
    "scale": lambda layer, other: setattr(layer, "scale", 2.0),
    "whole scale": lambda layer, other: setattr(layer, "scale", 3),
    "flag": lambda layer, other: setattr(layer, "flag", False),
    "part": lambda layer, other: layer.parts.update(gain=-1.0),
    "activation": lambda layer, other: setattr(layer, "act", torch.sin),
    "its own activation": lambda layer, other: setattr(layer, "act", lambda y: y * layer.scale + 1),
    "gain": lambda layer, other: setattr(layer, "gain", nn.Parameter(torch.full((SIZE,), 1.5))),
    "gain, a tensor": lambda layer, other: setattr(layer, "gain", torch.full((SIZE,), 1.5)),
    "frozen": lambda layer, other: layer.line.weight.requires_grad_(False),
    "all frozen": lambda layer, other: layer.requires_grad_(False),
    "no bias": lambda layer, other: setattr(layer.line, "bias", None),
    "plain norm": lambda layer, other: setattr(layer, "norm", nn.LayerNorm(SIZE, elementwise_affine=False)),
    "another class": lambda layer, other: setattr(layer, "norm", nn.RMSNorm(SIZE)),
    "double": lambda layer, other: layer.line.double(),
    "transposed": lambda layer, other: setattr(layer.line.weight, "data", layer.line.weight.data.t()),
    "shared": _shared,
    "shared bias": lambda layer, other: setattr(layer.line, "bias", other.line.bias),
    "one bias and gain": lambda layer, other: setattr(layer, "gain", layer.line.bias),
    "shared buffer": _shared_buffer,
    "shared norm": lambda layer, other: setattr(layer, "norm", other.norm),
    "hook": lambda layer, other: layer.line.register_forward_hook(lambda m, args, out: out * 2),
    "hook before": lambda layer, other: layer.norm.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
    "hook of a tensor": lambda layer, other: layer.line.weight.register_hook(lambda g: g * 3),
    "parametrized": _parametrized,
    "weight norm": lambda layer, other: parametrizations.weight_norm(layer.line),
    "dropout": lambda layer, other: setattr(layer.drop, "p", 0.5),
    "evaluated": lambda layer, other: layer.eval(),
    "evaluated dropout": lambda layer, other: (setattr(layer.drop, "p", 0.5), layer.drop.eval()),
    "forward": lambda layer, other: setattr(layer.line, "forward", lambda x: x * 2 + layer.line.bias),
}  # fmt: skip


def _alone(compile: Callable[[Any], Any], layers: list[Layer]) -> Callable[[Tensor], Tensor]:
    return _in_turn([compile(layer) for layer in layers])


def _closures(compile: Callable[[Any], Any], layers: list[Layer]) -> Callable[[Tensor], Tensor]:
    def closed(layer: Layer) -> Callable[[Tensor], Tensor]:
        return lambda x: layer(x) * 0.5

    return _in_turn([compile(closed(layer)) for layer in layers])


def _given(compile: Callable[[Any], Any], layers: list[Layer]) -> Callable[[Tensor], Tensor]:
    run = compile(lambda layer, x: layer(x))
    return _in_turn([lambda x, layer=layer: run(layer, x) for layer in layers])


def _whole(compile: Callable[[Any], Any], layers: list[Layer]) -> Callable[[Tensor], Tensor]:
    return compile(_in_turn(layers))


def _in_turn(parts: list[Any]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        for part in parts:
            x = part(x)
        return x

    return run


WAYS = (_alone, _closures, _given, _whole)


def made(seed: int) -> tuple[list[Layer], Any, list[str]]:
    """Layers, how they are compiled, and how some differ."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    layers = [Layer() for _ in range(choose.randint(4, 7))]
    told = []
    for _ in range(choose.randint(1, 3)):
        k, name = choose.randrange(1, len(layers)), choose.choice(list(CHANGES))
        try:
            CHANGES[name](layers[k], layers[k - 1])
        except (AttributeError, KeyError, TypeError, ValueError):  # two changes that do not go together
            continue
        told.append(f"{k}: {name}")
    return layers, choose.choice(WAYS), told


def outcome(compile: Callable[[Any], Any], seed: int) -> list[Any]:
    """What shows of two training steps and an evaluation; or what is raised."""
    layers, way, _ = made(seed)
    try:
        return _steps(way(compile, layers), layers, seed)
    except RuntimeError as error:  # types that do not go together
        return [type(error), *(layer.calls for layer in layers)]


def _steps(run: Callable[[Tensor], Tensor], layers: list[Layer], seed: int) -> list[Any]:
    found: list[Any] = []
    for step in range(2):
        torch.manual_seed(seed + step)
        x = torch.randn(3, SIZE, requires_grad=True)
        result = run(x)
        result.square().sum().backward()
        found += [result, x.grad]
    gradients = [p.grad for layer in layers for p in layer.parameters()]
    modes = [layer.eval() for layer in layers]
    with torch.no_grad():
        found.append(run(torch.ones(2, SIZE)))
    buffers = [b for layer in modes for b in layer.buffers()]
    return [*found, *gradients, *buffers, *(layer.calls for layer in layers), torch.rand(1)]


def check(seed: int) -> str | None:
    """None, or how compiled layers differ from eager ones."""
    dovetail.reset()
    with dovetail.config.patch(fallback_random=True):
        got = outcome(dovetail.compile, seed)
    want = outcome(lambda fn: fn, seed)
    for k, (mine, eager) in enumerate(itertools.zip_longest(got, want)):
        if isinstance(eager, Tensor) and isinstance(mine, Tensor):
            if mine.dtype is eager.dtype and torch.allclose(mine, eager, rtol=1e-4, atol=1e-5):
                continue
        elif mine == eager and type(mine) is type(eager):
            continue
        _, way, told = made(seed)
        return f"seed {seed}, {way.__name__}, {', '.join(told)}: {k}: {mine} instead of {eager}"
    return None


if __name__ == "__main__":
    raise SystemExit(sweep("tests.fuzz.layers", check, 200))
