"""Gradients of compiled functions of tensors that are made of others: what the engine and the caller do between."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import dovetail
from dovetail.runtime.call import wrapped
from tests.capture.wrapper_classes import Int8

backends = pytest.mark.parametrize("backend", ("aot_eager", "dovetail"))


def compiled(fn, backend):
    return dovetail.compile(fn, fullgraph=True, backend=backend)


def leaf(seed=0):
    torch.manual_seed(seed)
    return TwoTensor(torch.randn(3, 4), torch.randn(3, 4)).requires_grad_()


def close(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, TwoTensor):
        close(actual.a, expected.a)
        close(actual.b, expected.b)
    elif expected is not None:
        torch.testing.assert_close(actual, expected)


@backends
def test_what_it_is_made_of_is_compiled(backend, caplog, monkeypatch):
    monkeypatch.setattr(wrapped, "again", again)
    with caplog.at_level(logging.INFO, "dovetail.perf_hints"), caplog.at_level(logging.INFO, "dovetail.aot_graphs"):
        compiled(lambda t: t.sin(), backend)(leaf()).sum().backward()
    assert "aten.cos" in caplog.text and "operator by operator" not in caplog.text


@backends
@pytest.mark.parametrize("make", (lambda t: t, lambda t: t.a, lambda t: t.a.double()), ids=("two", "plain", "double"))
def test_a_gradient_of_another_class(backend, make):
    """What came was expected to be a TwoTensor."""
    def fn(t, x):
        return t * x * x

    grads = []
    for function in (fn, compiled(fn, backend)):
        t, x = leaf(), torch.ones(3, 4, requires_grad=True)
        grads.append(torch.autograd.grad(function(t, x), (x,), make(leaf(1).detach()), allow_unused=True)[0])
    assert type(grads[0]) is type(grads[1])
    close(grads[1], grads[0])


@backends
def test_a_gradient_made_of_others_for_a_plain_function(backend):
    """The compiled function itself knows nothing of them."""
    grads = []
    for function in (torch.sin, compiled(lambda x: torch.sin(x), backend)):
        x = torch.linspace(0, 1, 12).view(3, 4).requires_grad_()
        (function(x) * leaf(1)).sum().backward()
        grads.append(x.grad)
    close(grads[1], grads[0])


@backends
def test_some_results_only(backend):
    grads = []
    for function in ((lambda t, u: (t.sin(), u.exp())), compiled(lambda t, u: (t.sin(), u.exp()), backend)):
        t, u = leaf(), leaf(1)
        function(t, u)[1].sum().backward()
        grads.append((t.grad, u.grad))
    assert grads[0][0] is grads[1][0] is None
    close(grads[1][1], grads[0][1])


@backends
def test_twice(backend):
    grads = []
    for function in (lambda t: t.sin() * t, compiled(lambda t: t.sin() * t, backend)):
        t = leaf()
        first = torch.autograd.grad(function(t).sum(), t, create_graph=True)[0]
        grads.append(torch.autograd.grad((first * first).sum(), t)[0])
    close(grads[1], grads[0])


@backends
@pytest.mark.parametrize("which", ("input", "result"))
def test_a_write_before_the_backward_pass_raises(backend, which):
    """The parts' own versions say nothing of it."""
    for function in (torch.exp, compiled(lambda t: torch.exp(t) if which == "result" else t.sin(), backend)):
        function = torch.sin if which == "input" and function is torch.exp else function
        t = leaf() * 1
        result = function(t)
        with torch.no_grad():
            (t if which == "input" else result).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


@backends
def test_inputs_that_share_parts(backend):
    """One is written to, so the other has changed as well."""
    def fn(t, u):
        t.add_(1)
        return u * 2

    function, results = compiled(fn, backend), []
    for each in (fn, function, function):
        a, b, c = torch.zeros(3), torch.ones(3), torch.ones(3)
        results.append(each(TwoTensor(a, b), TwoTensor(a, c) if each is fn or results[1:] else TwoTensor(c, b * 1)))
    assert results[0].a.tolist() == results[2].a.tolist() == [2, 2, 2]


@backends
def test_hooks_see_gradients_of_the_class(backend):
    seen = []
    t = leaf()
    t.register_hook(lambda g: seen.append(type(g)))
    compiled(lambda t: t * 2, backend)(t).sum().backward()
    assert seen == [TwoTensor]


@backends
@pytest.mark.parametrize("like", (lambda g: g, lambda g: g.a), ids=("as expected", "plain"))
def test_gradients_have_memory_of_their_own(backend, like):
    """Two inputs get the same gradient, and the engine adds to both in place."""
    grads = []
    for function in (torch.add, compiled(lambda t, u: torch.add(t, u), backend)):
        t, u = leaf(), leaf(1)
        total = (function(t, u) * like(leaf(2).detach())).sum()
        total.backward(retain_graph=True)
        total.backward()
        grads.append((t.grad, u.grad))
    close(grads[1][0], grads[0][0])
    close(grads[1][1], grads[0][1])


def again(*args):
    raise AssertionError("the captured graph runs again")


@backends
def test_a_layer_of_eight_bits_with_any_batch(backend, monkeypatch):
    monkeypatch.setattr(wrapped, "again", again)
    weight = Int8.of(torch.randn(5, 4))
    function = compiled(lambda x: torch.nn.functional.linear(x, weight).relu(), backend)
    for rows in (2, 3, 7, 9):
        x = torch.randn(rows, 4, requires_grad=True)
        expected, actual = torch.nn.functional.linear(x, weight).relu(), function(x)
        close(actual, expected)
        close(torch.autograd.grad(actual.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])
    assert len(function._dovetail_dispatcher.entries) == 2
