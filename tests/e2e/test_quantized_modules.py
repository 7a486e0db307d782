"""Quantized modules: dynamic ones and fake quantization are part of a graph, static ones run between graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.ao import quantization

import dovetail
from tests.autograd.comparing import alike, detached

pytestmark = pytest.mark.filterwarnings("ignore")


def layers() -> nn.Sequential:
    return nn.Sequential(
        quantization.QuantStub(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 2), quantization.DeQuantStub(),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), nn.LSTM(4, 5)], ids=["linear", "lstm"]
)
def test_dynamic(model: nn.Module, dtype: torch.dtype) -> None:
    model = quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM}, dtype=dtype)
    compiled = dovetail.compile(model, fullgraph=True)
    for rows in (3, 5, 2):
        x = torch.randn(rows, 2, 4)
        alike(detached(compiled(x)), detached(model(x)))


@pytest.mark.parametrize("fused", [True, False])
def test_training_with_fake_quantization(fused: bool) -> None:
    """Observers of channels find out in their first call how many there are; then it is one graph."""
    model = layers().train()
    if fused:
        model = quantization.fuse_modules_qat(model, [["1", "2", "3"]])
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")  # type: ignore[assignment]
    model = quantization.prepare_qat(model)
    other = copy.deepcopy(model)
    compiled = dovetail.compile(other)
    steps = [compiled, compiled, dovetail.compile(other, fullgraph=True)]
    for call in steps:
        x = torch.randn(2, 3, 8, 8)
        assert _step(call, other, x) == _step(model, model, x)


def _step(call: Callable[..., torch.Tensor], model: nn.Module, x: torch.Tensor) -> list:
    """The loss, gradients and statistics of a step, rounded."""
    model.zero_grad()
    loss = call(x).square().sum()
    loss.backward()
    found = [loss, *(p.grad for p in model.parameters()), *model.buffers()]
    return [[round(n, 3) + 0.0 for n in t.flatten().tolist()] for t in found]  # type: ignore[union-attr]


def test_static() -> None:
    model = quantization.fuse_modules(layers().eval(), [["1", "2", "3"]])
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    model = quantization.prepare(model)
    model(torch.randn(4, 3, 8, 8))
    model = quantization.convert(model)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), model, nn.Softmax(-1))
    compiled = dovetail.compile(model)
    for rows in (2, 3):
        x = torch.randn(rows, 3, 8, 8)
        torch.testing.assert_close(compiled(x), model(x))
