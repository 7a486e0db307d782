"""First programs: every kind of callable, arguments and results."""

from __future__ import annotations

import functools
import math

import torch

import dovetail

from .checking import run, same


def test_decorator() -> None:
    @dovetail.compile
    def f(x):
        return torch.sin(x)

    x = torch.randn(2, 3)
    torch.testing.assert_close(f(x), torch.sin(x))


def test_decorator_with_arguments() -> None:
    @dovetail.compile(fullgraph=True, dynamic=False)
    def f(x, y):
        a = torch.sin(x)
        b = torch.cos(y)
        return a + b

    x, y = torch.randn(10, 10), torch.randn(10, 10)
    torch.testing.assert_close(f(x, y), torch.sin(x) + torch.cos(y))


def test_two_cosines_are_one_graph() -> None:
    explanation = dovetail.explain(lambda x: torch.cos(torch.cos(x)))(torch.randn(10))
    assert explanation.graph_count == 1
    assert explanation.graph_break_count == 0
    assert explanation.op_count == 2


def test_toy_example_with_its_branch_taken_on_a_number() -> None:
    def toy_example(a, b, negate):
        x = a / (torch.abs(a) + 1)
        if negate:
            b = b * -1
        return x * b

    a, b = torch.randn(10), torch.randn(10)
    compiled = dovetail.compile(toy_example, fullgraph=True)
    for negate in (True, False, True):
        torch.testing.assert_close(compiled(a, b, negate), toy_example(a, b, negate))


def test_a_backend_of_ones_own() -> None:
    seen = []

    def my_backend(gm, example_inputs):
        seen.append((sum(n.op.startswith("call") for n in gm.graph.nodes), len(example_inputs)))
        return gm.forward

    x, y = torch.randn(10), torch.randn(10)
    compiled = dovetail.compile(lambda a, b: torch.relu(a) + b, backend=my_backend)
    torch.testing.assert_close(compiled(x, y), torch.relu(x) + y)
    assert seen == [(2, 2)]


def test_methods_lambdas_and_partials() -> None:
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        def scale(self, x):
            return x * self.factor

    x = torch.randn(5)
    torch.testing.assert_close(run(Scaler(3.0).scale, x), x * 3)
    torch.testing.assert_close(run(lambda t: t.exp(), x), x.exp())
    torch.testing.assert_close(run(functools.partial(torch.add, alpha=2), x, x), x + 2 * x)


def test_results_of_many_shapes() -> None:
    def f(x):
        total = 0
        parts = {}
        for i, row in enumerate(x.unbind(0)):
            total = total + row * i
            parts[f"row {i}"] = (row.sum(), row.shape[0] * math.pi)
        return total, parts, [x, None, "text", 3]

    same(f, torch.randn(3, 4))


def test_keyword_arguments_and_defaults() -> None:
    def f(x, *rest, scale=2.0, **named):
        for t in rest:
            x = x + t
        return x * scale + sum(named[k] for k in sorted(named))

    a, b, c = torch.randn(3), torch.randn(3), torch.randn(3)
    torch.testing.assert_close(run(f, a, b, scale=0.5, z=c), f(a, b, scale=0.5, z=c))
    torch.testing.assert_close(run(f, a), f(a))


def test_disable_leaves_the_function_alone() -> None:
    def f(x):
        return x + 1

    assert torch.equal(dovetail.compile(f, disable=True)(torch.zeros(2)), torch.ones(2))
