"""Modules that get their parameters from the first input: one graph from the first call on, parameters as in eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import GraphBreakError

Lazy = nn.modules.lazy.LazyModuleMixin


class Scaled(nn.Module):
    def forward(self, x, k=1):
        return x * self.weight * k + self.mean[0]


class LazyScaled(Lazy, Scaled):
    cls_to_become = Scaled
    uses_values = True

    def __init__(self):
        super().__init__()
        self.weight, self.mean = nn.UninitializedParameter(), nn.UninitializedBuffer()

    def initialize_parameters(self, x, k=1):
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.weight.materialize(x.shape[1:], dtype=x.dtype)
                self.weight.normal_()
                self.mean.materialize((2,))
                self.mean.copy_(x.mean().expand(2)) if self.uses_values else self.mean.fill_(x.shape[0])


class OfShape(LazyScaled):
    uses_values = False


class Added(Lazy, nn.Module):
    def initialize_parameters(self, x):
        self.weight = nn.Parameter(torch.ones(x.shape))

    def forward(self, x):
        return x + self.weight


class Failing(LazyScaled):
    def initialize_parameters(self, x):
        super().initialize_parameters(x)
        raise ValueError("no such input")


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.calls = nn.LazyLinear(4), 0

    def forward(self, x):
        self.calls += 1
        return self.line(x) * self.calls


def tied():
    line = nn.LazyLinear(4)
    return nn.Sequential(line, nn.ReLU(), line)


IMAGES = (nn.LazyConv2d, 4, 3), (nn.LazyBatchNorm2d,), (nn.ReLU,), (nn.Flatten,), (nn.LazyLinear, 3)
WHOLE = {
    "line": (lambda: nn.LazyLinear(3), (2, 4)),
    "images": (lambda: nn.Sequential(*(cls(*args) for cls, *args in IMAGES)), (2, 3, 8, 8)),
    "user's": (Added, (2, 4)),
    "of values": (LazyScaled, (2, 4)),
    "inside": (lambda: nn.Sequential(nn.ReLU(), nn.LazyLinear(4), OfShape()), (2, 4)),
    "tied": (tied, (2, 4)),
}
BREAKING = {
    "of computed values": (lambda: nn.Sequential(nn.ReLU(), LazyScaled()), (2, 4)),
    "after random numbers": (lambda: nn.Sequential(nn.Dropout(0.5), nn.LazyLinear(4)), (2, 4)),
    "after changes": (Counting, (2, 4)),
}


def state(model):
    """What shows of the modules, and their tensors."""
    shown = [(type(m), len(m._forward_pre_hooks), sorted(vars(m)), m.training) for m in model.modules()]
    return [shown, [p.requires_grad for p in model.parameters()]], model.state_dict(), torch.get_rng_state()


def outcome(make, shape, compiler, calls=3):
    torch.manual_seed(0)
    model, results = make(), []
    called = compiler(model)
    for k in range(calls):
        result = called(torch.randn(shape) + k)
        result.sum().backward()
        results.append((result.detach(), [p.grad.clone() for p in model.parameters()]))
    shown, *tensors = state(model)
    return shown, results, tensors


def check(make, shape, **options):
    ours = outcome(make, shape, lambda model: dovetail.compile(model, **options))
    theirs = outcome(make, shape, lambda model: model)
    assert ours[0] == theirs[0]
    torch.testing.assert_close(ours[1:], theirs[1:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_from_the_first_call_on(name, backend, dynamic):
    check(*WHOLE[name], fullgraph=True, backend=backend, dynamic=dynamic)


@pytest.mark.parametrize("name", [*WHOLE, *BREAKING])
def test_the_same_parameters_where_graphs_may_break(name):
    check(*{**WHOLE, **BREAKING}[name], backend="eager")


@pytest.mark.parametrize("name", BREAKING)
def test_what_would_show_that_the_hook_runs_early_is_refused(name):
    make, shape = BREAKING[name]
    with pytest.raises(GraphBreakError, match="lazy-module"):
        dovetail.compile(make(), fullgraph=True, backend="eager")(torch.ones(shape))


@pytest.mark.parametrize("compiler", [lambda model: model, lambda model: dovetail.compile(model, backend="eager")])
def test_a_hook_that_raises_leaves_what_it_leaves_in_eager(compiler):
    torch.manual_seed(0)
    model = Failing()
    with pytest.raises(ValueError, match="no such input"):
        compiler(model)(torch.ones(2, 4))
    torch.manual_seed(0)
    assert type(model) is Failing and not model.has_uninitialized_params() and hasattr(model, "_initialize_hook")
    assert torch.equal(model.weight, torch.empty(4).normal_())
