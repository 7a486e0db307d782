"""Putting tensors together, taking elements at run-time indices, creating tensors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dovetail.ir.evaluate import evaluate
from dovetail.ir.loops import Check
from tests.ops.checking import check, lowered

MOVES = {
    "cat": lambda x: torch.cat([x, x * 2, x], 1), "cat_0": lambda x: torch.cat([x, x[:1]]),
    "cat_mixed": lambda x: torch.cat([x, (x > 0), x.double()], 1),
    "cat_empty": lambda x: torch.cat([x, x[:, :0], x], 1),
    "cat_one": lambda x: torch.cat([x]), "cat_legacy": lambda x: torch.cat([torch.empty(0), x]),
    "stack": lambda x: torch.stack([x, x + 1], 1), "stack_last": lambda x: torch.stack([x, x + 1], -1),
    "hstack": lambda x: torch.hstack([x, x]), "pad": lambda x: F.pad(x, (1, 2)),
    "pad_2d": lambda x: F.pad(x, (1, 0, 2, 3), value=-2.5),
    "pad_cut": lambda x: F.pad(x, (-1, 2, 1, -2)), "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "roll_flat": lambda x: x.roll(5), "repeat": lambda x: x.repeat(2, 1, 3), "tile": lambda x: x.tile((2,)),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1), "triu": lambda x: x.triu(1), "tril": lambda x: x.tril(-1),
    "slice_scatter": lambda x: x.slice_scatter(x[:, :2] * 3, 1, 1, 6, 3),
    "slice_scatter_end": lambda x: x.slice_scatter(x[1:] + 1, 0, 1),
    "select_scatter": lambda x: x.select_scatter(x[0] * 5, 0, -1),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[0, :4] * 7, 1),
    "fill": lambda x: torch.full_like(x, 3) + x, "rot90": lambda x: x.rot90(), "channels_last": lambda x: torch.cat(
        [x.view(1, 4, 2, 3).to(memory_format=torch.channels_last)] * 2, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_moves(name, dtype):
    x = (torch.randn(4, 6) * 4).to(dtype)
    if dtype is torch.bool and name in ("fill",):
        return
    check(MOVES[name], x)


@pytest.mark.parametrize("name", MOVES)
def test_moves_fuse_with_their_neighbours(name):
    check(lambda t: MOVES[name](t.exp()).sigmoid(), torch.randn(4, 6))


CREATIONS = {
    "arange": lambda x: x + torch.arange(6), "arange_step": lambda x: x + torch.arange(3, -9, -2),
    "arange_float": lambda x: x + torch.arange(0, 0.6, 0.1), "zeros": lambda x: torch.zeros(3) + x[0, 0],
    "ones": lambda x: torch.ones_like(x), "full": lambda x: torch.full((2, 3), -0.0),
    "eye": lambda x: torch.eye(4, 6) + x, "linspace": lambda x: torch.linspace(-1, 1, 6) + x,
    "tril_mask": lambda x: torch.ones(4, 4, dtype=torch.bool).tril(),
    "scalar": lambda x: x * torch.scalar_tensor(2.5), "fill": lambda x: torch.fill(x, x[0, 0]),
    "new": lambda x: x.new_zeros(2),
    "linspace_one": lambda x: torch.linspace(3, 9, 1), "arange_int": lambda x: torch.arange(5, dtype=torch.int32),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_creation(name):
    check(CREATIONS[name], torch.randn(4, 6), loops=True)


INDEXING = {
    "embedding": lambda w, i: F.embedding(i, w), "embedding_2d": lambda w, i: F.embedding(i.view(2, 2), w),
    "select": lambda w, i: w.index_select(0, i), "select_1": lambda w, i: w.index_select(1, i),
    "gather": lambda w, i: w.gather(0, i[:, None].expand(4, 6)), "gather_1": lambda w, i: w.gather(1, i[:, None]),
    "index": lambda w, i: w[i], "index_1": lambda w, i: w[:, i], "index_negative": lambda w, i: w[-1 - i],
    "index_two": lambda w, i: w[i, i], "index_broadcast": lambda w, i: w[i[:, None], i],
    "index_int32": lambda w, i: w[i.int()],
    "index_apart": lambda w, i: w.view(5, 2, 3)[i, :, i % 3],
    "index_middle": lambda w, i: w.view(5, 2, 3)[:, i % 2, i % 3],
    "take_along": lambda w, i: torch.take_along_dim(w, i[None].expand(5, 4), 1),
    "of_arange": lambda w, i: w[torch.arange(3)], "computed": lambda w, i: (w * 2)[(i * 2) % 5].exp(),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    check(INDEXING[name], torch.randn(5, 6), torch.tensor([0, 3, 1, 4]), loops=True)


@pytest.mark.parametrize("name", ["embedding", "select", "gather", "index", "index_two"])
@pytest.mark.parametrize("bad", [5, 100, -6])
def test_an_index_out_of_bounds_is_an_error(name, bad):
    index = torch.tensor([0, 3, 1, 4])
    program = lowered(INDEXING[name], torch.randn(5, 6), index)
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        evaluate(program, [torch.randn(5, 6), torch.tensor([0, 3, bad, 4])])


def test_known_indices_need_no_check():
    program = lowered(lambda w: w[torch.arange(3)], torch.randn(5, 6))
    assert not any(isinstance(s, Check) for item in program.items for s in item.statements())
