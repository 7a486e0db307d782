"""`config.repro_level = 4` calls nothing wrong that is right, and finds what is: values, layouts, memory, gradients."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import dovetail
from dovetail.diagnostics.values import as_near, wrong
from dovetail.ir.copies import copies

W = torch.randn(8, 8, requires_grad=True)
X = torch.randn(8, 8)


def written(x):
    return x.mul_(2).sum()


#: Programs that are right, with inputs that are easily copied wrong.
RIGHT: dict[str, tuple[Callable, list]] = {
    "with gaps": (lambda x: x.sin() + x.cumsum(0), [X[::2, ::3]]),
    "expanded": (lambda x: x * 2 + x.sum(), [X[:, :1].expand(8, 8)]),
    "transposed": (lambda x: x.sin() @ x, [X.t()]),
    "one memory": (lambda x, y: (x.add_(1), y * 2)[1], [X.view(-1)[:8], X.view(-1)[2:10]]),
    "a history, written to": (written, [W * 1]),
    "a view with a history": (lambda x: x.mul_(2) + x.sum(), [(W * 1)[1:]]),
    "views of inputs": (lambda x: (x, x[1:], x.t()), [X]),
    "one result twice": (lambda x: (y := x + 1, y, y[1:]), [X]),
    "detached": (lambda x: (x.detach(), (x * 2).detach(), x * 2), [W]),
    "conjugates": (lambda x: (x * 2, x.real), [torch.randn(4, dtype=torch.complex64).conj()]),
    "a gradient that is zero": (nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), [X[:4]]),
    "parameters": (lambda p: torch.no_grad()(lambda: p.add_(1))(), [nn.Parameter(torch.ones(4))]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs(name):
    function, args = RIGHT[name]
    with dovetail.config.patch(repro_level=4, strict=False), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", r".*\[uncompiled-graph\]")  # what shares memory runs in eager
        compiled = dovetail.compile(function)
        for _ in range(2):
            compiled(*args)


def with_memory_of_its_own(x):
    return x.view(-1).clone()


WRONG: dict[str, tuple[Callable, Callable, str]] = {
    "values": (lambda x: x * 2, lambda x: x * 2.1, "tensor 1 is off by 0.05"),
    "NaN": (lambda x: x.abs().sqrt(), lambda x: x.sqrt(), "tensor 1 is another"),
    "strides": (lambda x: x + 1, lambda x: (x + 1).t().contiguous().t(), r"the strides \(1, 8\), not \(8, 1\)"),
    "memory": (lambda x: x.view(-1), with_memory_of_its_own, "result 1 has the memory of result 1, not input 1"),
    "no gradients": (lambda x: x + 1, lambda x: x.detach() + 1, "2 tensors instead of 3"),
    "gradients": (lambda x: x * 2, lambda x: x.detach() * 2 + (x - x.detach()), "tensor 3 is off by 0.5"),
    "a write": (lambda x: x.mul(2), lambda x: x.detach().mul_(2), "tensor 2 is off by 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs(name):
    right, compiled, words = WRONG[name]
    x = torch.randn(8, 8).requires_grad_("gradients" in name)
    assert re.search(words, wrong(right, compiled, [x]))


def test_what_is_zero_but_for_rounding():
    noise = torch.tensor([1e-15]), torch.tensor([1e-7]), torch.tensor([1e-31], dtype=torch.float64)
    assert as_near(*noise, whole=10.0) and not as_near(*noise, whole=1e-3)
    assert not as_near(torch.tensor([1.0]), torch.tensor([1.1]), torch.tensor([1.0], dtype=torch.float64), whole=10.0)


def test_copies():
    base = torch.arange(10.0)
    values = [base[::2], base[1:], 3, W, W * 1, base.expand(2, 10), nn.Parameter(base[:3])]
    made, leaves = copies(values)
    for value, copy in zip(values, made, strict=True):
        if isinstance(value, torch.Tensor):
            assert copy.equal(value) and copy.stride() == value.stride() and copy.requires_grad == value.requires_grad
            assert copy.is_leaf == value.is_leaf and copy.data_ptr() != value.data_ptr()
    made[0].zero_()
    assert made[1][1] == 0 and base[2] == 2 and made[2] == 3
    assert len(leaves) == 3 and leaves[0] is made[3]
    (gradient,) = torch.autograd.grad((made[4].mul_(2)).sum(), [leaves[1]])
    assert gradient.equal(torch.full((8, 8), 2.0))
