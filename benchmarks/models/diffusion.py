"""The network of a diffusion model: residual blocks that know the time, attention at the lower resolutions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def waves(time: Tensor, width: int) -> Tensor:
    rates = torch.exp(torch.arange(width // 2, device=time.device) * (-math.log(10_000.0) / (width // 2)))
    angles = time.float()[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int = 8) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(32, channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        rows = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(rows).view(n, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        rows = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, h * w, c)
        return x + self.out(rows).transpose(1, 2).reshape(n, c, h, w)


class DiffusionUNet(nn.Module):
    """Noisy images `(N, channels, H, W)` and times `(N,)` to the noise; H and W are multiples of 4."""

    def __init__(self, channels: int = 4, widths: tuple[int, ...] = (128, 256, 512)) -> None:
        super().__init__()
        self.width, time = widths[0], 4 * widths[0]
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(channels, widths[0], 3, padding=1)
        before = [widths[0], *widths[:-1]]
        self.down = nn.ModuleList(Residual(a, b, time) for a, b in zip(before, widths, strict=True))
        self.sees = nn.ModuleList(nn.Identity() if k == 0 else Attention(b) for k, b in enumerate(widths))
        self.shrink = nn.ModuleList(nn.Conv2d(b, b, 3, stride=2, padding=1) for b in widths[:-1])
        self.middle = nn.ModuleList([Residual(widths[-1], widths[-1], time), Residual(widths[-1], widths[-1], time)])
        after = [*widths[-2::-1], widths[0]]
        self.up = nn.ModuleList(Residual(2 * b, a, time) for b, a in zip(widths[::-1], after, strict=True))
        self.leave = nn.Sequential(nn.GroupNorm(32, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], channels, 3, padding=1))

    def forward(self, images: Tensor, times: Tensor) -> Tensor:
        time = self.time(waves(times, self.width).to(images.dtype))
        x, links = self.enter(images), []
        for k, (block, sees) in enumerate(zip(self.down, self.sees, strict=True)):
            x = sees(block(x, time))
            links.append(x)
            x = self.shrink[k](x) if k < len(self.shrink) else x
        for block in self.middle:
            x = block(x, time)
        for block in self.up:
            x = block(torch.cat([x, links.pop()], dim=1), time)
            x = F.interpolate(x, scale_factor=2.0, mode="nearest") if links else x
        return self.leave(x)
