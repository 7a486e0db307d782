"""Nested tensors of the layout torch.jagged: whole graphs, results related to their inputs as in eager."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dovetail

OFFSETS = [torch.tensor(o) for o in ([0, 2, 5, 6], [0, 1, 2, 6], [0, 0, 6, 9], [0, 3, 4, 5, 11])]
LINEAR, NORM = torch.nn.Linear(4, 6), torch.nn.LayerNorm(4)
WHOLE = {
    "elementwise": lambda x: (x.sin() * 2 - x, x.half().neg()), "linear": lambda x: F.gelu(LINEAR(x)),
    "norm": lambda x: NORM(x) + x, "product": lambda x: x @ torch.ones(4, 3), "softmax": lambda x: x.softmax(-1),
    "sums": lambda x: (x.sum(), x.mean(-1)), "views": lambda x: x.unflatten(-1, (2, 2)).transpose(1, 2),
    "parts": lambda x: x.values() * 2, "made of parts": lambda x: ragged(x.values() * 2, x.offsets()),
    "unbound": lambda x: ([t + 1 for t in x.unbind()], torch.unbind(x * 2)[1], [row.sum() for row in x]),
    "joined": lambda x: torch.cat([x, x * 2], -1), "in place": lambda x: x.clone().mul_(2), "sizes": lambda x: len(x),
}  # fmt: skip
BREAKING = {
    "ragged size": lambda x: (x.shape, x * 2), "of another dimension": lambda x: raised(x.unbind, 1),
    "attention": lambda x: F.scaled_dot_product_attention(*(x.unflatten(-1, (2, 2)).transpose(1, 2) for _ in "qkv")),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():  # PyTorch calls them a prototype
        warnings.simplefilter("ignore")
        yield


def raised(function, *args):
    try:
        return function(*args)
    except RuntimeError as error:
        return str(error)


def test_what_cannot_be_said_of_ragged_rows_has_a_remedy_of_its_own():
    with pytest.raises(dovetail.Unsupported, match=r"(?s)nested-tensor.*unbind.*Call it outside"):
        dovetail.compile(lambda x: x.unbind(1), fullgraph=True)(ragged(torch.ones(6, 4), OFFSETS[0]))


def ragged(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def outcome(fn, offsets, learns):
    torch.manual_seed(0)
    leaf = torch.randn(int(offsets[-1]), 4, requires_grad=learns)
    x = ragged(leaf, offsets)
    results = pytree.tree_leaves(fn(x))
    plain = [t.values() if isinstance(t, torch.Tensor) and t.is_nested else t for t in results]
    ends = [t for t in plain if isinstance(t, torch.Tensor) and t.requires_grad]
    if ends:
        sum(t.float().square().sum() for t in ends).backward()
    kin = [t.shape == (x * 2).shape for t in results if isinstance(t, torch.Tensor) and t.is_nested]
    return [t.detach() if isinstance(t, torch.Tensor) else str(t) for t in plain], leaf.grad, kin


def check(compiled, fn, learns):
    for offsets in OFFSETS:
        (mine, gradient, kin), (theirs, wanted, related) = (outcome(f, offsets, learns) for f in (compiled, fn))
        torch.testing.assert_close((gradient, kin), (wanted, related))
        for a, b in zip(mine, theirs, strict=True):
            assert isinstance(b, str) or torch.testing.assert_close(a, b) is None


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name, backend, learns):
    check(dovetail.compile(WHOLE[name], backend=backend, fullgraph=True), WHOLE[name], learns)


def test_other_lengths_need_one_more_entry():
    def fn(x):
        return F.gelu(LINEAR(x))

    compiled = dovetail.compile(fn, fullgraph=True)
    torch.manual_seed(0)
    for count in (4, 4, 4, 7, 5):
        x = torch.nested.nested_tensor([torch.randn(n, 4) for n in torch.randint(2, 9, (count,))], layout=torch.jagged)
        torch.testing.assert_close(compiled(x).values(), fn(x).values())
    assert len(compiled._dovetail_dispatcher.entries) <= 3  # one for constants, one for lengths, one for counts


@pytest.mark.parametrize("name", BREAKING)
def test_breaks(name):
    check(dovetail.compile(BREAKING[name]), BREAKING[name], True)


@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
@pytest.mark.parametrize("shared_first", [True, False])
def test_only_tensors_of_the_same_offsets_fit_each_other(shared_first, backend):
    compiled = dovetail.compile(lambda x, y: x * y, backend=backend)
    one, other = OFFSETS[0], OFFSETS[0].clone()
    x, same, odd = (ragged(torch.randn(6, 4), o) for o in (one, one, other))
    for y in (same, odd, same) if shared_first else (odd, same, odd):
        if y is same:
            torch.testing.assert_close(compiled(x, y).values(), x.values() * y.values())
        else:
            with pytest.raises(RuntimeError, match="binary pointwise"):
                compiled(x, y)


def test_the_old_layout_breaks():
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    with pytest.raises(dovetail.GraphBreakError, match="nested-tensor"):
        dovetail.compile(lambda x: x * 2, fullgraph=True)(x)
    assert all(map(torch.equal, dovetail.compile(lambda x: x * 2)(x).unbind(), (x * 2).unbind()))


def test_a_function_of_pytorchs_own_that_reads_values_has_a_remedy_that_helps():
    def fn(x, lengths):
        return torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False).data

    with pytest.raises(dovetail.Unsupported, match=r"(?s)no-shape-rule.*Call it outside"):
        dovetail.compile(fn, fullgraph=True)(torch.ones(3, 4, 4), torch.tensor([2, 4, 1]))
