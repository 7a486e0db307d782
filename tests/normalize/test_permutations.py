"""What is added to zeros at a permutation is read at its inverse."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.normalize.interpret import interpreter
from dovetail.normalize.text import aten_text
from dovetail.options import Options
from tests.normalize.harness import functional

KEYS, ROWS = torch.tensor([3, 1, 3, 0, 2, 1, 0, 3]), torch.linspace(-2, 2, 24).reshape(8, 3)


def put(places, count):
    return lambda keys, rows: rows.new_zeros(count, 3).index_put((places(keys),), rows, accumulate=True)


def added(keys, rows):
    return rows.new_zeros(8, 3).index_add(0, keys.argsort(), rows)


def inverse_of_an_inverse(keys, rows):
    order = keys.sort()[1]
    back = torch.empty_like(order)
    back[order] = torch.arange(8)
    return put(lambda _: back, 8)(keys, rows), put(lambda _: order // 2, 4)(keys, rows)


READ = {
    "sorted": put(lambda keys: keys.sort()[1], 8),
    "sorted downwards": put(lambda keys: keys.argsort(descending=True, stable=True), 8),
    "in pairs": put(lambda keys: keys.argsort() // 2, 4),
    "in fours": put(lambda keys: torch.sort(keys).indices // 4, 2),
    "added": added,
    "by an inverse": inverse_of_an_inverse,
}


@pytest.mark.parametrize("name", READ)
def test_nothing_is_added(name):
    aten = functional(READ[name], KEYS, ROWS)
    text = aten_text(aten)
    assert ", True)" not in text and "index_add" not in text and text.count("aten.index_put") <= 1
    got, want = interpreter(aten)(KEYS, ROWS), READ[name](KEYS, ROWS)
    torch.testing.assert_close(got, want if isinstance(want, tuple) else (want,))


@pytest.mark.parametrize("fn", [
    put(lambda keys: keys, 8),
    put(lambda keys: keys.sort()[0], 8),
    put(lambda keys: keys.argsort(), 9),  # a row without elements
    put(lambda keys: keys.argsort() // 3, 3),  # rows with three and with two
    put(lambda keys: keys.argsort() + 1, 9),
    put(lambda keys: keys.topk(8)[1], 8),
    lambda keys, rows: rows.index_put((keys.argsort(),), rows, accumulate=True),
    lambda keys, rows: rows.new_zeros(8, 3).index_put((keys.argsort(),), rows[:1], accumulate=True),
    lambda keys, rows: rows.new_zeros(3, 8).index_add(1, keys.argsort(), rows.t()),
])  # fmt: skip
def test_what_is_no_permutation_of_rows_stays(fn):
    aten = functional(fn, KEYS, ROWS)
    assert "True)" in aten_text(aten) or "index_add" in aten_text(aten)
    torch.testing.assert_close(interpreter(aten)(KEYS, ROWS), (fn(KEYS, ROWS),))


def test_not_where_sums_are_to_be_eagers():
    aten = functional(READ["in fours"], KEYS, ROWS, options=Options(numerics="eager"))
    assert "True)" in aten_text(aten)


def experts(x, weights, keys, scale):
    """A mixture of experts, as libraries write it: each row goes to two."""
    chosen, order = torch.sort(keys)
    rows = torch.einsum("nd,nde->ne", x[order // 2], weights[chosen]) * scale[order][:, None]
    back = torch.empty_like(order)
    back[order] = torch.arange(len(keys))
    return rows[back].view(*x.shape[:1], 2, -1).sum(1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_a_mixture_of_experts(dynamic):
    compiled = dovetail.compile(experts, fullgraph=True, dynamic=dynamic)
    for count in (4, 9):
        given = torch.randn(count, 6), torch.randn(4, 6, 5), torch.randint(4, (2 * count,)), torch.randn(2 * count)
        results = []
        for fn in (compiled, experts):
            own = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
            out = fn(*own)
            out.square().sum().backward()
            results.append((out, *(t.grad for t in own)))
        torch.testing.assert_close(*results)
