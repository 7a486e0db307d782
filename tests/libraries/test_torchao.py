"""torchao: models whose weights were quantized, as one graph of what the weights are made of."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import dovetail

from .compiling import anew, compilations  # noqa: F401

pytest.importorskip("torchao")
quantization = pytest.importorskip("torchao.quantization")

KINDS = {
    "int8": lambda: quantization.Int8WeightOnlyConfig(),
    "int8, activations too": lambda: quantization.Int8DynamicActivationInt8WeightConfig(),
    "float8": lambda: quantization.Float8WeightOnlyConfig(),
    "int4": lambda: quantization.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=quantization.granularity.PerGroup(32)
    ),
    "int4, activations of int8": lambda: quantization.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=quantization.granularity.PerGroup(32)
    ),
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def operators(function: Any, *args: Any) -> list[str]:
    with torch.profiler.profile() as profile:
        function(*args)
    return [event.name for event in profile.events()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_quantized_weights(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(dtype).eval()
    quantization.quantize_(model, KINDS[kind]())
    inputs = [torch.randn(rows, 64, dtype=dtype) for rows in (8, 3, 5)]
    # An activation halfway between two of eight bits becomes either, by the last bit of what it is computed from.
    tolerance = 5e-2 if "activations" in kind or dtype is torch.bfloat16 else 1e-4
    with torch.no_grad(), dovetail.install():
        compiled = torch.compile(copy.deepcopy(model), fullgraph=True)
        for x in inputs:
            torch.testing.assert_close(compiled(x), model(x), rtol=tolerance, atol=tolerance)
        ran = operators(compiled, inputs[-1])
    assert len(compilations()) == 2  # the second for sizes that vary
    assert "PythonSubclass" not in ran
    assert not [name for name in ran if name.startswith("torchao::") or name == "aten::mul"]  # in kernels


def test_inputs_of_quantized_weights_have_gradients() -> None:
    """As when adapters are trained beside weights that stay what they are."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    found = []
    x = torch.randn(4, 64)
    with dovetail.install():
        for each in (model, torch.compile(copy.deepcopy(model), fullgraph=True)):
            given = x.clone().requires_grad_()
            each(given).square().sum().backward()
            found.append(given.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    compilations()


def test_quantization_of_exported_programs() -> None:
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    quantizers = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    x = torch.randn(2, 64)
    for training in (False, True):
        quantizer = quantizers.X86InductorQuantizer()
        quantizer.set_global(quantizers.get_default_x86_inductor_quantization_config(is_qat=training))
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).train(training)
        exported = torch.export.export(model, (x,)).module()
        prepared = (pt2e.prepare_qat_pt2e if training else pt2e.prepare_pt2e)(exported, quantizer)
        prepared(x)  # observers find out how many channels there are
        model = prepared if training else pt2e.convert_pt2e(prepared)
        compiled = dovetail.compile(copy.deepcopy(model), fullgraph=True)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-2, atol=1e-2)
    compilations()
