"""`x.data = y` inside compiled code: the tensor's memory, gradients and what others see of it, as in eager."""

from __future__ import annotations

import pytest
import torch

import dovetail
from tests.fuzz.python.observe import Walk, difference


def new_memory(x, w):
    before = x * 1
    x.data = torch.ones(2, 2) * 3
    return before, x + 1, x


def shared(x, w):
    y = x + 1
    x.data = y
    x.add_(1)
    return y, x.detach()[0]


def view_before(x, w):
    row = x.detach()[0]
    x.data = x.data * 2
    row.add_(1)
    return row, x


def step(x, w):
    loss = (w * x).sum()
    loss.backward()
    w.data = w.data - 0.125 * w.grad
    w.grad = None
    return loss.detach(), w * 2


def clipped(x, w):
    with torch.no_grad():
        w.data = w.data.clamp(-0.5, 0.5)
    return (w * x).sum()


def of_a_result(x, w):
    y = w * 2
    y.data = x.clone()
    return (y * y).sum()


def shown(x, w):
    print(x)
    x.data = x.data + 1
    print(x)
    return x * 1


def merged(x, w):
    w.data += x * 2
    y = w * 3
    w.data -= (x * 2).abs()
    return y + w * w


def merged_with_a_history(x, w):
    w.data += w * w
    return (w * x).sum()


def moved_between(x, w):
    data = w.data
    w.data = w.data * 2
    w.data = data
    return w * 1


def of_another_shape(x, w):
    x.data = torch.ones(3)
    return x + 1, x.shape


def of_another_dtype(x, w):
    x.data = x.data.double()
    return x + 1


WHOLE = [new_memory, shared, view_before, step, clipped, of_a_result, shown, moved_between]
WRITTEN = [merged, merged_with_a_history]
WHOLE += WRITTEN


def outcome(function, text):
    walk, x, w = Walk(), torch.arange(4.0).view(2, 2), torch.nn.Parameter(torch.full((2, 2), 0.75))
    base = x.view(-1)
    for call in range(3):
        result = function(x, w)
        for each in result if isinstance(result, tuple) else [result]:
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.sum().backward()
        walk.root(f"result {call}", (result, w.grad, x._version, w._version))
        walk.root("text", text())
    walk.root("arguments", [x, w, base])
    return walk


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "dovetail"])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("function", [*WHOLE, of_another_shape, of_another_dtype])
def test_as_in_eager(function, fullgraph, backend, capsys):
    if fullgraph and function not in WHOLE:
        pytest.skip("no single graph")
    compiled = dovetail.compile(function, backend=backend, fullgraph=fullgraph)
    text = lambda: capsys.readouterr().out
    assert difference(outcome(compiled, text), outcome(function, text)) is None


@pytest.mark.parametrize("function", WRITTEN)
def test_data_written_in_place_is_one_graph(function):
    x, w = torch.ones(2, 2), torch.nn.Parameter(torch.ones(2, 2))
    assert dovetail.explain(function)(x, w).graph_break_count == 0
