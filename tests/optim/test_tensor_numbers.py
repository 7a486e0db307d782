"""Numbers that an optimizer's code takes out of tensors: they stay in the graph, or end it, and are eager's."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dovetail

NAN = float("nan")


def in_an_optimizer(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as a module of PyTorch's optimizers would define it, of a number that the graph computes."""
    space = {"torch": torch, "math": math, "__name__": "torch.optim.tests"}
    space["body"] = types.FunctionType(fn.__code__, space)
    return types.FunctionType(computed.__code__, space)


def computed(x, n, *more):
    return body(x, n * 1, *more)  # noqa: F821


ONE_GRAPH: dict[str, Callable[[Any, Any], Any]] = {
    "factor": lambda x, n: x * n.item(),
    "factor first": lambda x, n: n.item() * x,
    "sums": lambda x, n: (x + n.item(), x - n.item(), 2 - n.item() - x),
    "divisors": lambda x, n: x / max(0.5, n.item() / 3),
    "number by number": lambda x, n: x * (1 / max(n.item(), 0.1)),
    "max": lambda x, n: x * max(0.3, n.item()),
    "max the other way": lambda x, n: x * max(n.item(), 0.3),
    "min of three": lambda x, n: x * min(0.7, n.item(), x.sum().item()),
    "alpha": lambda x, n: x.add_(x * 2, alpha=-n.item()),
    "value": lambda x, n: x.addcdiv(x, x + 9, value=n.item() * 0.1),
    "float": lambda x, n: x * float(n) * float(n.item()),
    "written to later": lambda x, n: (lambda kept: x * kept + n.add_(1) * kept)(n.item()),
    "a scalar tensor": lambda x, n: (x.sum() * n.item(), x.sum().mul_(n.item())),
    "lists": lambda x, n: torch._foreach_mul([x, x.sum(), x[0]], [n.item(), 2 * n.item(), -n.item()]),
    "type": lambda x, n: x * n.item() if isinstance(n.item(), float) and n.item() is not None else None,
    "double": lambda x, n: x.double() * n.item(),
}
BREAKS: dict[str, Callable[[Any, Any], Any]] = {
    "returned": lambda x, n: (x + 1, n.item(), [n.item() + 1]),
    "branch": lambda x, n: x + 1 if n.item() > 0.4 else x - 1,
    "truth": lambda x, n: x + 1 if n.item() else x - 1,
    "int": lambda x, n: (x * int(n.item()), int(n)),
    "text": lambda x, n: (x + 1, f"{n.item():.3f}", str(n.item())),
    "size": lambda x, n: x.new_zeros(int(n.item() + 2)),
    "zero": lambda x, n: x * (1 / n.item()),
    "zero and tensors": lambda x, n: x / n.item(),
    "power": lambda x, n: x * (n.item() ** 2),
    "square root": lambda x, n: x * math.sqrt(abs(n.item()) + 1),
    "half": lambda x, n: x.half() * n.item(),
    "integers": lambda x, n: (x > 0).long() * n.item(),
    "filled": lambda x, n: (x.fill_(n.item()), torch.full((2,), n.item())),
    "limits": lambda x, n: x.clamp(n.item() - 1, 1),
    "key": lambda x, n: x * {0.5: 2.0}.get(n.item(), 3.0),
}


def outcome(fn: Callable[..., Any], number: float) -> Any:
    x, n = torch.linspace(-1, 2, 6).reshape(2, 3), torch.tensor(number)
    with torch.no_grad():
        try:
            return fn(x, n), x, n
        except Exception as error:
            return type(error), str(error), x, n


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, equal_nan=True)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
    else:
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("backend", ("eager", "dovetail"))
@pytest.mark.parametrize("case", ONE_GRAPH)
def test_one_graph(case, backend):
    fn = in_an_optimizer(ONE_GRAPH[case])
    compiled = dovetail.compile(fn, backend=backend, fullgraph=True)
    for number in (0.25, 0.5, -3.0, 0.0, NAN, math.inf):
        same(outcome(compiled, number), outcome(fn, number))
    assert len(compiled._dovetail_dispatcher.entries) == 1


@pytest.mark.parametrize("case", BREAKS)
def test_what_needs_the_value(case):
    fn = in_an_optimizer(BREAKS[case])
    compiled = dovetail.compile(fn)
    for number in (0.25, 0.5, 3.0, 0.0):
        same(outcome(compiled, number), outcome(fn, number))


def test_a_number_that_varies_beside_one():
    fn = in_an_optimizer(lambda x, n, rate: x * (n.item() * rate) + max(rate, n.item()) / rate)
    compiled = dovetail.compile(fn, fullgraph=True)
    for rate in (0.5, 0.25, 2.0, 4.0):
        with torch.no_grad():
            x, n = torch.ones(3), torch.tensor(1.5)
            same(compiled(x, n, rate), fn(x, n, rate))
    assert len(compiled._dovetail_dispatcher.entries) <= 2


def test_elsewhere_the_graph_ends():
    with pytest.raises(dovetail.GraphBreakError), dovetail.error_on_graph_break(True):
        dovetail.compile(lambda x: x * x.sum().item())(torch.ones(3))
