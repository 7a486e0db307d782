"""U-Net (Ronneberger et al., 2015) with padded convolutions: an encoder, a decoder, and links between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def double_conv(channels: int, out: int) -> nn.Sequential:
    """Two 3x3 convolutions, each followed by batch norm and SiLU."""
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.SiLU(),
        nn.Conv2d(out, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.SiLU(),
    )


class UNet(nn.Module):
    """Images `(N, 3, H, W)` to a map `(N, classes, H, W)`; H and W are multiples of `2 ** levels`."""

    def __init__(self, width: int = 32, levels: int = 3, classes: int = 2) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(levels + 1)]
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip([3, *widths[:-2]], widths[:-1]))
        self.middle = double_conv(widths[-2], widths[-1])
        self.up = nn.ModuleList(double_conv(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x, links = images, []
        for block in self.down:
            x = block(x)
            links.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for block, link in zip(self.up, reversed(links)):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, link], dim=1))
        return torch.sigmoid(self.head(x))
