"""Layers that are compiled one by one take turns in memory: their gradients are right, and no more is held."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import dovetail
from tests.gpu.layers import Layer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
]
WIDTH, LAYERS = 512, 8


def layers(compiler=lambda layer: layer) -> nn.Sequential:
    torch.manual_seed(0)
    plain = nn.Sequential(*(Layer(WIDTH) for _ in range(LAYERS))).cuda()
    return nn.Sequential(*map(compiler, plain))


def batch(number: int) -> torch.Tensor:
    return torch.randn(8192, WIDTH, generator=torch.Generator().manual_seed(number)).cuda()


WAYS = "cleared", "accumulated", "held", "two at once", "backward twice", "an error in between", "another model"


@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_layers(way: str) -> None:
    """Whatever becomes of gradients: some are in use where a later replay would write."""
    plain, compiled = layers(), layers(dovetail.compile)
    others = (layers(dovetail.compile), layers()) if way == "another model" else ()
    held = []
    for number in range(8):
        for model in (compiled, plain):
            if way == "an error in between" and number % 2:
                stopped(model, number)
            losses = [model(batch(number + k)).square().mean() for k in range(1 + (way == "two at once"))]
            if way == "backward twice" and number % 2:
                losses[0].backward(retain_graph=True)
            sum(losses).backward()
        same_gradients(compiled, plain)
        if way == "held" and number % 2:
            held += [(p.grad, p.grad.clone()) for p in [*compiled.parameters()][number::5]]
        for model in () if way == "accumulated" and number % 3 else (compiled, plain):
            model.zero_grad()
        if others and number > 2:
            for model in others:
                model(batch(number)).square().mean().backward()
            same_gradients(*others)
            for model in others if number % 2 else ():
                model.zero_grad()
    for tensor, before in held:
        torch.testing.assert_close(tensor, before, rtol=0, atol=0)


def stopped(model: nn.Sequential, number: int) -> None:
    """A forward pass that ends in the middle, and a backward pass that does."""
    def stop(gradient):
        raise ValueError

    model[: LAYERS // 2](batch(number))
    x = model[: LAYERS // 2](batch(number))
    x.register_hook(stop)
    with pytest.raises(ValueError):
        model[LAYERS // 2 :](x).sum().backward()
    model.zero_grad()


def test_two_threads_on_streams_of_their_own() -> None:
    """Each trains a model, and reads gradients on its stream right before it lets them go."""
    expected, *models = layers(), layers(dovetail.compile), layers(dovetail.compile)
    for number in range(12):
        expected(batch(number)).square().mean().backward()
    sums = [[torch.zeros_like(p) for p in model.parameters()] for model in models]
    torch.cuda.synchronize()

    def train(model, total) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for number in range(12):
                model(batch(number)).square().mean().backward()
                for each, parameter in zip(total, model.parameters(), strict=True):
                    each += parameter.grad
                model.zero_grad()
            torch.cuda.current_stream().synchronize()  # of the device: an error while the other thread records

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, models, sums))
    for total in sums:
        torch.testing.assert_close(total, [p.grad for p in expected.parameters()], rtol=1e-3, atol=1e-5)


def same_gradients(model, other) -> None:
    found, expected = ([p.grad for p in m.parameters()] for m in (model, other))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def freed() -> int:
    """Bytes that PyTorch holds when all is given back that can be."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def most_held(compiler) -> int:
    """Bytes in later steps, at most."""
    model = layers(compiler)
    for number in range(5):
        if number == 3:
            freed()
            torch.cuda.reset_peak_memory_stats()
        model(batch(number)).square().mean().backward()
        model.zero_grad()
    return torch.cuda.max_memory_reserved()


def test_layers_hold_little_more_than_without_recordings() -> None:
    """Temporaries are those of one layer at a time."""
    before = freed()
    plain = most_held(lambda layer: dovetail.compile(layer, options={"cudagraphs": False})) - before
    dovetail.reset()
    before = freed()
    recorded = most_held(dovetail.compile) - before
    dovetail.reset()
    assert recorded < 1.25 * plain, (recorded >> 20, plain >> 20)


def test_a_model_that_is_gone_leaves_no_memory() -> None:
    def run() -> int:
        model = layers(dovetail.compile)
        for number in range(3):
            model(batch(number)).square().mean().backward()
        del model
        dovetail.reset()
        return freed()

    first = run()
    assert run() <= first + (2 << 20)
