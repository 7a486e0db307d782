"""peft: a model with adapters, trained and merged while compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dovetail

from .compiling import anew, compilations  # noqa: F401

peft = pytest.importorskip("peft")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.value, self.out = (torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        scores = torch.softmax(self.query(x) @ x.transpose(-1, -2), -1)
        return self.out(torch.relu(scores @ self.value(x)))


KINDS = {
    "lora": lambda: peft.LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"], init_lora_weights=False),
    "dora": lambda: peft.LoraConfig(r=2, target_modules=["query"], use_dora=True, init_lora_weights=False),
    "ia3": lambda: peft.IA3Config(target_modules=["query", "out"], feedforward_modules=["out"]),
    "loha": lambda: peft.LoHaConfig(r=2, target_modules=["value"]),
}


def trained(kind: str, compiled: Any) -> tuple[list[float], dict[str, torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    model = peft.get_peft_model(Model(), KINDS[kind]())
    run = compiled(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    x = torch.randn(2, 4, 8)
    losses = []
    for _ in range(3):
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with model.disable_adapter(), torch.no_grad():
        plain = run(x)
    return losses, peft.get_peft_model_state_dict(model), plain


@pytest.mark.parametrize("kind", KINDS)
def test_adapters(kind: str) -> None:
    expected = trained(kind, lambda model: model)
    with dovetail.install():
        found = trained(kind, torch.compile)
    compilations(breaks=None if kind == "loha" else 0)  # it draws a number and branches on it
    torch.testing.assert_close(found, expected)


def test_in_place_and_merged() -> None:
    torch.manual_seed(0)
    model = peft.get_peft_model(Model(), KINDS["lora"]()).eval()
    x = torch.randn(2, 4, 8)
    expected = model(x)
    with dovetail.install():
        model.compile(fullgraph=True)
        torch.testing.assert_close(model(x), expected)
        model.merge_adapter()
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    assert len(compilations()) == 2
