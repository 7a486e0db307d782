"""torch.distributions: made, sampled, scored inside one graph; invalid arguments raise what eager raises."""

from __future__ import annotations

import pytest
import torch
import torch.distributions as D

import dovetail
from tests.capture.whole import whole


@pytest.fixture(autouse=True)
def validated():
    """What is PyTorch's default until its own compiler is imported, which turns the validation off."""
    before = D.Distribution._validate_args
    D.Distribution.set_default_validate_args(True)
    yield
    D.Distribution.set_default_validate_args(before)


def x():
    return torch.randn(3, 4)


def leaf():
    return torch.randn(3, 4, requires_grad=True)


def scale(x):
    return x.abs() + 1


FAMILIES = {
    "normal": lambda x: D.Normal(x, scale(x)), "normal of numbers": lambda x: D.Normal(0.0, 1.0),
    "unchecked": lambda x: D.Normal(x, scale(x), validate_args=False), "bernoulli": lambda x: D.Bernoulli(logits=x),
    "categorical": lambda x: D.Categorical(logits=x), "by probability": lambda x: D.Categorical(x.softmax(-1)),
    "beta": lambda x: D.Beta(scale(x), scale(x)), "gamma": lambda x: D.Gamma(scale(x), scale(x)),
    "exponential": lambda x: D.Exponential(scale(x)), "dirichlet": lambda x: D.Dirichlet(scale(x)),
    "uniform": lambda x: D.Uniform(x, x + 1), "laplace": lambda x: D.Laplace(x, scale(x)),
    "poisson": lambda x: D.Poisson(scale(x)), "student": lambda x: D.StudentT(scale(x)),
    "gumbel": lambda x: D.Gumbel(x, scale(x)), "log normal": lambda x: D.LogNormal(x, scale(x)),
    "multivariate": lambda x: D.MultivariateNormal(x, torch.eye(4)), "one hot": lambda x: D.OneHotCategorical(logits=x),
    "multinomial": lambda x: D.Multinomial(10, x.softmax(-1)), "binomial": lambda x: D.Binomial(10, x.sigmoid()),
    "independent": lambda x: D.Independent(D.Normal(x, scale(x)), 1),
    "mixture": lambda x: D.MixtureSameFamily(D.Categorical(logits=x), D.Normal(x, scale(x))),
    "transformed": lambda x: D.TransformedDistribution(D.Normal(x, scale(x)), [D.TanhTransform(), D.ExpTransform()]),
    "relaxed": lambda x: D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x),
}  # fmt: skip
WITHOUT_RSAMPLE = frozenset(
    ("bernoulli", "categorical", "by probability", "poisson", "one hot", "multinomial", "binomial", "mixture")
)
THROUGH_A_FUNCTION = frozenset(("beta", "dirichlet"))  # their samples are differentiated by a Python autograd.Function


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_and_their_logarithms(name):
    def run(x):
        made = FAMILIES[name](x)
        sample = made.sample((2,))
        return sample, made.log_prob(sample), made.batch_shape, made.event_shape

    whole(run, x)


@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in WITHOUT_RSAMPLE | THROUGH_A_FUNCTION])
def test_samples_with_gradients(name):
    whole(lambda x: FAMILIES[name](x).rsample(), leaf)


OTHERS = {
    "divergence": lambda x: D.kl_divergence(D.Normal(x, scale(x)), D.Normal(0.0, 1.0)),
    "of categories": lambda x: D.kl_divergence(D.Categorical(logits=x), D.Categorical(logits=-x)),
    "multivariate": lambda x: D.kl_divergence(*[D.MultivariateNormal(k * x, torch.eye(4)) for k in (1, 2)]),
    "entropy": lambda x: (D.Normal(x, scale(x)).entropy(), D.Categorical(logits=x).entropy()),
    "moments": lambda x: (D.Gamma(scale(x), scale(x)).mean, D.Beta(scale(x), scale(x)).variance),
    "distribution functions": lambda x: D.Normal(x, scale(x)).cdf(x) + D.Normal(x, scale(x)).icdf(x.sigmoid()),
    "expanded": lambda x: D.Normal(x, scale(x)).expand((2, 3, 4)).rsample(),
    "transforms": lambda x: D.ComposeTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)])(x),
    "inverse": lambda x: D.ExpTransform().inv(scale(x)),
    "bijection": lambda x: D.biject_to(D.constraints.positive)(x),
    "support": lambda x: D.Uniform(x, x + 1).support.check(x),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_rest(name):
    whole(OTHERS[name], x)


INVALID = {
    "scale": (lambda x: D.Normal(0.0, x), torch.tensor([1.0, -1.0])),
    "numbers": (lambda x: D.Normal(x, -1.0), torch.tensor(2.0)),
    "probabilities": (lambda x: D.Categorical(x), torch.tensor([0.5, -0.5])),
    "bounds": (lambda x: D.Uniform(x, x * 2), torch.tensor([1.0, -1.0])),
    "matrix": (lambda x: D.MultivariateNormal(torch.zeros(2), x), torch.tensor([[1.0, 2.0], [0.0, 1.0]])),
    "sample": (lambda x: D.Exponential(1.0).log_prob(x), torch.tensor([1.0, -1.0])),
    "size of sample": (lambda x: D.Normal(torch.zeros(3), 1.0).log_prob(x), torch.zeros(2)),
}


@pytest.mark.parametrize("backend", ["eager", "dovetail"])
@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments_raise_as_in_eager(name, backend):
    function, value = INVALID[name]
    compiled = dovetail.compile(lambda x: (function(x), x)[1], fullgraph=True, backend=backend)
    with pytest.raises(ValueError) as expected:
        function(value)
    with pytest.raises(ValueError) as actual:
        compiled(value)
    assert str(actual.value) == str(expected.value)


def test_values_decide_on_every_call():
    compiled = dovetail.compile(lambda x: D.Normal(0.0, x).log_prob(x), fullgraph=True)
    for value in (torch.ones(3), torch.full((3,), 2.0)):
        torch.testing.assert_close(compiled(value), D.Normal(0.0, value).log_prob(value))
    with pytest.raises(ValueError, match="to satisfy the constraint GreaterThan"):
        compiled(-torch.ones(3))
