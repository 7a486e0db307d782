"""Random convolutional networks: a training step, compiled and in eager.

    python -m tests.fuzz.images [--count 500] [--first 0]

Layouts are what is random here: a pass chooses those of convolutions, shape rules predict those of every operator
around them, and kernels that are given others read the wrong elements. Outputs and gradients are compared with
float64's, strides of outputs with eager's.
"""

from __future__ import annotations

import argparse
import copy
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import dovetail

Layer = Callable[[random.Random, int], nn.Module]


class Apply(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return FUNCTIONS[self.name](x)

    def extra_repr(self) -> str:
        return self.name


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def grid(x: torch.Tensor) -> torch.Tensor:
    places = torch.linspace(-1, 1, 50 * x.shape[0], dtype=x.dtype).view(x.shape[0], 5, 5, 2)
    return F.grid_sample(x, places, align_corners=False)


def blocks(x: torch.Tensor) -> torch.Tensor:
    even = F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2))
    return F.pixel_shuffle(F.pixel_unshuffle(even, 2), 2)


def attention(x: torch.Tensor) -> torch.Tensor:
    rows = x.flatten(2).transpose(1, 2).contiguous()
    return F.scaled_dot_product_attention(rows, rows, rows).transpose(1, 2).reshape(x.shape)


#: They keep the number of channels.
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "flip": lambda x: x.flip(2), "transpose": lambda x: x.transpose(2, 3), "roll": lambda x: x.roll(1, 3),
    "cumsum": lambda x: x.cumsum(2) / 3, "reshape": lambda x: x.reshape(x.shape[0], -1).reshape(x.shape),
    "slice": lambda x: x[:, :, 1:], "center": lambda x: x - x.mean(1, keepdim=True),
    "softmax": lambda x: x.softmax(1) * 4, "variance": lambda x: x / (x.var((2, 3), keepdim=True) + 0.5),
    "channel shuffle": lambda x: F.channel_shuffle(x, 2), "pixel shuffle": blocks, "attention": attention,
    "in place": lambda x: F.relu_(x.clone().mul_(2)), "maximum": lambda x: x - x.amax((2, 3), keepdim=True),
    "unfold": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1) / 9,
    "permute": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "chunks": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), "grid": grid,
    "layer norm": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],)).permute(0, 3, 1, 2),
    "normalize": lambda x: F.normalize(x, dim=1), "response norm": lambda x: F.local_response_norm(x, 2),
    "circular pad": lambda x: F.pad(x, (1, 0, 0, 1), mode="circular"),
    "gate": lambda x: x * F.adaptive_avg_pool2d(x, 1).sigmoid(),
    "index": lambda x: x[:, torch.arange(x.shape[1]).flip(0)],
}  # fmt: skip

LAYERS: list[Layer] = [
    lambda r, c: nn.Conv2d(c, c, 3, padding=1, groups=r.choice([1, 1, 2, c])),
    lambda r, c: nn.Conv2d(c, c, 1, bias=False),
    lambda r, c: nn.ConvTranspose2d(c, c, 2),
    lambda r, c: nn.BatchNorm2d(c),
    lambda r, c: nn.GroupNorm(2, c),
    lambda r, c: nn.InstanceNorm2d(c, affine=r.random() < 0.5),
    lambda r, c: r.choice([nn.ReLU, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.PReLU, nn.Hardswish, nn.ELU, nn.Mish])(),
    lambda r, c: r.choice([nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(2, ceil_mode=True),
                           nn.AdaptiveAvgPool2d(6), nn.AdaptiveMaxPool2d(6), nn.LPPool2d(2, 2, 1)]),
    lambda r, c: nn.Upsample(size=r.choice([7, 9]), mode=r.choice(["nearest", "bilinear", "bicubic"])),
    lambda r, c: r.choice([nn.ReflectionPad2d, nn.ReplicationPad2d, nn.ZeroPad2d])(1),
    lambda r, c: Residual(nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU()),
    *[lambda r, c: Apply(r.choice(list(FUNCTIONS)))] * 5,
]  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What a training step gives."""

    output: torch.Tensor
    gradients: list[torch.Tensor]
    buffers: list[torch.Tensor]


def network(seed: int) -> tuple[nn.Module, torch.Tensor]:
    chosen = random.Random(seed)
    torch.manual_seed(seed)
    channels = chosen.choice([4, 8])
    layers = [chosen.choice(LAYERS)(chosen, channels) for _ in range(chosen.randrange(2, 7))]
    x = torch.randn(2, 3, 10, 10)
    if chosen.random() < 0.2:
        x = x.to(memory_format=torch.channels_last)
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *layers), x


def step(call: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> Step:
    x = x.detach().clone().requires_grad_()
    output = call(x)
    tangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output.dtype)
    output.backward(tangent)
    given = (x, *model.parameters())
    return Step(output.detach(), [t.grad for t in given if t.grad is not None], [b.clone() for b in model.buffers()])


def check(seed: int, backend: str) -> str | None:
    """What differs from eager, in one line; None also where eager refuses the network."""
    model, x = network(seed)
    try:
        copy.deepcopy(model)(x)
    except RuntimeError:
        return None
    ours, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    dovetail.reset()
    want, true = step(model, model, x), step(exact, exact, x.double())
    got = step(dovetail.compile(ours, backend=backend, fullgraph=True), ours, x)
    if got.output.stride() != want.output.stride():
        return f"strides {got.output.stride()}, eager's {want.output.stride()}"
    for place in ("output", "gradients", "buffers"):
        parts = [[p] if isinstance(p, torch.Tensor) else p for p in (getattr(s, place) for s in (got, want, true))]
        for k, (mine, theirs, reference) in enumerate(zip(*parts, strict=True)):
            errors = [(t.double() - reference.double()).abs().max().item() for t in (mine, theirs)]
            if not errors[0] <= 8 * errors[1] + 1e-5 * (1 + reference.abs().max().item()):
                return f"{place}[{k}] is off by {errors[0]:.2g}, eager's by {errors[1]:.2g}"
    return None


def main() -> int:
    """1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        for backend in ("dovetail", "aot_eager"):
            found = check(seed, backend)
            if found is not None:
                failed += 1
                print(f"seed {seed}, {backend}: {found}\n{network(seed)[0]}")
    print(f"{failed} of {2 * chosen.count} steps differ")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
