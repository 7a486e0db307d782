"""Everything that can change below a module is noticed, and nothing else is taken for a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import dovetail
from dovetail.guards.native import MemoryWatch

pytestmark = pytest.mark.usefixtures("both_ways")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.scale = 2.0
        self.sizes = [1, 2, 3]
        self.table = {"a": 1.0}

    def forward(self, x):
        return self.drop(self.norm(self.fc(x))) * self.scale + sum(self.sizes) + self.table["a"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.register_buffer("shift", torch.zeros(4))
        self.extra: nn.Module | None = None

    def forward(self, x):
        for block in self.blocks:
            x = block(x) + self.shift
        return x if self.extra is None else self.extra(x)


X = torch.randn(5, 4)


def first(net: Net) -> Block:
    return net.blocks[0]  # type: ignore[return-value]


def swap_data(net: Net) -> None:
    first(net).fc.weight.data = torch.randn(4, 4)


def swap_data_transposed(net: Net) -> None:
    weight = first(net).fc.weight
    weight.data = weight.data.t()


def forward_on_the_instance(net: Net) -> None:
    net.blocks[2].forward = lambda x: x * 7


class Loud(Block):
    def forward(self, x):
        return super().forward(x) + 100


def change_class(net: Net) -> None:
    net.blocks[1].__class__ = Loud


def parametrize(net: Net) -> None:
    parametrizations.weight_norm(first(net).fc)
    first(net).fc.parametrizations.weight.original0.mul_(2)


def another_dict(net: Net) -> None:
    first(net).__dict__ = {**first(net).__dict__, "scale": 5.0}


def another_dict_of_a_container(net: Net) -> None:
    net.blocks.__dict__ = nn.ModuleList(Block().eval() for _ in range(2)).__dict__


CHANGES: dict[str, Callable[[Net], Any]] = {
    "a parameter's data": swap_data,
    "a parameter's data, same storage": swap_data_transposed,
    "a parameter in place": lambda net: first(net).fc.weight.mul_(3),
    "a parameter by set_": lambda net: first(net).fc.bias.set_(torch.randn(4)),
    "a parameter": lambda net: setattr(first(net).fc, "weight", nn.Parameter(torch.randn(4, 4))),
    "a parameter removed": lambda net: setattr(first(net).fc, "bias", None),
    "a buffer": lambda net: setattr(net, "shift", torch.randn(4)),
    "a buffer's shape": lambda net: setattr(net, "shift", torch.randn(1)),
    "load_state_dict": lambda net: net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()}),
    "load_state_dict, assigned": lambda net: net.load_state_dict(
        {k: v * 2 for k, v in net.state_dict().items()}, assign=True
    ),
    "a child": lambda net: setattr(first(net), "fc", nn.Linear(4, 4)),
    "a child of another kind": lambda net: setattr(first(net), "norm", nn.LayerNorm(4)),
    "a child appended": lambda net: net.blocks.append(Block().eval()),
    "a child removed": lambda net: net.blocks.pop(1),
    "a child replaced in a list": lambda net: net.blocks.__setitem__(1, nn.Identity()),
    "a child from None": lambda net: setattr(net, "extra", nn.Tanh()),
    "an attribute": lambda net: setattr(first(net), "scale", 3.0),
    "an attribute's sign of zero": lambda net: setattr(first(net), "scale", -0.0),
    "a list in place": lambda net: first(net).sizes.append(4),
    "a list's item": lambda net: first(net).sizes.__setitem__(1, 20),
    "a dictionary's item": lambda net: first(net).table.update(a=9.0),
    "the whole __dict__": another_dict,
    "the whole __dict__ of a list": another_dict_of_a_container,
    "an attribute, past __setattr__": lambda net: object.__setattr__(first(net), "scale", 3.0),
    "an attribute in __dict__": lambda net: first(net).__dict__.update(scale=3.0),
    "a forward hook": lambda net: first(net).fc.register_forward_hook(lambda m, a, out: out * 2),
    "a pre-hook": lambda net: first(net).register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
    "forward on the instance": forward_on_the_instance,
    "the class": change_class,
    "parametrize": parametrize,
    "a batch norm's momentum buffer": lambda net: first(net).norm.running_var.fill_(4.0),
    "a number of a torch module": lambda net: setattr(first(net).norm, "eps", 0.5),
}


@pytest.mark.parametrize("what", CHANGES)
@torch.no_grad()
def test_a_change_shows(what: str) -> None:
    net = Net().eval()
    compiled = dovetail.compile(net, backend="eager")
    before = compiled(X)
    torch.testing.assert_close(before, net(X))
    CHANGES[what](net)
    after = net(X)
    assert before.shape != after.shape or not torch.equal(before, after), "the change should matter"
    for _ in range(2):
        torch.testing.assert_close(compiled(X), after)


@torch.no_grad()
def test_half_and_back() -> None:
    net = Net().eval()
    compiled = dovetail.compile(net, backend="eager")
    compiled(X)
    net.double()
    torch.testing.assert_close(compiled(X.double()), net(X.double()))
    net.bfloat16()
    torch.testing.assert_close(compiled(X.bfloat16()), net(X.bfloat16()))
    net.float()
    torch.testing.assert_close(compiled(X), net(X))


def entries(compiled: Any) -> int:
    return len(compiled._dovetail_dispatcher.entries)


@torch.no_grad()
def test_what_does_not_matter_does_not_recompile() -> None:
    net = Net().eval()
    compiled = dovetail.compile(net, backend="eager")
    compiled(X)
    harmless: list[Callable[[], Any]] = [
        lambda: swap_data(net),
        lambda: net.load_state_dict(net.state_dict()),
        lambda: first(net).fc.weight.add_(1),
        lambda: setattr(net, "unrelated", 5),
        lambda: setattr(first(net), "scale", 1.0 * 2),
        lambda: setattr(first(net), "sizes", [1, 2, 3]),
        lambda: net.eval(),
    ]
    for change in harmless:
        change()
        torch.testing.assert_close(compiled(X), net(X))
        assert entries(compiled) == 1


@torch.no_grad()
def test_the_reason_is_in_the_users_terms() -> None:
    net = Net().eval()
    compiled = dovetail.compile(net, backend="eager")
    compiled(X)
    first(net).scale = 3.0
    ((reason, *_),) = compiled._dovetail_dispatcher.reasons((X,), {})
    assert "scale == 2.0 (actual 3.0)" in reason and "test_below_modules.py" in reason


@torch.no_grad()
def test_harmless_changes_are_taken_in_place() -> None:
    """A module that counts its calls does not send every call down the slow path."""
    net = Net().eval()
    compiled = dovetail.compile(net, backend="eager")
    compiled(X)
    held = compiled._dovetail_dispatcher.entries[0].below
    watch = getattr(held.fast, "__self__", None)
    for k in range(3):
        net.calls = k
        first(net).fc.weight.data = torch.randn(4, 4)
        torch.testing.assert_close(compiled(X), net(X))
        assert not isinstance(watch, MemoryWatch) or held.fast.__self__ is watch


@torch.no_grad()
def test_an_equal_dict_is_taken_in_place() -> None:
    net = Net().eval()
    compiled = dovetail.compile(net, backend="eager")
    compiled(X)
    block = first(net)
    for _ in range(2):
        block.__dict__ = dict(block.__dict__)
        torch.testing.assert_close(compiled(X), net(X))
        assert entries(compiled) == 1
    block.__dict__["scale"] = 3.0
    torch.testing.assert_close(compiled(X), net(X))
    assert entries(compiled) == 2


@torch.no_grad()
def test_objects_with_attributes_of_their_own() -> None:
    """Plain objects below a module: stores to them, and to all of their attributes at once."""

    class Settings:
        def __init__(self) -> None:
            self.gain, self.shape = 2.0, (5, 4)

    net = Net().eval()
    net.settings = Settings()
    def fn(x):
        return x * net.settings.gain + net.shift

    compiled = dovetail.compile(fn, backend="eager")
    for change in (
        lambda: None,
        lambda: setattr(net.settings, "gain", 3.0),
        lambda: setattr(net.settings, "__dict__", {"gain": 4.0}),
        lambda: net.settings.__dict__.update(gain=5.0),
        lambda: setattr(net.settings, "other", 1),
        lambda: delattr(net.settings, "other"),
        lambda: setattr(net.settings, "gain", 6.0),
        lambda: setattr(net, "settings", Settings()),
    ):
        change()
        for _ in range(2):
            torch.testing.assert_close(compiled(X), fn(X))


@torch.no_grad()
def test_requires_grad_and_swapped_tensors() -> None:
    net = Net().eval()
    compiled = dovetail.compile(net, backend="eager")
    for change in (
        lambda: None,
        lambda: first(net).fc.weight.requires_grad_(False),
        lambda: net.requires_grad_(False),
        lambda: torch.utils.swap_tensors(first(net).fc.weight, nn.Parameter(torch.randn(4, 4))),
        lambda: torch.utils.swap_tensors(first(net).fc.bias, nn.Parameter(torch.randn(4))),
    ):
        change()
        for _ in range(2):
            torch.testing.assert_close(compiled(X), net(X))
            assert compiled(X).requires_grad == net(X).requires_grad


@torch.no_grad()
def test_tensors_of_high_rank_and_plain_tensor_attributes() -> None:
    class High(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("high", torch.ones(1, 1, 1, 1, 2, 3))
            self.plain = torch.ones(3)

        def forward(self, x):
            return x * self.high.sum(4) + self.plain

    net = High()
    compiled = dovetail.compile(net, backend="eager")
    x = torch.ones(3)
    for change in (
        lambda: None,
        lambda: setattr(net.high, "data", torch.ones(1, 1, 1, 1, 4, 3)),
        lambda: setattr(net.high, "data", torch.ones(1, 1, 3, 1, 2, 1)),
        lambda: setattr(net, "plain", torch.ones(1) * 5),
        lambda: setattr(net.plain, "data", torch.ones(3) * 7),
    ):
        change()
        torch.testing.assert_close(compiled(x), net(x))
