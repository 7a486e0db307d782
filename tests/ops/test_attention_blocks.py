"""What a mask's graph says of ranges of places: never less than what the mask shows."""

from __future__ import annotations

import pytest
import torch
import torch.fx
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

from dovetail.ops.calls import attention_blocks
from dovetail.ops.calls.attention_blocks import blocks
from dovetail.ops.calls.flex_attention import everywhere

TABLE = torch.arange(64) // 16


def traced(mask):
    """As capture gives it: the graph gives a list of one result."""
    return torch.fx.symbolic_trace(lambda b, h, i, j: [mask(b, h, i, j)])


def causal(b, h, i, j):
    return i >= j


def near(b, h, i, j):
    return (i - j).abs() <= 9


MASKS = {
    "causal": causal,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 8),
    "window of functions": and_masks(causal, lambda b, h, i, j: torch.logical_and(j > i - 8, j >= 0)),
    "near": near,
    "prefix": or_masks(causal, lambda b, h, i, j: j < 5),
    "not": lambda b, h, i, j: ~(j > i) & (i != j),
    "multiples": lambda b, h, i, j: (j * 2 <= i) & (-j > -20),
    "heads": lambda b, h, i, j: j < h * 10 + 10,
    "strict": lambda b, h, i, j: i > j + 20,
    "diagonal": lambda b, h, i, j: i == j,
    "squares": lambda b, h, i, j: i // 8 == j.floor_divide(8),
    "by turns": lambda b, h, i, j: (j % 64 < 16) | (i - 9 > 100),
}
UNKNOWN = {
    "all": noop_mask,
    "fractions": lambda b, h, i, j: i * 0.1 > j + 100,
    "sum of conditions": lambda b, h, i, j: ((i >= 0) + (j >= 0)) == 1,
    "remainder": lambda b, h, i, j: i % 4 == j % 4,
}


@pytest.mark.parametrize("name", [*MASKS, *UNKNOWN])
@pytest.mark.parametrize("rows, keys", [(64, 64), (61, 37), (20, 64)])
def test_all_that_is_shown_is_in_a_block(name, rows, keys, monkeypatch):
    monkeypatch.setattr(attention_blocks, "LEAST_ROWS", 8)
    mask = traced({**MASKS, **UNKNOWN}[name])
    places = [torch.arange(n) for n in (2, 3, rows, keys)]
    shown = everywhere(mask, [], 0)(*places).expand(2, 3, rows, keys)
    covered = torch.zeros(rows, keys, dtype=torch.bool)
    found = blocks(mask, (2, 3, rows, keys))
    for start, stop, first, last in found:
        covered[start:stop, first:last] = True
    assert not (shown & ~covered).any()
    assert [b[0] for b in found[1:]] == [b[1] for b in found[:-1]] and (found[0][0], found[-1][1]) == (0, rows)
    if (rows, keys) == (64, 64):
        assert (len(found) > 1) is (name in MASKS)


def test_a_window_takes_the_blocks_it_reaches(monkeypatch):
    monkeypatch.setattr(attention_blocks, "LEAST_ROWS", 16)
    assert blocks(traced(MASKS["window"]), (1, 1, 64, 64)) == [
        (0, 16, 0, 16), (16, 32, 0, 32), (32, 48, 16, 48), (48, 64, 32, 64)
    ]  # fmt: skip
