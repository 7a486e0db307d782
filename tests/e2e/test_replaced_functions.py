"""Functions and methods of PyTorch that the program replaces: before it compiles, between calls, and back again."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dovetail
from tests.e2e.test_process import python


def _doubled(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x * 2


def _shifted(self: Any, x: Any) -> Any:
    return x - 1


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: original(*args, **kwargs) + 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.LayerNorm(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * F.softmax(x, -1)


#: The program, the object whose attribute is replaced, the attribute, and by what.
CASES: dict[str, tuple[Callable[[], Any], Any, str, Any]] = {
    "a function in Python": (lambda: lambda x: F.relu(x) + x.sin(), F, "relu", _doubled),
    "a native function": (lambda: lambda x: torch.sin(x) + 1, torch, "sin", torch.cos),
    "attention": (
        lambda: lambda x: F.scaled_dot_product_attention(x, x, x), F, "scaled_dot_product_attention", _doubled,
    ),
    "what a function in Python calls": (lambda: lambda x: F.relu(x) + 1, torch, "relu", _doubled),
    "what that one calls": (lambda: lambda x: F.softmax(x, -1), torch.Tensor, "softmax", _doubled),
    "a branch of a dispatched function": (lambda: lambda x: F.max_pool1d(x, 2), torch, "max_pool1d", _doubled),
    "a wrapped one": (lambda: lambda x: F.gelu(x) * 3, F, "gelu", _wrapped(F.gelu)),
    "a method of tensors": (lambda: lambda x: x.sin() + 1, torch.Tensor, "sin", _doubled),
    "an inherited method": (lambda: lambda x: x.norm() + x, torch.Tensor, "norm", _doubled),
    "an operator": (lambda: lambda x: x + 3, torch.Tensor, "__add__", lambda self, other: self - other),
    "a reflected operator": (lambda: lambda x: 3 * x, torch.Tensor, "__rmul__", lambda self, other: self - other),
    "a subscript": (lambda: lambda x: x[0], torch.Tensor, "__getitem__", lambda self, index: self * 2),
    "a unary operator": (lambda: lambda x: -x, torch.Tensor, "__neg__", lambda self: self * 2),
    "a comparison": (lambda: lambda x: x < 0, torch.Tensor, "__lt__", lambda self, other: self * 2),
    "forward of a layer": (Net, nn.ReLU, "forward", _shifted),
    "forward of a layer alone": (lambda: nn.Sequential(nn.ReLU()), nn.ReLU, "forward", _shifted),
    "what a layer calls": (Net, F, "relu", _doubled),
    "a function of a layer's module": (Net, F, "layer_norm", _doubled),
    "calls of modules": (Net, nn.Module, "__call__", lambda self, x: self.forward(x) + 1),
    "a layer's own call": (Net, nn.LayerNorm, "__call__", _shifted),
    "a class of layers": (lambda: lambda x: nn.ReLU()(x), nn, "ReLU", nn.Tanh),
    "the standard library": (lambda: lambda x: x * math.sqrt(4), math, "sqrt", lambda number: number + 1),
    "a builtin function": (lambda: lambda x: x * divmod(7, 2)[0], builtins, "divmod", lambda a, b: (a, b)),
}  # fmt: skip
if dovetail.config.check_kernels:  # which look at tensors by their own subscripts
    del CASES["a subscript"]


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("calls", (1, 40), ids=("soon", "after many calls"))
@pytest.mark.parametrize("case", CASES)
def test_between_calls(case: str, calls: int) -> None:
    made, place, name, other = CASES[case]
    program, x = made(), torch.randn(1, 4, 4)
    compiled = dovetail.compile(program, fullgraph=True)
    before = program(x)
    for _ in range(calls):
        torch.testing.assert_close(compiled(x), before)
    with mock.patch.object(place, name, other):
        after = program(x)
        torch.testing.assert_close(compiled(x), after)
    assert after.shape != before.shape or not torch.allclose(after.to(before.dtype), before)
    torch.testing.assert_close(compiled(x), before)


@pytest.mark.parametrize("case", CASES)
def test_before_compiling(case: str) -> None:
    made, place, name, other = CASES[case]
    program, x = made(), torch.randn(1, 4, 4)
    with mock.patch.object(place, name, other):
        torch.testing.assert_close(dovetail.compile(program, fullgraph=True)(x), program(x))


def test_what_it_shows_is_shown_in_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    """A replacement is traced, and none of it runs while compiling."""
    original, x = torch.relu, torch.randn(4)

    def spy(x: torch.Tensor) -> torch.Tensor:
        print("relu")
        return original(x)

    compiled = dovetail.compile(lambda x: F.relu(x) + 1, fullgraph=True)
    compiled(x)
    with mock.patch.object(torch, "relu", spy):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), original(x) + 1)
    assert capsys.readouterr().out == "relu\n" * 3


def test_changes_elsewhere_cost_no_compilation() -> None:
    compiled, x = dovetail.compile(Net(), fullgraph=True), torch.randn(4, 4)
    compiled(x)
    entries = compiled._dovetail_dispatcher.entries
    for calls in (1, 40):
        with mock.patch.object(F, "celu", _doubled), mock.patch.object(nn.Module, "another", 1, create=True):
            for _ in range(calls):
                compiled(x)
        compiled(x)
    assert compiled._dovetail_dispatcher.entries == entries


PATCHED_FIRST = """
import torch, torch.nn as nn, torch.nn.functional as F
relu, call, finfo = F.relu, nn.Module.__call__, torch.finfo
F.relu = lambda x, inplace=False: relu(x) + 1
nn.Module.__call__ = lambda self, *args: call(self, *args) * 2
torch.finfo = lambda dtype: relu
import dovetail
x, m = torch.randn(5), nn.Tanh()
assert torch.allclose(dovetail.compile(lambda x: F.relu(x), fullgraph=True)(x), relu(x) + 1)
assert torch.allclose(dovetail.compile(lambda x: m(x), fullgraph=True)(x), x.tanh() * 2)
assert torch.allclose(dovetail.compile(m)(x), m(x))
assert torch.allclose(dovetail.compile(lambda x: torch.finfo(x.dtype)(x), fullgraph=True)(x), relu(x))
"""


def test_before_dovetail_is_imported() -> None:
    done = python("-c", PATCHED_FIRST)
    assert done.returncode == 0, done.stderr[-2000:]
