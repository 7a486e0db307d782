"""Parameters that a function makes for itself: compiled where nobody sees them, otherwise made by PyTorch."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import dovetail
from tests.fuzz.python.observe import Walk, difference


def fused(x, m):
    return nn.utils.fusion.fuse_linear_bn_eval(m[0], m[1])(x)


def put_in_place(x, m):
    own = m[0].weight
    m[0].weight = nn.Parameter(own.detach() * 2)
    y = m[0](x)
    m[0].weight = own
    return y + m[0](x)


def frozen(x, m):
    return x * nn.Parameter(x.detach() * 2, requires_grad=False)


def kinds(x, m):
    p = nn.Parameter(x.detach())
    return isinstance(p, nn.Parameter), p.is_leaf, p.requires_grad, type(p * 2) is torch.Tensor, p * x


def returned(x, m):
    p = nn.Parameter(x.detach() * 2)
    return p, p * x


def returned_frozen(x, m):
    p = nn.Parameter(x.detach() * 2, requires_grad=False)
    return p, p * x


def kept(x, m):
    m.scale = nn.Parameter(x.detach() * 2, requires_grad=False)
    return m.scale * x


def accumulated(x, m):
    p = nn.Parameter(x.detach() * 2)
    (p * x).sum().backward()
    return p.grad


def changed(x, m):
    p = nn.Parameter(x.detach() * 2)
    with torch.no_grad():
        p.mul_(3)
    return p * x


UNSEEN = [fused, put_in_place, frozen, kinds]


def outcome(function, requires_grad):
    walk = Walk()
    for _ in range(2):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
        x = torch.randn(2, 4, requires_grad=requires_grad)
        result = function(x, m)
        last = result[-1] if isinstance(result, tuple) else result
        if last.requires_grad:
            last.sum().backward()
        walk.root("result", (result, x, *m.parameters()))
        walk.root("kinds", [type(each).__name__ for each in (*m.parameters(), last)])
    return walk


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("function", [*UNSEEN, returned, returned_frozen, kept, accumulated, changed])
def test_as_in_eager(function, requires_grad):
    assert difference(outcome(dovetail.compile(function), requires_grad), outcome(function, requires_grad)) is None


@pytest.mark.parametrize("function", UNSEEN)
def test_compiled_where_nobody_sees_it(function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome(dovetail.compile(function, fullgraph=True), True)
