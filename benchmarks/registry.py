"""Which programs are measured: a name, how to build it, and in which groups of a run it takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .models import densenet, lstm, pointwise, resnet, unet, vit
from .training import Loss, TrainingStep, classes, maps, next_token, next_token_of_logits

Built = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """`build()` gives a callable and example inputs; both are the same in every process."""

    name: str
    title: str
    build: Callable[[], Built]
    demo: bool = False
    training: bool = False


def _images(batch: int, size: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, size, size),)


def _tokens(batch: int, length: int, vocabulary: int = 5000) -> tuple[torch.Tensor]:
    return (torch.randint(0, vocabulary, (batch, length)),)


def _language(name: str, batch: int, length: int) -> Built:
    from .models import language  # transformers takes seconds to import; only these cases pay

    return getattr(language, name)(), _tokens(batch, length)


def _row_chain() -> Built:
    return pointwise.row_chain, (torch.randn(2048, 1024), torch.randn(1024), torch.randn(1024))


def _labels(batch: int, size: int, count: int = 1000) -> tuple[torch.Tensor, torch.Tensor]:
    return (*_images(batch, size), torch.randint(0, count, (batch,)))


def _targets(batch: int, size: int, count: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return (*_images(batch, size), torch.rand(batch, count, size, size))


def _training(name: str, title: str, build: Callable[[], Built], loss: Loss) -> Case:
    def step() -> Built:
        model, inputs = build()
        return TrainingStep(model.train(), loss), inputs

    return Case(name, title, step, training=True)


CASES = {
    case.name: case
    for case in (
        Case("add-one", "x + 1, 4x8", lambda: (pointwise.add_one, (torch.randn(4, 8),))),
        Case("two-cosines", "cos(cos(x)), 1M", lambda: (pointwise.two_cosines, (torch.randn(1024, 1024),)), True),
        Case(
            "toy",
            "a / (|a| + 1) * b, 1M",
            lambda: (pointwise.toy_example, (torch.randn(1024, 1024), torch.randn(1024, 1024))),
            True,
        ),
        Case(
            "softmax",
            "pointwise + softmax, 1024x1024",
            lambda: (pointwise.pointwise_softmax, (torch.randn(1024, 1024), torch.randn(1024, 1024))),
            True,
        ),
        Case("row-chain", "gelu/sin + norm + softmax, 2048x1024", _row_chain),
        Case("densenet121", "DenseNet-121, 4x3x128x128", lambda: (densenet.densenet121(), _images(4, 128)), True),
        Case("resnet50", "ResNet-50, 4x3x128x128", lambda: (resnet.resnet50(), _images(4, 128))),
        Case("unet", "U-Net, 2x3x128x128", lambda: (unet.UNet(), _images(2, 128))),
        Case("vit", "ViT, 6 layers, 192 wide, 4x3x128x128", lambda: (vit.VisionTransformer(), _images(4, 128))),
        Case("gpt2", "GPT-2 style, 6 layers, 256 wide, 4x64", lambda: _language("gpt2", 4, 64), True),
        Case("llama", "Llama style, 4 layers, 256 wide, 4x64", lambda: _language("llama", 4, 64), True),
        Case("bert", "BERT style, 4 layers, 256 wide, 4x64", lambda: _language("bert", 4, 64)),
        _training(
            "train-densenet121",
            "DenseNet-121, 4x3x128x128",
            lambda: (densenet.densenet121(), _labels(4, 128)),
            classes,
        ),
        _training("train-unet", "U-Net, 2x3x128x128", lambda: (unet.UNet(), _targets(2, 128)), maps),
        _training(
            "train-vit",
            "ViT, 6 layers, 192 wide, 4x3x128x128",
            lambda: (vit.VisionTransformer(), _labels(4, 128)),
            classes,
        ),
        _training("train-gpt2", "GPT-2 style, 6 layers, 256 wide, 4x64", lambda: _language("gpt2", 4, 64), next_token),
        _training(
            "train-llama", "Llama style, 4 layers, 256 wide, 4x64", lambda: _language("llama", 4, 64), next_token
        ),
        _training(
            "train-lstm", "LSTM, 2 layers, 256 wide, 8x64", lambda: (lstm.LSTM(), _tokens(8, 64)), next_token_of_logits
        ),
    )
}


def build(name: str) -> Built:
    """The case's callable (a model in eval mode, a function, a training step) and its inputs, from a fixed seed."""
    torch.manual_seed(0)
    fn, inputs = CASES[name].build()
    if isinstance(fn, torch.nn.Module):
        spread_norms(fn)
        fn.eval()
    return fn, inputs


def spread_norms(model: torch.nn.Module) -> None:
    """Give batch norms statistics that a trained network could have: freshly made ones do nothing at all."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            torch.nn.init.normal_(module.running_mean, 0.0, 0.1)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, 0.0, 0.1)
