"""A language model of two LSTM layers between an embedding and a projection."""

from __future__ import annotations

from torch import Tensor, nn


class LSTM(nn.Module):
    """Tokens `(N, length)` to logits `(N, length, vocabulary)`."""

    def __init__(self, width: int = 256, layers: int = 2, vocabulary: int = 5000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.lstm(self.embedding(tokens))[0]))
