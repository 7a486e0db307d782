"""`flex_attention` as one node: score_mod and mask_mod as graphs, with whatever they close over."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dovetail
from dovetail.ops.calls import attention_blocks
from tests.capture.higher import BACKENDS, refused

SLOPES = torch.tensor([0.5, 0.25])
DOCUMENTS = torch.randint(0, 3, (64,))


def causal(b, h, i, j):
    return i >= j


def documents(b, h, i, j):
    return (i >= j) & (DOCUMENTS[i] == DOCUMENTS[j])


def alibi(score, b, h, i, j):
    return score + SLOPES[h] * (j - i)


def inputs(rows=48, heads=2, shared=2, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(2, n, rows, 16, dtype=dtype) for n in (heads, shared, shared)]


def plain(q, k, v):
    return flex_attention(q, k, v)


def functions(q, k, v):
    return flex_attention(q, k, v, alibi, create_block_mask(documents, None, None, q.shape[2], k.shape[2], "cpu"))


def statistics(q, k, v):
    out, lse = flex_attention(q, k, v, alibi, return_lse=True)
    return out * lse.unsqueeze(-1)


def options(q, k, v):
    return flex_attention(q, k, v, alibi, kernel_options={"BLOCK_M": 32}, scale=2.0) + 1


def rows_of_tables(q, k, v):
    table = q.mean((0, 1, 3))
    return flex_attention(q, k, v, lambda s, b, h, i, j: s + q[b][h][i, 0] + table[j])


@pytest.mark.parametrize("program", [plain, functions, statistics, options, rows_of_tables])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph(program, backend):
    compiled = dovetail.compile(program, fullgraph=True, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(*inputs()), program(*inputs()))


def test_a_mask_is_an_argument():
    def program(q, k, v, mask):
        return flex_attention(q, k, v, block_mask=mask)

    compiled = dovetail.compile(program, fullgraph=True)
    for mask_mod in causal, documents:
        mask = create_block_mask(mask_mod, None, None, 48, 48, "cpu", BLOCK_SIZE=16)
        torch.testing.assert_close(compiled(*inputs(), mask), program(*inputs(), mask))


def test_blocks_of_a_mask_are_exported():
    """What PyTorch notes for its tracers meanwhile is no effect of the program."""

    def program(x):
        mask = create_block_mask(causal, None, None, 48, 48, "cpu", BLOCK_SIZE=16)
        return mask.kv_num_blocks + x, mask.q_indices

    x = torch.ones(3)
    torch.testing.assert_close(dovetail.export(program, (x,)).module()(x), program(x))


def test_sizes_vary():
    compiled = dovetail.compile(functions, fullgraph=True, dynamic=True)
    for rows in 48, 33, 64, 17:
        torch.testing.assert_close(compiled(*inputs(rows)), functions(*inputs(rows)))


def test_heads_are_shared():
    def program(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s * (h + 1), enable_gqa=True)

    given = inputs(heads=6, shared=3)
    torch.testing.assert_close(dovetail.compile(program, fullgraph=True)(*given), program(*given))


def test_rows_that_see_nothing():
    def program(q, k, v):
        mask = create_block_mask(lambda b, h, i, j: i > j + 3, None, None, 48, 48, "cpu")
        return flex_attention(q, k, v, block_mask=mask, return_lse=True)

    out, lse = dovetail.compile(program, fullgraph=True)(*inputs())
    assert (out[:, :, :4] == 0).all() and (lse[:, :, :4] == -torch.inf).all() and lse[:, :, 4:].isfinite().all()
    torch.testing.assert_close((out, lse), program(*inputs()))


def test_gradients(monkeypatch):
    """PyTorch's function refuses them on CPUs; the operator behind it has them, as on GPUs."""
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    given = [t.requires_grad_() for t in (*inputs(), SLOPES.clone(), torch.randn(96))]

    def program(q, k, v, slopes, bias):
        def changed(score, b, h, i, j):
            return score * slopes[h] + bias[i - j + 48]

        mask = create_block_mask(lambda b, h, i, j: i > j, None, None, 48, 48, "cpu")
        out, lse = flex_attention(q, k, v, changed, mask, return_lse=True)
        return out.square().sum() + torch.where(lse.isfinite(), lse, 0).sum()

    found = torch.autograd.grad(dovetail.compile(program, fullgraph=True)(*given), given)
    for mine, theirs in zip(found, torch.autograd.grad(program(*given), given), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3)
        assert mine.isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_narrows_what_is_given(backend):
    def program(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return flex_attention(q, k, v, alibi, return_lse=True)

    out, lse = dovetail.compile(program, fullgraph=True, backend=backend)(*inputs())
    wanted = program(*inputs())
    torch.testing.assert_close(out, wanted[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse, wanted[1])


def test_eager_errors():
    compiled = dovetail.compile(plain)
    with pytest.raises(ValueError, match="same number of heads"):
        compiled(*inputs(heads=4))
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        compiled(*[t.requires_grad_() for t in inputs()])


@pytest.mark.parametrize("heads", [2, 4])
def test_blocks_that_are_hidden(heads, monkeypatch):
    monkeypatch.setattr(attention_blocks, "LEAST_ROWS", 16)

    def program(q, k, v):
        mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 10), None, None, 64, 64, "cpu")
        return flex_attention(q, k, v, alibi if heads == 2 else None, mask, enable_gqa=True, return_lse=True)

    given = inputs(64, heads)
    torch.testing.assert_close(dovetail.compile(program, fullgraph=True)(*given), program(*given))


def test_what_is_refused():
    seen = []

    def notes(score, b, h, i, j):
        seen.append(1)
        return score

    def writes(b, h, i, j):
        return (i - j).add_(5) > 0

    q, k, v = inputs()
    masked = lambda q: flex_attention(q, k, v, block_mask=create_block_mask(writes, None, None, 48, 48, "cpu"))
    assert refused(masked, q) == "side-effect-in-subgraph"
    assert refused(lambda q: flex_attention(q, k, v, lambda *_: 0.0), q) == "attention-function"
    assert refused(lambda q: flex_attention(q, k, v, notes), q) == "side-effect-in-subgraph"
