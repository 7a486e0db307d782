"""DenseNet (Huang et al., 2017): every layer of a block reads the outputs of all layers before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DenseLayer(nn.Module):
    """norm, relu, 1x1 conv, norm, relu, 3x3 conv: `growth` new channels from all the channels so far."""

    def __init__(self, channels: int, growth: int, bottleneck: int) -> None:
        super().__init__()
        width = bottleneck * growth
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, growth, kernel_size=3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = torch.cat(features, dim=1)
        x = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.ModuleList):
    """`layers` dense layers; the result is the concatenation of the input and every layer's output."""

    def __init__(self, layers: int, channels: int, growth: int, bottleneck: int) -> None:
        super().__init__(DenseLayer(channels + i * growth, growth, bottleneck) for i in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self:
            features.append(layer(features))
        return torch.cat(features, dim=1)


class Transition(nn.Sequential):
    """Halve the channels and the resolution between two blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels // 2, kernel_size=1, bias=False),
            nn.AvgPool2d(kernel_size=2, stride=2),
        )


class DenseNet(nn.Module):
    """Images `(N, 3, H, W)` to logits `(N, classes)`."""

    def __init__(
        self, blocks: tuple[int, ...], growth: int = 32, stem: int = 64, bottleneck: int = 4, classes: int = 1000
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [
            nn.Conv2d(3, stem, kernel_size=7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(stem),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        ]
        channels = stem
        for i, layers in enumerate(blocks):
            parts.append(DenseBlock(layers, channels, growth, bottleneck))
            channels += layers * growth
            if i != len(blocks) - 1:
                parts.append(Transition(channels))
                channels //= 2
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.features(images))
        x = F.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


def densenet121() -> DenseNet:
    """The 121-layer network: 8 million parameters."""
    return DenseNet((6, 12, 24, 16))
