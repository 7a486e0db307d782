"""Random models of many layers in one graph, of which a few are compiled where all are alike (`dovetail/repeats/`).

    python -m tests.fuzz.turns [--count 200] [--first 0] [--one SEED]

Every layer of a model does the same random steps with parameters of its own: on what the layer before has left, on what
an earlier one has, on values that all layers share. Some models have layers that differ: a frozen, shared or transposed
parameter, another constant, a step more, a result that is returned. Results and gradients are those of eager copies,
with and without gradients; in double precision, as differences grow from layer to layer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dovetail
from tests.fuzz.sweep import sweep

SIZE = 6

#: Steps: each is given the layer, its values so far, and two numbers to choose by.
Step = Callable[["Layer", list[Tensor], int, int], Tensor]
STEPS: dict[str, Step] = {
    "linear": lambda layer, v, a, b: F.linear(v[a], layer.weight, layer.bias),
    "product": lambda layer, v, a, b: v[a] @ layer.weight,
    "norm": lambda layer, v, a, b: F.layer_norm(v[a], (SIZE,), layer.gain),
    "root": lambda layer, v, a, b: F.rms_norm(v[a], (SIZE,), layer.gain),
    "tanh": lambda layer, v, a, b: v[a].tanh(),
    "add": lambda layer, v, a, b: v[a] + v[b],
    "mul": lambda layer, v, a, b: v[a] * v[b] * layer.scale,
    "gain": lambda layer, v, a, b: v[a] * layer.gain,
    "softmax": lambda layer, v, a, b: v[a].softmax(-1),
    "attend": lambda layer, v, a, b: (v[a] @ v[b].transpose(-1, -2)).softmax(-1) @ v[a],
    "parts": lambda layer, v, a, b: torch.cat([v[a][..., 3:], v[b][..., :3]], -1),
    "chunks": lambda layer, v, a, b: torch.stack(v[a].chunk(2, -1)).sum(0).repeat(1, 1, 2),
    "sum": lambda layer, v, a, b: v[a] - v[b].mean(1, keepdim=True),
    "where": lambda layer, v, a, b: torch.where(v[a] > 0, v[a], v[b] * 0.5),
    "weights": lambda layer, v, a, b: v[a] + (layer.weight * layer.weight).sum(0),
    "halves": lambda layer, v, a, b: v[a] + (v[b] > 0).to(torch.float16),
    "written": lambda layer, v, a, b: v[a].clone().add_(v[b]).mul_(0.5),
    "row": lambda layer, v, a, b: _row(v[a].clone(), v[b]),
    "shared": lambda layer, v, a, b: v[a] * layer.shared,
    "angles": lambda layer, v, a, b: v[a] + torch.arange(SIZE).mul(0.1).cos(),
    "roll": lambda layer, v, a, b: v[a].roll(1, -1),
    "cumsum": lambda layer, v, a, b: v[a].cumsum(1) * 0.3,
    "dropout": lambda layer, v, a, b: F.dropout(v[a], 0.3),
    "detached": lambda layer, v, a, b: v[a] - v[b].detach(),
}


def _row(made: Tensor, other: Tensor) -> Tensor:
    made[:, 1] = other[:, 0] * 0.25
    return made


class Layer(nn.Module):
    def __init__(self, steps: list[tuple[str, int, int]], shared: Tensor) -> None:
        super().__init__()
        self.steps, self.scale, self.shared = list(steps), 0.5, shared  # a leaf that is no parameter
        self.weight, self.bias = nn.Parameter(torch.randn(SIZE, SIZE) * 0.4), nn.Parameter(torch.randn(SIZE))
        self.gain = nn.Parameter(torch.rand(SIZE) + 0.5)

    def forward(self, values: list[Tensor]) -> Tensor:
        for name, a, b in self.steps:
            values = [*values, STEPS[name](self, values, a % len(values), b % len(values))]
        return values[-1]


class Model(nn.Module):
    """`reach`: which values a layer sees: those of so many layers before it; `returned`: the layers whose results are
    results of the model beside the last one's."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        count = choose.randint(9, 14)
        names = [*choose.choices(list(STEPS), k=choose.randint(1, 6)), "add", "linear", "root"]
        choose.shuffle(names)
        steps = [(name, choose.choice([-1, -1, choose.randrange(9)]), choose.randrange(9)) for name in names]
        steps.append(("root", -1, 0))  # else values grow out of bounds
        shared = torch.rand(SIZE).double().add(0.5).requires_grad_(choose.random() < 0.7)
        self.layers = nn.ModuleList([Layer(steps, shared).double() for _ in range(count)])
        self.reach, self.first, self.returned = choose.choice([1, 1, 1, 2]), choose.random() < 0.2, ()
        if choose.random() < 0.15:
            self.returned = tuple(choose.sample(range(count), choose.randint(1, 2)))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        seen = [x.sin()]
        for layer in self.layers:
            seen.append(layer([*seen[-self.reach :], *(seen[:1] if self.first else ())]))
        return F.relu(seen[-1]).sum(-1), seen[-1], *(seen[k + 1] for k in self.returned)


