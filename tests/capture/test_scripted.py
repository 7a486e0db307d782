"""torch.jit.script: what was Python is traced as Python, unless the difference could show."""

from __future__ import annotations

import warnings

import pytest
import torch

import dovetail
from tests.capture.harness import compare

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of deprecation, in newer versions

    @torch.jit.script
    def scaled(x: torch.Tensor, k: float = 2):
        return x * k

    @torch.jit.script
    def strict(x):
        if x.size(0) != 3:
            raise ValueError("three")
        return x

    example = torch.jit.trace(lambda x: x * 2 if x.sum() > 0 else x, torch.ones(2))

x = torch.arange(2)


def caught(a):
    try:
        return strict(a)
    except Exception as error:
        return a + 1, type(error).__name__


WHOLE = [lambda a: scaled(a, 3.0), lambda a: scaled(a), lambda a: scaled(k=0.5, x=a) + 1]
BROKEN = [lambda a: scaled(a, 3), caught, lambda a: example(-a.float()) + 1]


@pytest.mark.parametrize("function", WHOLE)
def test_one_graph(function):
    compare(dovetail.compile(function, backend="eager", fullgraph=True)(x), function(x))


@pytest.mark.parametrize("function", BROKEN)
def test_what_differs_from_python_breaks_the_graph(function):
    with pytest.raises(dovetail.GraphBreakError, match="script-code"):
        dovetail.compile(function, backend="eager", fullgraph=True)(x)
    compare(dovetail.compile(function, backend="eager")(x), function(x))
