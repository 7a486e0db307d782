"""A recommendation model (DLRM, Naumov et al., 2019): tables of embeddings, products of all pairs, two stacks."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def stack(widths: list[int]) -> nn.Sequential:
    pairs = list(zip(widths[:-1], widths[1:], strict=True))
    return nn.Sequential(*(layer for a, b in pairs for layer in (nn.Linear(a, b), nn.ReLU())))


class DLRM(nn.Module):
    """`dense (N, 13)` numbers and `places (N, tables)` of rows to a logit `(N, 1)`."""

    def __init__(self, tables: int = 26, rows: int = 100_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = stack([13, 512, 256, width])
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.top = nn.Sequential(*stack([width + pairs.shape[1], 1024, 512, 256]), nn.Linear(256, 1))

    def forward(self, dense: Tensor, places: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *(table(places[:, k]) for k, table in enumerate(self.tables))], dim=1)
        products = features @ features.mT
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1))
