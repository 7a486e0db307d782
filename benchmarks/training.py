"""A training step as a program to measure: forward, loss, backward, Adam."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[..., Tensor]
Compile = Callable[[Any], Any]


class TrainingStep:
    """`step(*inputs)` takes one step on a model of its own and returns the loss, a tensor without dimensions.

    `loss(model, *inputs)` is the forward half. A compiler gets that function and the optimizer's `step`; clearing the
    gradients and `backward()` are the user's own, as they are in most training scripts.
    """

    def __init__(self, model: nn.Module, loss: Loss, lr: float = 1e-5) -> None:
        self.model, self.loss, self.lr = model, loss, lr
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.forward: Callable[..., Tensor] = self._eager_forward
        self.update: Callable[[], Any] = self.optimizer.step

    def _eager_forward(self, *inputs: Tensor) -> Tensor:
        return self.loss(self.model, *inputs)

    def compiled(self, compile: Compile) -> TrainingStep:
        """The same step from the same weights, on a copy of the model."""
        step = TrainingStep(copy.deepcopy(self.model), self.loss, self.lr)
        step.forward, step.update = compile(step.forward), compile(step.update)
        return step

    def __call__(self, *inputs: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = self._backward(inputs)
            self.update()
        return loss.detach()

    def _backward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.forward(*inputs)
        loss.backward()
        return loss

    def gradients(self, *inputs: Tensor) -> list[Tensor]:
        """The loss and every parameter's gradient, without a step."""
        with torch.enable_grad():
            loss = self._backward(inputs)
        return [loss.detach(), *(p.grad for p in self.model.parameters() if p.grad is not None)]

    def double(self) -> TrainingStep:
        """The same step in float64."""
        return TrainingStep(copy.deepcopy(self.model).double(), self.loss, self.lr)


def next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    """A transformers language model's own loss."""
    return model(tokens, labels=tokens).loss


def next_token_of_logits(model: nn.Module, tokens: Tensor) -> Tensor:
    """The same for a model that returns logits `(N, length, vocabulary)`."""
    logits = model(tokens)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def classes(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of one label an image."""
    return nn.functional.cross_entropy(model(images), labels)


def maps(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Binary cross entropy of one probability a pixel and class."""
    return nn.functional.binary_cross_entropy(model(images), targets)


def tags(model: nn.Module, tokens: Tensor) -> Tensor:
    """Cross entropy of a tag a token; an encoder's hidden states `(N, length, width)` are the scores of the tags."""
    scores = model(tokens).last_hidden_state
    return nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten() % scores.shape[-1])
