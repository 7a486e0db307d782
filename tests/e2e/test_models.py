"""Whole models, made small, against eager and against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.models.densenet import DenseNet
from benchmarks.models.pointwise import pointwise_softmax, row_chain, toy_example, two_cosines
from benchmarks.models.resnet import ResNet
from benchmarks.models.unet import UNet
from benchmarks.models.vit import VisionTransformer
from benchmarks.registry import CASES, build, spread_norms

from .checking import as_accurate, run, same


def images(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


MODELS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "densenet": lambda: (DenseNet((2, 3), growth=8, stem=16, classes=10), (images(),)),
    "resnet": lambda: (ResNet((1, 1), classes=10), (images(),)),
    "unet": lambda: (UNet(width=8, levels=2), (images(),)),
    "vit": lambda: (VisionTransformer(size=32, patch=8, width=48, depth=2, heads=3, classes=10), (images(),)),
    "two cosines": lambda: (two_cosines, (torch.randn(33, 65),)),
    "toy": lambda: (toy_example, (torch.randn(10), torch.randn(10))),
    "pointwise and softmax": lambda: (pointwise_softmax, (torch.randn(17, 129), torch.randn(17, 129))),
    "row chain": lambda: (row_chain, (torch.randn(9, 100), torch.randn(100), torch.randn(100))),
}


def made(name: str, dtype: torch.dtype) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    fn, inputs = MODELS[name]()
    if isinstance(fn, nn.Module):
        spread_norms(fn)
        fn = fn.eval().to(dtype)
    return fn, tuple(x.to(dtype) for x in inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_as_accurate_as_eager(name: str, dtype: torch.dtype) -> None:
    fn, inputs = made(name, dtype)
    as_accurate(fn, *inputs)


@pytest.mark.parametrize("name", ["densenet", "vit", "row chain"])
def test_float64_agrees_closely(name: str) -> None:
    fn, inputs = made(name, torch.float64)
    same(fn, *inputs, rtol=1e-9, atol=1e-9)


STYLES = {
    "gpt2": lambda language: language.gpt2(layers=2, width=32, heads=2, vocabulary=50),
    "llama": lambda language: language.llama(layers=2, width=32, heads=4, vocabulary=50),
    "bert": lambda language: language.bert(layers=2, width=32, heads=2, vocabulary=50),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("style", STYLES)
def test_transformers(style: str, dtype: torch.dtype) -> None:
    from benchmarks.models import language

    model = STYLES[style](language).eval().to(dtype)
    tokens = torch.randint(0, 50, (2, 12))
    as_accurate(model, tokens)


def test_transformers_give_their_own_result_type() -> None:
    from benchmarks.models import language

    model = STYLES["llama"](language).eval()
    tokens = torch.randint(0, 50, (1, 7))
    got = run(model, tokens)
    assert type(got) is type(model(tokens))
    assert list(got.keys()) == list(model(tokens).keys())
    assert got.logits.shape == (1, 7, 50)


def test_the_registry_builds_the_same_program_twice() -> None:
    first, second = build("vit"), build("vit")
    assert torch.equal(first[1][0], second[1][0])
    assert all(torch.equal(a, b) for a, b in zip(first[0].parameters(), second[0].parameters(), strict=True))
    assert [name for name, case in CASES.items() if case.demo]
