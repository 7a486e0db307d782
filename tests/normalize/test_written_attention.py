"""Attention that programs write out becomes PyTorch's own where that is faster; what it means stays."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.ir import devices
from dovetail.normalize.recording import written_attention
from dovetail.normalize.recording.attention_times import products_are_faster

ROWS, WIDTH = 6, 8
TRIANGLE = torch.ones(ROWS, ROWS, dtype=torch.bool).tril()
#: The third row sees nothing.
HIDDEN = ~TRIANGLE.clone().index_fill(0, torch.tensor([2]), False)
LOW = torch.finfo(torch.float32).min


def scores(q, k):
    return q @ k.transpose(-2, -1) / math.sqrt(WIDTH)


def lettered(q, k, v, mask):
    """Heads behind the rows."""
    q, k, v = (t.transpose(1, 2).contiguous() for t in (q, k, v))
    found = torch.einsum("bihd,bjhd->bhij", q * 0.3, k)
    found /= 2
    shown = torch.where(torch.ones(ROWS, ROWS, dtype=torch.bool).tril(), found, torch.full([], LOW))
    return torch.einsum("bhij,bjhd->bihd", shown.softmax(dim=-1), v)


def few_dimensions(q, k, v, mask):
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.1, 2), v)


def eager_of_a_library(q, k, v, mask):
    weights = torch.matmul(q, k.transpose(2, 3)) * 0.5
    weights = F.softmax(weights.masked_fill(mask, LOW), dim=-1, dtype=torch.float32).to(q.dtype)
    weights = F.dropout(weights, p=0.1, training=False)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


TAKEN = {
    "plain": lambda q, k, v, mask: (q @ k.mT).softmax(-1) @ v,
    "hidden by -inf": lambda q, k, v, mask: scores(q, k).masked_fill(mask, -math.inf).softmax(-1) @ v,
    "hidden by a number": lambda q, k, v, mask: F.softmax(scores(q, k).masked_fill_(mask, -1e9), -1) @ v,
    "hidden twice": lambda q, k, v, mask: (
        torch.where(mask, -math.inf, scores(q, k).masked_fill(mask.mT, -math.inf)).softmax(-1) @ v
    ),
    "causal bias": lambda q, k, v, mask: (scores(q, k) + torch.full((ROWS, ROWS), -math.inf).triu(1)).softmax(-1) @ v,
    "letters": lettered,
    "three dimensions": few_dimensions,
    "casts": eager_of_a_library,
}


def biased(q, k, v, mask):
    """Rows of the least number, of -inf, and of both."""
    bias = torch.where(mask, LOW, torch.ones(ROWS)).index_fill(0, torch.tensor([4]), -math.inf)
    return (bias[None] + scores(q, k)).softmax(-1) @ v


def shared(q, k, v, mask):
    weights = scores(q, k).softmax(-1)
    return weights @ v, weights


def changed_between(q, k, v, mask):
    k = k.clone()
    weights = scores(q, k).softmax(-1)
    k.mul_(2)
    return weights @ k


LEFT = {
    "weights are returned": shared,
    "a tensor is changed between": changed_between,
    "another dimension": lambda q, k, v, mask: scores(q, k).softmax(-2) @ v,
    "scaled behind the bias": lambda q, k, v, mask: ((q @ k.mT + mask.float()) * 2).softmax(-1) @ v,
    "hidden by little": lambda q, k, v, mask: scores(q, k).masked_fill(mask, -3.0).softmax(-1) @ v,
    "hidden for two reasons": lambda q, k, v, mask: (
        (scores(q, k).masked_fill(mask, -math.inf) + torch.ones(ROWS)).softmax(-1) @ v
    ),
    "values of another width": lambda q, k, v, mask: scores(q, k).softmax(-1) @ v[..., :4],
}


@pytest.fixture
def calls(monkeypatch):
    """Of PyTorch's attention, on a device that is better off with it: their rates of dropout."""
    found = []

    def attention(*args, **named):
        found.append(named["dropout_p"])
        return F.scaled_dot_product_attention(*args, **named)

    monkeypatch.setitem(devices.TRAITS, "cpu", dataclasses.replace(devices.TRAITS["cpu"], attention=True))
    monkeypatch.setattr(written_attention, "attention", attention)
    return found


def inputs(dtype=torch.float32, trained=False):
    torch.manual_seed(0)
    return [torch.randn(2, 3, ROWS, WIDTH, dtype=dtype, requires_grad=trained) for _ in range(3)]


def outcome(program, args):
    found = program(*args, HIDDEN)
    found = found if isinstance(found, tuple) else (found,)
    leaves = [a for a in args if a.requires_grad]
    weights = torch.linspace(-1, 1, found[0].numel()).view(found[0].shape)
    gradients = torch.autograd.grad((found[0] * weights).sum(), leaves, allow_unused=True) if leaves else ()
    results = [*found, *gradients]
    return results, [t if t is None else t.stride() for t in results]


