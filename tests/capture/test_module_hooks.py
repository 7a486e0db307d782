"""Modules with hooks: those that are alike share entries, and what differs in their hooks is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import dovetail
from tests.capture.test_growing import entries

COUNT = 8


def scaled(factor: float) -> Callable:
    return lambda module, args: (args[0] * factor,)


def added(module: nn.Module, args: tuple, out: torch.Tensor) -> torch.Tensor:
    return out + 1


def named(module: nn.Module, args: tuple, kwargs: dict, out: torch.Tensor) -> torch.Tensor:
    return out + kwargs["more"]


class Taking(nn.Linear):
    def forward(self, x, more=2.0):
        return super().forward(x) * more


def layers() -> list[Taking]:
    """Each with a hook in front and two behind."""
    torch.manual_seed(0)
    found = [Taking(3, 3) for _ in range(COUNT)]
    for layer in found:
        layer.register_forward_pre_hook(scaled(2.0))
        layer.register_forward_hook(added)
        layer.register_forward_hook(named, with_kwargs=True)
    return found


def call(layer, x):
    return layer(x, more=2.0)


def same(run: Callable, layer: nn.Module) -> None:
    x = torch.randn(2, 3)
    torch.testing.assert_close(run(layer, x), call(layer, x))


def test_hooks_that_are_alike_share_an_entry() -> None:
    run = dovetail.compile(call, fullgraph=True)
    for layer in layers():
        same(run, layer)
    assert entries(run) == [3]  # one path has to lead to several modules first


def remove_one(layer: nn.Module) -> None:
    layer._forward_hooks.popitem()


def add_one(layer: nn.Module) -> None:
    layer.register_forward_hook(added)


def another_in_its_place(layer: nn.Module) -> None:
    layer._forward_pre_hooks.popitem()
    layer.register_forward_pre_hook(scaled(3.0))


def without_keywords(layer: nn.Module) -> None:
    layer._forward_hooks.clear()
    for _ in range(2):
        layer.register_forward_hook(added)


def in_another_order(layer: nn.Module) -> None:
    layer._forward_hooks.move_to_end(next(iter(layer._forward_hooks)))


def always(layer: nn.Module) -> None:
    layer.register_forward_hook(added, always_call=True)


def backwards(layer: nn.Module) -> None:
    layer.register_full_backward_hook(lambda module, incoming, outgoing: (incoming[0] * 5,))


@pytest.mark.parametrize(
    "change", [remove_one, add_one, another_in_its_place, without_keywords, in_another_order, always, backwards]
)
def test_hooks_that_change(change: Callable) -> None:
    run, found = dovetail.compile(call), layers()
    for layer in found:
        same(run, layer)
    for number in (COUNT - 1, 0, 1):
        change(found[number])
        for layer in found:
            same(run, layer)


def test_hooks_that_the_function_adds_and_takes_away() -> None:
    def once(layer, x):
        handle = layer.register_forward_pre_hook(scaled(7.0))
        result = call(layer, x)
        handle.remove()
        return result + call(layer, x)

    run, found = dovetail.compile(once), layers()
    for layer in found:
        before = [[*table.values()] for table in (layer._forward_pre_hooks, layer._forward_hooks)]
        x = torch.randn(2, 3)
        torch.testing.assert_close(run(layer, x), once(layer, x))
        assert [[*table.values()] for table in (layer._forward_pre_hooks, layer._forward_hooks)] == before


def test_a_table_that_the_function_reads_itself() -> None:
    """The numbers are looked at."""

    def read(layer, x):
        numbers = [*layer._forward_hooks]
        return x * (numbers[1] - numbers[0]) + numbers[0] + len(layer._forward_hooks)

    run = dovetail.compile(read)
    for layer in layers():
        x = torch.randn(2, 3)
        assert torch.equal(run(layer, x), read(layer, x))
