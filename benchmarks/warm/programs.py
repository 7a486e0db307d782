"""The programs: DenseNet-121 and GPT-2, inference, training steps and whole steps as one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..contenders import Contender
from ..models import densenet
from ..registry import spread_norms
from ..training import Loss, TrainingStep, classes, next_token

Call = Callable[[], Any]


@dataclass(frozen=True)
class Model:
    """`inputs(device)` are those of a training step; inference takes the first."""

    title: str
    build: Callable[[], nn.Module]
    inputs: Callable[[torch.device], tuple[Tensor, ...]]
    loss: Loss


def _gpt2() -> nn.Module:
    import transformers  # takes seconds; only what needs it pays

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, loss_type="ForCausalLM"))


def _images(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 3, 128, 128, device=device), torch.randint(0, 1000, (4,), device=device)


def _tokens(device: torch.device) -> tuple[Tensor]:
    return (torch.randint(0, 30000, (2, 64), device=device),)


MODELS = {
    "densenet121": Model("DenseNet-121, 4x3x128x128", densenet.densenet121, _images, classes),
    "gpt2": Model("GPT-2, 2x64", _gpt2, _tokens, next_token),
}


def _inference(model: nn.Module, inputs: tuple[Tensor, ...], loss: Loss, contender: Contender) -> Call:
    spread_norms(model)
    compiled = contender.compile(model.eval())

    def call() -> Any:
        with torch.no_grad():
            return compiled(inputs[0])

    return call


def _training(model: nn.Module, inputs: tuple[Tensor, ...], loss: Loss, contender: Contender) -> Call:
    step = contender.compile(TrainingStep(model.train(), loss))
    return lambda: step(*inputs)


def _whole(model: nn.Module, inputs: tuple[Tensor, ...], loss: Loss, contender: Contender) -> Call:
    """Forward, backward and Adam in one function, its counts of steps on the device too."""
    optimizer = torch.optim.Adam(model.train().parameters(), lr=1e-5, capturable=inputs[0].is_cuda)

    def step(*inputs: Tensor) -> Tensor:
        optimizer.zero_grad()
        found = loss(model, *inputs)
        found.backward()
        optimizer.step()
        return found.detach()

    compiled = contender.compile(step)
    return lambda: compiled(*inputs)


KINDS: dict[str, Callable[[nn.Module, tuple[Tensor, ...], Loss, Contender], Call]] = {
    "inference": _inference, "training": _training, "step": _whole,
}  # fmt: skip
CASES = [f"{model}-{kind}" for model in MODELS for kind in KINDS]


def ready(name: str, device: torch.device) -> Callable[[Contender], Call]:
    """Model and inputs are on the device; what is given then is a call of the program as compiled by a contender."""
    model_name, _, kind = name.rpartition("-")
    torch.manual_seed(0)
    model = MODELS[model_name]
    built, inputs = model.build().to(device), model.inputs(device)
    return lambda contender: KINDS[kind](built, inputs, model.loss, contender)


def title(name: str) -> str:
    model_name, _, kind = name.rpartition("-")
    return f"{MODELS[model_name].title}, {_KINDS[kind]}"


_KINDS = {"inference": "inference", "training": "training", "step": "whole training step"}
