"""Whole models and training steps for a CUDA device, with random weights and inputs.

A case gives what a compiler is given, or None where that is the step of an optimizer as well, and a function that makes
the measured program of what the compiler returns.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from ..models import densenet, diffusion, dlrm, pointwise, resnet, unet

Program = Callable[[], Any]
Case = tuple[Any, Callable[[Any], Program]]
BF16 = torch.bfloat16


def _first(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def inference(model: nn.Module, *inputs: Any, **named: Any) -> Case:
    model = model.cuda().eval()

    def program(compiled: Any) -> Program:
        def call() -> Any:
            with torch.no_grad():
                return _first(compiled(*inputs, **named))

        return call

    return model, program


def training(
    model: nn.Module, *inputs: Any, loss: Callable[[Any, Tensor], Tensor], labels: Tensor, capturable: bool = True
) -> Case:
    """A whole step; `capturable`: Adam's counts of steps are on the device too."""
    model = model.cuda().train()

    def program(compiler: Any) -> Program:
        own = copy.deepcopy(model)
        optimizer = torch.optim.Adam(own.parameters(), lr=1e-3, capturable=capturable)

        def step(inputs: tuple[Any, ...], labels: Tensor) -> Tensor:
            optimizer.zero_grad()
            found = loss(own(*inputs), labels)
            found.backward()
            optimizer.step()
            return found.detach()

        compiled = compiler(step)
        return lambda: compiled(inputs, labels)

    return None, program


def _classes(found: Any, labels: Tensor) -> Tensor:
    return F.cross_entropy(_first(found).flatten(0, -2), labels)


def _squares(found: Any, labels: Tensor) -> Tensor:
    return F.mse_loss(_first(found).float(), labels.float())


# ---------------------------------------------------------------- inputs


def images(batch: int, size: int, channels: int = 3) -> Tensor:
    return torch.randn(batch, channels, size, size, device="cuda")


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, 30000, (batch, length), device="cuda")


def labels(count: int) -> Tensor:
    return torch.randint(0, 1000, (count,), device="cuda")


# ---------------------------------------------------------------- models


def _named(name: str) -> nn.Module:
    """One of timm's."""
    return importlib.import_module("timm").create_model(name)


def _vit() -> nn.Module:
    return transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))


def _convnext() -> nn.Module:
    return transformers.ConvNextForImageClassification(transformers.ConvNextConfig(num_labels=1000))


def _gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


def _llama(**sizes: int) -> nn.Module:
    usual = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(use_cache=False, **usual | sizes)).to(BF16)


def _qwen3() -> nn.Module:
    config = transformers.Qwen3Config(
        hidden_size=2048, intermediate_size=6144, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, vocab_size=32000, use_cache=False,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).to(BF16)


def _mixtral() -> nn.Module:
    config = transformers.MixtralConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4,
        num_local_experts=8, vocab_size=32000, use_cache=False,
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config).to(BF16)


def _t5() -> nn.Module:
    return transformers.T5ForConditionalGeneration(transformers.T5Config(use_cache=False))


def _sounds() -> nn.Module:
    return transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(apply_spec_augment=False, layerdrop=0.0))


def _of_text(model: nn.Module, batch: int, length: int) -> Case:
    return training(model, tokens(batch, length), loss=_classes, labels=tokens(batch, length).flatten())


def _of_images(model: nn.Module, batch: int, size: int, dtype: torch.dtype = torch.float32, **options: Any) -> Case:
    given = images(batch, size).to(dtype)
    return training(model.to(dtype), given, loss=_classes, labels=labels(batch), **options)


