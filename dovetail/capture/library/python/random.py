"""Python's and NumPy's random generators."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np

from dovetail.capture.protocols.attributes import BINDERS
from dovetail.capture.tables.known_callables import INLINE, KNOWN, Handler
from dovetail.capture.tensors.random_numbers import draw, make
from dovetail.capture.values.base import Args, Kwargs, Session, Value
from dovetail.capture.values.callables import MethodValue


def _method(name: str, cls: type) -> Handler:
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if not args or args[0].cls is not cls:
            return INLINE
        return draw(s, args[0], name, args[1:], kwargs)

    return handler


def _everybodys(name: str, generator: Any) -> Handler:
    return lambda s, args, kwargs: draw(s, generator, name, args, kwargs)


NUMBERS = """random uniform triangular randint randrange getrandbits gauss normalvariate lognormvariate expovariate
    vonmisesvariate gammavariate betavariate paretovariate weibullvariate seed""".split()
ARRAYS = """random random_sample rand randn uniform normal standard_normal randint random_integers integers seed beta
    binomial chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric laplace logistic lognormal
    logseries negative_binomial pareto permutation poisson power rayleigh standard_cauchy standard_exponential
    standard_gamma standard_t triangular vonmises wald weibull zipf""".split()

for _name in NUMBERS:
    KNOWN[getattr(random.Random, _name)] = _method(_name, random.Random)
    KNOWN[getattr(random, _name)] = _everybodys(_name, random._inst)
for _name in ARRAYS:
    for _cls in (np.random.RandomState, np.random.Generator):
        if hasattr(_cls, _name):
            KNOWN[getattr(_cls, _name)] = _method(_name, _cls)
    if hasattr(np.random, _name):
        KNOWN[getattr(np.random, _name)] = _everybodys(_name, np.random.mtrand._rand)

for _maker in (random.Random, np.random.RandomState, np.random.default_rng):
    KNOWN[_maker] = partial(lambda maker, s, args, kwargs: make(s, maker, args, kwargs), _maker)

BINDERS[type(np.random.Generator.normal)] = lambda s, v, static, name: MethodValue(s.wrap(static, None), v)
