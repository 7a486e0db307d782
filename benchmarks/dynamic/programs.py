"""The programs that are given many sizes, and how sizes are drawn. The same in every process."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..models import densenet, lstm, pointwise, unet
from ..registry import spread_norms
from ..training import Loss, TrainingStep, classes, maps, next_token, next_token_of_logits, tags

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """`inputs(*sizes)` makes the inputs of one call; `varies` names the dimensions of each that differ between calls.

    `ranges` has for each size the least, the largest and the step between two.
    """

    title: str
    model: Callable[[], Any]
    inputs: Callable[..., tuple[Tensor, ...]]
    varies: tuple[tuple[int, ...], ...]
    ranges: tuple[tuple[int, int, int], ...]
    usual: Sizes
    loss: Loss | None = None

    def build(self) -> Any:
        """A model in eval mode, a function or a training step, from a fixed seed."""
        torch.manual_seed(0)
        model = self.model()
        if self.loss is not None:
            return TrainingStep(model.train(), self.loss)
        if isinstance(model, torch.nn.Module):
            spread_norms(model)
            model.eval()
        return model

    def sequence(self, count: int, seed: int) -> list[Sizes]:
        """So many different sizes, drawn at random; from one to the next every dimension changes."""
        draw, found = random.Random(seed), list[Sizes]()
        while len(found) < count:
            sizes = tuple(draw.randrange(low, high + 1, step) for low, high, step in self.ranges)
            if sizes not in found and not (found and any(map(operator.eq, sizes, found[-1]))):
                found.append(sizes)
        return found

    def given(self, sizes: Sizes) -> tuple[Tensor, ...]:
        """The inputs of these sizes; their values follow from the sizes."""
        torch.manual_seed(hash(sizes) % 2**32)
        return self.inputs(*sizes)


def _tokens(batch: int, length: int) -> tuple[Tensor]:
    return (torch.randint(0, 5000, (batch, length)),)


def _images(batch: int, height: int, width: int) -> tuple[Tensor]:
    return (torch.randn(batch, 3, height, width),)


def _labelled(batch: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    return (*_images(batch, height, width), torch.randint(0, 1000, (batch,)))


def _mapped(batch: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    return (*_images(batch, height, width), torch.rand(batch, 2, height, width))


def _rows(count: int, length: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, length), torch.randn(count, length)


def _language(name: str, **configuration: int) -> Callable[[], Any]:
    def build() -> Any:
        from ..models import language  # transformers takes seconds to import; only these cases pay

        return getattr(language, name)(**configuration)

    return build


_TEXT, _TEXT_WITH_ONES = ((2, 8, 1), (2, 128, 1)), ((1, 3, 1), (1, 8, 1))
_PICTURE, _DIVISIBLE = ((1, 4, 1), (64, 128, 1), (64, 128, 1)), ((1, 4, 1), (32, 128, 8), (32, 128, 8))
_BATCH, _MAPS = (0,), (0, 2, 3)

CASES = {
    "rows": Case(
        "pointwise + softmax", lambda: pointwise.pointwise_softmax, _rows, ((0, 1), (0, 1)),
        ((1, 1024, 1), (1, 1024, 1)), (512, 512),
    ),
    "gpt2": Case("GPT-2 style", _language("gpt2"), _tokens, ((0, 1),), _TEXT, (4, 64)),
    "gpt2-ones": Case("GPT-2 style, ones among them", _language("gpt2"), _tokens, ((0, 1),), _TEXT_WITH_ONES, (2, 4)),
    "bert": Case("BERT style", _language("bert"), _tokens, ((0, 1),), _TEXT, (4, 64)),
    "densenet121": Case("DenseNet-121", densenet.densenet121, _images, (_MAPS,), _PICTURE, (2, 96, 96)),
    "unet": Case("U-Net", unet.UNet, _images, (_MAPS,), _DIVISIBLE, (2, 96, 96)),
    "lstm": Case("LSTM", lstm.LSTM, _tokens, ((0, 1),), ((1, 8, 1), (1, 128, 1)), (4, 64)),
    "train-gpt2": Case(
        "GPT-2 style, training", _language("gpt2"), _tokens, ((0, 1),), _TEXT, (4, 64), next_token
    ),
    "train-bert": Case("BERT style, training", _language("bert"), _tokens, ((0, 1),), _TEXT, (4, 64), tags),
    "train-densenet121": Case(
        "DenseNet-121, training", densenet.densenet121, _labelled, (_MAPS, _BATCH), _PICTURE, (2, 96, 96), classes
    ),
    "train-unet": Case("U-Net, training", unet.UNet, _mapped, (_MAPS, _MAPS), _DIVISIBLE, (2, 96, 96), maps),
    "train-lstm": Case(
        "LSTM, training", lstm.LSTM, _tokens, ((0, 1),), _TEXT, (4, 64), next_token_of_logits
    ),
}  # fmt: skip

#: What generates text: models with a place for every token of prompt and answer.
GENERATORS = {
    "gpt2-small": (
        "GPT-2 small: 12 layers, 768 wide",
        _language("gpt2", layers=12, width=768, heads=12, vocabulary=50257, positions=1024),
    ),
    "gpt2": ("GPT-2 style: 6 layers, 256 wide", _language("gpt2", positions=512)),
    "llama": ("Llama style: 4 layers, 256 wide", _language("llama")),
}
