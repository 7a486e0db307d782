"""Backward passes in which some results have no gradient: nothing that only those need is computed."""

from __future__ import annotations

import itertools
import threading

import pytest
import torch

import dovetail
from dovetail import pipeline
from dovetail.autograd.partial_backward import without
from dovetail.normalize.passes.dead_code import remove_dead
from tests.autograd.comparing import BACKENDS, leaf, same
from tests.autograd.test_partition import check, pair


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_a_derivative_that_is_infinite(backend):
    """Zero times that would be NaN."""

    def program(call):
        x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
        total, _ = call(x)
        total.backward()
        return x.grad

    same(program, lambda x: (x.sum(), x.sqrt()), backend)


def _several(x, w):
    hidden = (x @ w).relu()
    parts = torch.cat([hidden, hidden.log()])
    return hidden.sum(), parts[3:] * 2, hidden.sqrt().split(2), w - hidden.sum(0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_every_choice_of_results(dynamic):
    compiled = dovetail.compile(_several, dynamic=dynamic)
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(5), n) for n in (1, 2, 4)):
        found = []
        for call in (compiled, _several):
            x, w = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_(), torch.eye(4).requires_grad_()
            first, second, (third, fourth), fifth = call(x, w)
            results = [[first, second, third, fourth, fifth][k] for k in chosen]
            given = [torch.ones_like(r) for r in results]
            found.append(torch.autograd.grad(results, (x, w), given, allow_unused=True))
        torch.testing.assert_close(*found, equal_nan=True)


def test_further_choices_run_operator_by_operator(monkeypatch):
    monkeypatch.setattr(pipeline, "MOST_PARTIAL", 1)
    test_every_choice_of_results(False)


def test_one_after_the_other_through_a_kept_graph(backend):
    def program(call):
        x = leaf(4)
        a, b, c = call(x)
        a.sum().backward(retain_graph=True)
        (b.sum() + c.sum()).backward(retain_graph=True)
        torch.autograd.backward([a, b, c], [torch.ones(4)] * 3)
        return x.grad

    same(program, lambda x: (x.sin(), x * x, x.exp()), backend)


def test_the_graph():
    made = pair(lambda x: (x * 2, x.exp(), (x * 3).sum()), leaf(4))
    tangents = [n.name for n in made.backward.graph.nodes if n.name.startswith("tangent")]
    assert len(tangents) == 3
    graph = without(made.backward, {*tangents}, {tangents[1]})
    remove_dead(graph)
    check(graph, """
        graph(%exp: f32[4], %tangent_0: f32[4], %tangent_2: f32[])
          %expand = aten.expand(%tangent_2, [4]) f32[4] strides (0,)
          %mul_2 = aten.mul.Tensor(%expand, 3) f32[4]
          %mul_4 = aten.mul.Tensor(%tangent_0, 2) f32[4]
          %add_1 = aten.add.Tensor(%mul_2, %mul_4) f32[4]
          return (%add_1)""")


def test_in_a_thread_of_its_own():
    """As PyTorch's engine has for each GPU."""
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    first, _ = dovetail.compile(lambda x: (x.sum(), x.sqrt()))(x)
    thread = threading.Thread(target=first.backward)
    thread.start()
    thread.join()
    torch.testing.assert_close(x.grad, torch.ones(2))
