"""accelerate, which compiles what it prepares: whole models, or their repeated blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dovetail

from .compiling import anew, compilations  # noqa: F401

accelerate = pytest.importorskip("accelerate")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.linear(self.norm(x)))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def trained(**more: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, **more)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randint(0, 2, (16,)))
    model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=4))
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses, accelerator.get_state_dict(accelerator.unwrap_model(model, keep_torch_compile=False))


def plugin(**more: Any) -> Any:
    return accelerate.utils.TorchDynamoPlugin(backend="inductor", **more)


PLUGINS = {
    "the whole model": {}, "a mode": {"mode": "max-autotune"}, "sizes that vary": {"dynamic": True},
    "one graph": {"fullgraph": True}, "options": {"options": {"max_autotune": True}, "mode": None},
}  # fmt: skip


@pytest.mark.parametrize("name", PLUGINS)
def test_what_is_prepared_is_compiled(name: str) -> None:
    expected = trained()
    with dovetail.install():
        found = trained(dynamo_plugin=plugin(**PLUGINS[name]))
    assert len(compilations()) == 1
    torch.testing.assert_close(found, expected)


def test_repeated_blocks() -> None:
    expected = trained()
    with dovetail.install():
        found = trained(dynamo_plugin=plugin(use_regional_compilation=True))
    assert len(compilations()) >= 2
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("precision", ["bf16"])
def test_mixed_precision(precision: str) -> None:
    expected, _ = trained(mixed_precision=precision)
    with dovetail.install():
        found, _ = trained(mixed_precision=precision, dynamo_backend="inductor")
    assert len(compilations()) == 1
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
