"""Methods that a library calls where others call a module are compiled with it."""

from __future__ import annotations

import copy
import pickle

import torch

import dovetail

X = torch.arange(6.0).reshape(2, 3)


class LightningModule(torch.nn.Module):
    def training_step(self, batch, index):
        raise NotImplementedError

    def validation_step(self, batch, index):
        """To be overridden."""


LightningModule.__module__ = "lightning.pytorch.core.module"


class Steps(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(3, 2)

    def training_step(self, batch, index):
        assert torch.compiler.is_compiling() or not self.compiling
        self.batches.append(index)
        return self.net(batch).sum() * index

    def forward(self, x):
        return self.net(x)

    batches: list[int] = []
    compiling = False


def test_a_step_is_compiled() -> None:
    model = Steps()
    made = dovetail.compile(model, fullgraph=True)
    expected = model.training_step(X, 3)
    model.compiling = True
    for again in (made, made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        torch.testing.assert_close(again.training_step(X, 3), expected)
    assert made.training_step is made.training_step
    assert len(made.training_step._dovetail_dispatcher.entries) == 1
    torch.testing.assert_close(made(X), model(X))


def test_what_is_asked_of_methods_is_as_before() -> None:
    model = Steps()
    made = dovetail.compile(model)
    assert type(made).training_step is Steps.training_step
    assert made.training_step.__name__ == "training_step" and made.training_step.__doc__ is None
    assert made.validation_step.__wrapped__.__code__ is LightningModule.validation_step.__code__
    model.training_step = lambda batch, index: "the instance's own"
    assert made.training_step(X, 1) == "the instance's own"
    assert "training_step" not in made.state_dict() and not hasattr(made, "test_step")


def test_other_modules_have_no_such_methods() -> None:
    class Own(torch.nn.Module):
        def training_step(self, x):
            return torch.compiler.is_compiling()

    assert dovetail.compile(Own()).training_step(X) is False