def _more(layer: Layer, other: Layer) -> None:
    layer.steps.append(("tanh", len(layer.steps), 0))


#: Ways to differ: each is given the layer and the one before it.
CHANGES: dict[str, Callable[[Layer, Layer], Any]] = {
    "frozen": lambda layer, other: layer.weight.requires_grad_(False),
    "all frozen": lambda layer, other: layer.requires_grad_(False),
    "scale": lambda layer, other: setattr(layer, "scale", 0.25),
    "shared": lambda layer, other: setattr(layer, "weight", other.weight),
    "one vector": lambda layer, other: setattr(layer, "gain", layer.bias),
    "gain of the other": lambda layer, other: setattr(layer, "gain", other.bias),
    "transposed": lambda layer, other: setattr(layer.weight, "data", layer.weight.data.t()),
    "single": lambda layer, other: setattr(layer, "shared", layer.shared.detach().float()),
    "another vector": lambda layer, other: setattr(layer, "shared", torch.rand(SIZE).double()),
    "more": _more,
    "fewer": lambda layer, other: layer.steps.pop(0),
}


def made(seed: int) -> tuple[Model, list[str]]:
    """A model, and how some of its layers differ."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    model, told = Model(choose), []
    for _ in range(choose.choice([0, 0, 1, 1, 2])):
        k, name = choose.randrange(1, len(model.layers)), choose.choice(list(CHANGES))
        CHANGES[name](model.layers[k], model.layers[k - 1])  # type: ignore[arg-type]
        told.append(f"{k}: {name}")
    if choose.random() < 0.2:
        for layer in model.layers[:: choose.choice([2, 3])]:
            layer.scale = 0.75  # type: ignore[assignment]
    return model, told


def outcome(compile: Callable[[Any], Any], seed: int) -> list[Any]:
    """Results without gradients, then results and gradients of a training step, from some of the results; or what is
    raised."""
    model, _ = made(seed)
    choose = random.Random(-seed)
    run = compile(model)
    x = torch.randn(2, 4, SIZE, dtype=torch.float64, requires_grad=True)
    try:
        with torch.no_grad():
            found = [*run(x)]
        results = run(x)
        used = choose.sample(results, choose.randint(1, len(results)))
        sum((r.square().sum() for r in used), torch.zeros(())).backward()
    except RuntimeError as error:  # types that do not go together
        return [type(error)]
    return [*found, *results, x.grad, *(p.grad for p in model.parameters())]


def check(seed: int) -> str | None:
    """None, or how the compiled model differs from the eager one."""
    dovetail.reset()
    with dovetail.config.patch(fallback_random=True):
        got = outcome(dovetail.compile, seed)
    want = outcome(lambda fn: fn, seed)
    for k, (mine, eager) in enumerate(zip(got, want, strict=True)):
        if isinstance(eager, Tensor) and isinstance(mine, Tensor):
            if mine.dtype is eager.dtype and torch.allclose(mine, eager, rtol=1e-6, atol=1e-9, equal_nan=True):
                continue
        elif mine is eager:
            continue
        model, told = made(seed)
        steps = [name for name, _, _ in model.layers[0].steps]  # type: ignore[union-attr]
        return f"seed {seed}, {len(model.layers)} layers of {steps}, {told}: {k}: {mine} instead of {eager}"
    return None


if __name__ == "__main__":
    raise SystemExit(sweep("tests.fuzz.turns", check, 200))
