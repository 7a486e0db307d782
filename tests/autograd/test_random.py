"""Random numbers: eager's values in eager's order, in both halves of a training step, whoever draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributions as D
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dovetail
from tests.autograd.comparing import BACKENDS

X = torch.linspace(-1, 1, 5)
OWN = torch.Generator()

DRAWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rand": lambda x: x + torch.rand(5),
    "randn": lambda x: x * torch.randn(5),
    "randint": lambda x: x + torch.randint(0, 9, (5,)),
    "like": lambda x: x * torch.randn_like(x) + torch.rand_like(x) + torch.randint_like(x, 9),
    "randperm": lambda x: x[torch.randperm(5)],
    "bernoulli": lambda x: torch.bernoulli(x.detach().sigmoid()) * x,
    "multinomial": lambda x: x[torch.multinomial(x.detach().softmax(0), 3, True)],
    "normal": lambda x: torch.normal(x.detach(), 1.0) * x,
    "poisson": lambda x: torch.poisson(x.abs() * 5) + x,
    "dropout": lambda x: F.dropout(x, 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "channels": lambda x: F.dropout2d(x.view(1, 5, 1, 1).repeat(2, 1, 3, 3), 0.5),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, 5, 1)] * 3, dropout_p=0.4),
    "in place": lambda x: torch.zeros(5).normal_() + torch.zeros(5).uniform_() * x + torch.zeros(5).bernoulli_(0.3),
    "in place, by layout": lambda x: (
        x[:, None] * torch.zeros(40, 5).t().normal_() + torch.ones(5, 80)[:, ::2].uniform_()
    ),
    "transposed": lambda x: torch.zeros(4, 5).t().bernoulli_(0.5) * x[:, None],
    "Normal": lambda x: D.Normal(x, 1.0).rsample(),
    "Beta": lambda x: D.Beta(x.abs() + 1, 2.0).rsample(),
    "Gamma": lambda x: D.Gamma(x.abs() + 1, 2.0).rsample(),
    "Dirichlet": lambda x: D.Dirichlet(x.abs() + 1).rsample(),
    "Categorical": lambda x: x[D.Categorical(logits=x).sample()],
    "StudentT": lambda x: D.StudentT(x.abs() + 3).rsample(),
    "Binomial": lambda x: D.Binomial(4, logits=x).sample() * x,
    "MultivariateNormal": lambda x: D.MultivariateNormal(x, torch.eye(5)).rsample(),
    "several": lambda x: (F.dropout(x, 0.5), torch.rand(3), F.dropout(x * 2, 0.3), torch.randn_like(x)),
    "nobody reads it": lambda x: (torch.rand(3), x.sin(), F.dropout(x))[1],
    "checkpoint": lambda x: checkpoint(lambda y: F.dropout(y.sin(), 0.5).exp(), x, use_reentrant=False),
    "reentrant checkpoint": lambda x: checkpoint(lambda y: F.dropout(y.sin(), 0.5).exp(), x, use_reentrant=True),
}


def seen(fn: Callable[..., Any], grad: bool, *more: Any) -> list[torch.Tensor]:
    """Results, the gradient and the random state after each pass, from the same seeds."""
    torch.manual_seed(3)
    OWN.manual_seed(4)
    found = []
    for _ in range(2):
        x = X.clone().requires_grad_(grad)
        results = fn(x, *more)
        results = results if isinstance(results, tuple) else (results,)
        found += [*(r.detach() for r in results), torch.get_rng_state(), OWN.get_state()]
        differentiable = [r for r in results if r.requires_grad]
        if differentiable:
            sum((r * r).sum() for r in differentiable).backward()
            found += [x.grad, torch.get_rng_state()]
    return found


def same(fn: Callable[..., Any], grad: bool, backend: str, *more: Any) -> None:
    dovetail.reset()
    compiled = dovetail.compile(fn, backend=backend)
    want = seen(fn, grad, *more)
    for got in (seen(compiled, grad, *more), seen(compiled, grad, *more)):
        for mine, other in zip(got, want, strict=True):
            torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_eagers(name, grad):
    same(DRAWS[name], grad, "dovetail")


@pytest.mark.parametrize("name", ["dropout", "several", "in place, by layout", "nobody reads it", "checkpoint"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_on_every_backend(backend, name):
    same(DRAWS[name], True, backend)


def test_fallback_random_changes_nothing():
    with dovetail.config.patch(fallback_random=True):
        same(DRAWS["several"], True, "dovetail")


def test_a_mask_is_the_same_in_both_halves():
    x = torch.ones(1000, requires_grad=True)
    y = dovetail.compile(lambda x: F.dropout(x.exp(), 0.5).log1p())(x)
    y.sum().backward()
    assert torch.equal(y != 0, x.grad != 0) and 300 < (y != 0).sum() < 700


def fork(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        inside = torch.rand(5)
    return x + inside, torch.rand(5) * x


def made(x):
    generator = torch.Generator()
    generator.manual_seed(5)
    return x + torch.rand(5, generator=generator)


def replayed(x):
    state = torch.get_rng_state()
    first = torch.rand(5)
    torch.set_rng_state(state)
    return x + first, torch.rand(5)


def seeded(x):
    torch.manual_seed(11)
    return x + torch.rand(5)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("fn", [
    fork, made, replayed, seeded, lambda x: x + torch.randn(5, generator=OWN),
    lambda x: x[torch.randperm(5, generator=OWN)] + torch.zeros(5).normal_(generator=OWN),
    lambda x: x + torch.rand(5, generator=torch.default_generator),
])  # fmt: skip
def test_generators_and_states(fn, grad):
    same(fn, grad, "dovetail")


def test_a_generator_that_is_an_argument():
    def fn(x, generator):
        return x + torch.rand(5, generator=generator)

    same(fn, True, "dovetail", OWN)


@pytest.mark.parametrize("make", (
    lambda: torch.rand(3), lambda: torch.randn(2, 3), lambda: torch.randint(5, (4,)), lambda: torch.randperm(6),
    lambda: torch.rand(3, generator=torch.Generator()), lambda: torch.empty(3).uniform_(),
))  # fmt: skip
def test_version_counters(make):
    torch.manual_seed(0)
    found = dovetail.compile(make)()
    torch.manual_seed(0)
    expected = make()
    assert found._version == expected._version
    torch.testing.assert_close(found, expected)