class _Translator(nn.Module):
    """From one text to another."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, text: Tensor, other: Tensor) -> Tensor:
        return _first(self.model(input_ids=text, decoder_input_ids=other).logits)


def _one_word() -> Case:
    """The next word after 512, with a cache of fixed size."""
    model = _llama(hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=16)
    cache = transformers.StaticCache(config=model.config, max_cache_len=1024)
    place = torch.tensor([512], device="cuda")
    named = {"past_key_values": cache, "cache_position": place, "position_ids": place[None], "use_cache": True}
    return inference(model, tokens(1, 1), **named)


def _rows() -> Case:
    x, weight, bias = torch.randn(16384, 4096, device="cuda"), *torch.randn(2, 4096, device="cuda")
    return pointwise.row_chain, lambda compiled: lambda: compiled(x, weight, bias)


def _recommender() -> tuple[nn.Module, Tensor, Tensor]:
    return dlrm.DLRM(), torch.randn(2048, 13, device="cuda"), torch.randint(0, 100_000, (2048, 26), device="cuda")


def _noise() -> tuple[nn.Module, Tensor, Tensor]:
    model = diffusion.DiffusionUNet().to(BF16)
    return model, images(4, 64, 4).to(BF16), torch.randint(0, 1000, (4,), device="cuda")


CASES: dict[str, Callable[[], Case]] = {
    "gelu/sin + norm + softmax, 16384x4096": _rows,
    "DenseNet-121, 16x3x128x128": lambda: inference(densenet.densenet121(), images(16, 128)),
    "ResNet-50, 32x3x224x224": lambda: inference(resnet.resnet50(), images(32, 224)),
    "U-Net, 8x3x256x256": lambda: inference(unet.UNet(), images(8, 256)),
    "GPT-2, 4x512": lambda: inference(_gpt2(), tokens(4, 512)),
    "Llama, 12 layers, 1024 wide, bf16, 2x1024": lambda: inference(_llama(), tokens(2, 1024)),
    "ViT-B, 16x3x224x224": lambda: inference(_vit(), images(16, 224)),
    "ConvNeXt-T, 16x3x224x224": lambda: inference(_convnext(), images(16, 224)),
    "EfficientNet-B0, 32x3x224x224": lambda: inference(_named("efficientnet_b0"), images(32, 224)),
    "RegNetY-016, 16x3x224x224": lambda: inference(_named("regnety_016"), images(16, 224)),
    "Swin-T, 16x3x224x224": lambda: inference(_named("swin_tiny_patch4_window7_224"), images(16, 224)),
    "ViT-B, bf16, 32x3x224x224": lambda: inference(
        _named("vit_base_patch16_224").to(BF16), images(32, 224).to(BF16)),
    "wav2vec2, 4x48000": lambda: inference(_sounds(), torch.randn(4, 48000, device="cuda")),
    "T5-small, 8x256": lambda: inference(_Translator(_t5()), tokens(8, 256), tokens(8, 256)),
    "Qwen3, 8 layers, 2048 wide, bf16, 4x2048": lambda: inference(_qwen3(), tokens(4, 2048)),
    "DLRM, 26 tables, 2048": lambda: inference(*_recommender()),
    "Mixtral, 6 layers, 512 wide, 8 experts, bf16, 2x512": lambda: inference(_mixtral(), tokens(2, 512)),
    "diffusion U-Net, bf16, 4x4x64x64": lambda: inference(*_noise()),
    "Llama, 16 layers, 2048 wide, bf16, one word": _one_word,
    "DenseNet-121 training, 16x3x128x128": lambda: _of_images(densenet.densenet121(), 16, 128),
    "the same, steps counted on the CPU": lambda: _of_images(densenet.densenet121(), 16, 128, capturable=False),
    "GPT-2 training, 4x512": lambda: _of_text(_gpt2(), 4, 512),
    "Llama training, bf16, 2x1024": lambda: _of_text(_llama(), 2, 1024),
    "ResNet-50 training, 32x3x224x224": lambda: _of_images(resnet.resnet50(), 32, 224),
    "EfficientNet-B0 training, 32x3x224x224": lambda: _of_images(_named("efficientnet_b0"), 32, 224),
    "RegNetY-016 training, 16x3x224x224": lambda: _of_images(_named("regnety_016"), 16, 224),
    "Swin-T training, 16x3x224x224": lambda: _of_images(_named("swin_tiny_patch4_window7_224"), 16, 224),
    "ViT-B training, bf16, 32x3x224x224": lambda: _of_images(_named("vit_base_patch16_224"), 32, 224, BF16),
    "wav2vec2 training, 4x48000": lambda: training(
        _sounds(), torch.randn(4, 48000, device="cuda"), loss=_squares, labels=torch.zeros((), device="cuda")),
    "T5-small training, 8x256": lambda: training(
        _Translator(_t5()), tokens(8, 256), tokens(8, 256), loss=_classes, labels=tokens(8, 256).flatten()),
    "Qwen3 training, bf16, 4x2048": lambda: _of_text(_qwen3(), 4, 2048),
    "DLRM training, 2048": lambda: training(
        *_recommender(), loss=_squares, labels=torch.rand(2048, 1, device="cuda")),
    "Mixtral training, bf16, 2x512": lambda: _of_text(_mixtral(), 2, 512),
    "diffusion U-Net training, bf16, 4x4x64x64": lambda: training(
        *_noise(), loss=_squares, labels=images(4, 64, 4)),
}  # fmt: skip