@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_what_it_means(name, calls):
    program, trained = {**TAKEN, **LEFT}[name], name != "a tensor is changed between"
    got, want = (outcome(fn, inputs(trained=trained)) for fn in (dovetail.compile(program, fullgraph=True), program))
    assert len(calls) == (name in TAKEN)
    torch.testing.assert_close(got[0], want[0], equal_nan=True)
    some = slice(1 if name == "letters" else None)  # gradients of copies of inputs lie as attention gives them
    assert got[1][some] == want[1][some]


def test_numbers_that_hide(calls):
    """A row of which all is hidden has gradients beside the least of numbers, which PyTorch's own loses."""
    for trained in False, True:
        compiled = dovetail.compile(biased, fullgraph=True)
        got, want = (outcome(fn, inputs(trained=trained)) for fn in (compiled, biased))
        torch.testing.assert_close(got[0], want[0], equal_nan=True)
        assert len(calls) == 1


def test_dropout(calls):
    """Where eager's numbers are drawn, eager's operator does."""
    program = lambda q, k, v: F.dropout(scores(q, k).softmax(-1), 0.25) @ v
    args = [torch.randn(2, 4, 32, WIDTH) for _ in range(2)]
    found = dovetail.compile(program, fullgraph=True)(*args, torch.ones(2, 4, 32, WIDTH))
    assert calls == [0.25] and found.std() > 0.05 and abs(found.mean() - 1) < 0.1
    with dovetail.config.patch(fallback_random=True):
        dovetail.compile(program, fullgraph=True)(*args, args[0])
    few = inputs()
    torch.manual_seed(1)
    found = dovetail.compile(program, fullgraph=True)(*few)
    torch.manual_seed(1)
    torch.testing.assert_close(found, program(*few))
    assert len(calls) == 1


def test_what_rounds_as_eager(calls):
    dovetail.compile(TAKEN["plain"])(*inputs(torch.float64), None)
    with dovetail.config.patch(numerics="eager"):
        dovetail.compile(TAKEN["plain"])(*inputs(), None)
    assert not calls


#: Batch, heads, queries, keys, width; us of all gradients by PyTorch's kernel and by products, in float32 and
#: bfloat16, on an H100.
MEASURED = {
    (8, 1, 3136, 49, 64): (632, 231, 136, 133), (8, 2, 784, 49, 64): (184, 53, 56, 51),
    (8, 5, 196, 49, 64): (67, 31, 28, 31), (8, 8, 49, 49, 64): (27, 22, 21, 20),
    (4, 1, 3136, 196, 64): (752, 257, 134, 96), (32, 1, 3136, 49, 64): (761, 351, 169, 224),
    (2, 8, 1024, 77, 64): (272, 98, 61, 63), (2, 8, 4096, 77, 40): (1095, 381, 214, 252),
    (8, 12, 197, 197, 64): (184, 113, 49, 79), (1, 12, 128, 128, 64): (45, 25, 21, 15),
    (8, 12, 512, 512, 64): (538, 574, 111, 213), (1, 8, 2048, 64, 64): (411, 123, 98, 23),
    (16, 8, 64, 256, 32): (74, 53, 25, 22), (8, 8, 1024, 1024, 64): (1325, 1430, 218, 525),
}  # fmt: skip


@pytest.mark.parametrize("sizes", MEASURED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_time_of_gradients_on_a_gpu(sizes, dtype):
    """What is chosen takes at most half as long again as what is not."""
    *query, keys, width = sizes
    kernel, products = MEASURED[sizes][2 * (dtype is torch.bfloat16) :][:2]
    chosen = products_are_faster((*query, width), keys, dtype, torch.device("cuda:0"))
    assert (products if chosen else kernel) <= 1.5 * (kernel if chosen else products)


def test_few_keys_in_few_heads(calls):
    """Where a GPU's kernel for gradients would leave most of the device idle."""
    for trained in False, True:
        q, k, v = (torch.randn(1, 1, rows, WIDTH, requires_grad=trained) for rows in (512, 8, 8))
        dovetail.compile(TAKEN["plain"], fullgraph=True)(q, k, v, None)
    assert len(calls) == 1


@pytest.mark.parametrize("rows, trained, dtype, taken", [
    (256, False, torch.float32, True), (64, False, torch.float32, False), (256, True, torch.float32, False),
    (256, False, torch.bfloat16, False),
])  # fmt: skip
def test_on_a_cpu(rows, trained, dtype, taken, calls, monkeypatch):
    monkeypatch.setitem(devices.TRAITS, "cpu", dataclasses.replace(devices.TRAITS["cpu"], attention=False))
    args = [torch.randn(1, 1, rows, WIDTH, dtype=dtype, requires_grad=trained) for _ in range(3)]
    dovetail.compile(TAKEN["plain"], fullgraph=True)(*args, None)
    assert len(calls) == taken
