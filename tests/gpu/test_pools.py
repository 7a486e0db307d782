"""Layers that are compiled one by one take turns in memory: their gradients are right, and no more is held."""

from __future__ import annotations

import gc
import itertools
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


WAYS = (
    "cleared", "accumulated", "held", "two at once", "backward twice", "an error in between", "another model",
    "cleared late", "set to zeros", "saved values held",
)  # fmt: skip


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_layers(way: str, whole: bool) -> None:
    """Whatever becomes of gradients: some are in use where a later replay would write."""
    if whole and way == "an error in between":
        pytest.skip("stops between layers")
    make = (lambda: dovetail.compile(layers())) if whole else (lambda: layers(dovetail.compile))
    plain, compiled = layers(), make()
    others = (make(), layers()) if way == "another model" else ()
    held = []
    for number in range(8):
        for model in (compiled, plain):
            if way == "an error in between" and number % 2:
                stopped(model, number)
            losses = [model(batch(number + k)).square().mean() for k in range(1 + (way == "two at once"))]
            if way == "cleared late":
                model.zero_grad()
            if way == "backward twice" and number % 2:
                losses[0].backward(retain_graph=True)
            if way == "saved values held" and model is compiled and number % 3 != 1:
                held += [(t, t.clone()) for t in saved_of(losses[0].grad_fn) if number % 2 or t.ndim > 1]
            sum(losses).backward()
        same_gradients(compiled, plain)
        if way == "held" and number % 2:
            held += [(p.grad, p.grad.clone()) for p in [*compiled.parameters()][number::5]]
        for model in () if way == "accumulated" and number % 3 or way == "cleared late" else (compiled, plain):
            model.zero_grad(set_to_none=way != "set to zeros")
        if others and number > 2:
            for model in others:
                model(batch(number)).square().mean().backward()
            same_gradients(*others)
            for model in others if number % 2 else ():
                model.zero_grad()
    for tensor, before in held:
        torch.testing.assert_close(tensor, before, rtol=0, atol=0)


def saved_of(node) -> list[torch.Tensor]:
    """What is saved for the backward passes of programs of ours."""
    found, nodes = [], [node]
    while nodes:
        node = nodes.pop()
        if hasattr(node, "saved_tensors"):
            found += node.saved_tensors
        nodes += [following for following, _ in node.next_functions if following is not None]
    return found


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


def most_held(model: nn.Module) -> int:
    """Bytes in later steps, at most. What was given back moves gradients: all is recorded anew once more."""
    for number in range(8):
        if number == 3:
            freed()
        if number == 6:
            torch.cuda.reset_peak_memory_stats()
        model(batch(number)).square().mean().backward()
        model.zero_grad()
    return torch.cuda.max_memory_reserved()


def compared(one, other) -> tuple[int, int]:
    """MiB that models hold at most, each made when the one before is gone."""
    found = []
    for make in (one, other):
        before = freed()
        found.append((most_held(make()) - before) >> 20)
        dovetail.reset()
    return found[0], found[1]


def test_layers_hold_little_more_than_without_recordings() -> None:
    """Temporaries are those of one layer at a time."""
    recorded, plain = compared(
        lambda: layers(dovetail.compile),
        lambda: layers(lambda layer: dovetail.compile(layer, options={"cudagraphs": False})),
    )
    assert recorded < 1.1 * plain, (recorded, plain)


@pytest.mark.parametrize("late", [False, True])
def test_a_model_holds_little_more_than_without_recordings(late: bool) -> None:
    """Gradients lie where activations lay, though passes are recorded one by one."""
    recorded, plain = compared(
        lambda: dovetail.compile(wide(late)),
        lambda: dovetail.compile(wide(late), options={"cudagraphs": False}),
    )
    assert recorded < 1.1 * plain, (recorded, plain)


def wide(late: bool) -> nn.Module:
    """Gradients as large as what is saved; `late`: those of the first layers, of which less is saved."""
    torch.manual_seed(0)
    widths = [512, 4096, 4096, 512] if late else [512, 512, 512, 8192, 512]
    pairs = itertools.pairwise(widths)
    return nn.Sequential(*(part for a, b in pairs for part in (nn.Linear(a, b), nn.GELU()))).cuda()


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
