"""A sample of `make fuzz-history`: compiled code does not depend on what was compiled before, nor on the process."""

from __future__ import annotations

import torch

import dovetail
from tests.fuzz.history.__main__ import compiled
from tests.fuzz.history.programs import MODELS
from tests.fuzz.history.steps import walk
from tests.fuzz.history.texts import differences


def test_every_stage_has_one_text():
    """Two processes with hashes, orders of programs and orders of sets of their own; for both targets."""
    one, other = compiled((1, 2), (1, 2, 1, 0))
    assert len(one) == len(other) == 18
    assert all(any(kind == "kernel_code" for kind, _ in texts) for name, texts in one.items() if "block" in name)
    assert differences(one, other) == []


def test_a_random_history():
    assert walk(0, 20) == []


def test_training_after_inference():
    """Kernels of one group and of many were made at different times, and took their sizes in different orders."""
    torch.manual_seed(0)
    model, (words,) = MODELS["language"].make(), MODELS["language"].inputs((2, 32), torch.float32)
    with torch.no_grad():
        dovetail.compile(model)(words)

    def gradients(call):
        model.zero_grad(set_to_none=True)
        call(words).pow(2).mean().backward()
        return [p.grad for p in model.parameters()]

    torch.testing.assert_close(gradients(dovetail.compile(model)), gradients(model), rtol=1e-3, atol=1e-5)
