"""`flex_attention` on a CPU by one kernel, against `float64`, for vectors of any width."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dovetail
from dovetail.codegen.cpu.attention import kernel
from dovetail.codegen.cpu.target import Processor, host
from dovetail.ir.template import template_of
from dovetail.runtime.cpu import templates as launches
from tests.fuzz.beside_exact import SLACK, unlike

SLOPES = torch.tensor([0.5, 0.25, 1.0, -0.125, 0.0])
TABLE = torch.linspace(-1, 1, 5 * 400).reshape(5, 400)
DOCUMENTS = torch.arange(300) // 70
LENGTHS = torch.tensor([150, 70])
FAR = torch.tensor([1 << 62, 70])
PROCESSORS = {
    "here": host(), "wide": Processor(64, True), "middle": Processor(32, False), "narrow": Processor(16, False),
}  # fmt: skip


@pytest.fixture(params=PROCESSORS)
def processor(request, monkeypatch):
    monkeypatch.setattr(kernel, "host", lambda: PROCESSORS[request.param])


@pytest.fixture
def ran(monkeypatch):
    """The kernels that have run."""
    found, run = [], launches.run

    def noted(given, code, sizes):
        found.append(template_of(code, sizes))
        return run(given, code, sizes)

    monkeypatch.setattr(launches, "run", noted)
    return found


def inputs(rows=150, keys=150, heads=(4, 4), widths=(24, 24), dtype=torch.float32):
    torch.manual_seed(0)
    query = torch.randn(2, rows, heads[0], widths[0]).transpose(1, 2)
    return [query.to(dtype), *(torch.randn(2, heads[1], keys, width).to(dtype) for width in widths)]


def case(mask_mod=None, score_mod=None, scale=None, **sizes):
    """A program, and what `inputs` is to be told."""

    def program(q, k, v):
        rows, keys = q.shape[2], k.shape[2]
        mask = None if mask_mod is None else create_block_mask(mask_mod, 2, 4, rows, keys, "cpu")
        return flex_attention(q, k, v, score_mod, mask, scale, enable_gqa=True, return_lse=True)

    return program, sizes


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j < 40)


def documents(b, h, i, j):
    return (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j)


def odd_rows(b, h, i, j):
    """The others see nothing."""
    return (i % 2 == 1) & (i >= j) & (h != b)


def alibi(score, b, h, i, j):
    return score + SLOPES[h] * (j - i)


def capped(score, b, h, i, j):
    return 5 * torch.tanh(score / 5) + TABLE[h, i - j + 200] + torch.where(DOCUMENTS[j] == 0, 0.5, score * score)


def looked_up(score, b, h, i, j):
    """At indices of which nothing is known."""
    return score + TABLE[DOCUMENTS[i], j] * SLOPES[DOCUMENTS[j]]


def hidden_scores(score, b, h, i, j):
    return torch.where(i >= j, score, -torch.inf)


CASES = {
    "plain": case(), "causal": case(causal), "window": case(window, alibi), "documents": case(documents, capped),
    "empty rows": case(odd_rows, rows=70), "looked up": case(documents, looked_up), "hidden": case(None, hidden_scores),
    "groups": case(window, heads=(4, 2)), "fewer keys": case(causal, rows=150, keys=67), "one key": case(keys=1),
    "few rows": case(None, alibi, rows=16, keys=130), "scale": case(window, scale=-0.7),
    "widths": case(window, widths=(7, 33)), "wide": case(causal, widths=(130, 80), rows=70, keys=70),
}  # fmt: skip


def compared(program, given, dtype):
    got = dovetail.compile(program, fullgraph=True)(*given)
    with mock.patch("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, create=True):
        want, truth = program(*given), program(*(t.double() for t in given))  # torch.compile of it took half the time
    assert got[0].stride() == want[0].stride() and got[0].dtype is dtype
    return unlike(list(got), list(want), list(truth), SLACK[dtype])


@pytest.mark.parametrize("name", CASES)
def test_forward(name, processor, ran):
    program, sizes = CASES[name]
    assert not compared(program, inputs(**sizes), torch.float32)
    assert len(ran) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("halves", [True, False])
def test_narrow_types(dtype, halves, ran, monkeypatch):
    monkeypatch.setattr(kernel, "host", lambda: Processor(32, False, halves=halves))
    program, sizes = CASES["window"]
    assert not compared(program, inputs(**sizes, dtype=dtype), dtype)
    assert len(ran) == 1


def strided(q, k, v):
    """Neither begins where its memory does, and the last dimension has gaps."""
    return flex_attention(q[:, :, 3:], k.transpose(2, 3).contiguous().transpose(2, 3), v[..., ::2])


def test_layouts(ran):
    given = inputs()
    torch.testing.assert_close(dovetail.compile(strided, fullgraph=True)(*given), strided(*given), rtol=1e-5, atol=1e-5)
    assert len(ran) == 1


# ---------------------------------------------------------------- what is hidden

OFFSETS = torch.tensor([0, 5])
HIDING = {
    "window": window,
    "lengths": lambda b, h, i, j: j < LENGTHS[b],
    "far": lambda b, h, i, j: j + (1 << 40) < FAR[b] * 2,
    "shifted": lambda b, h, i, j: i - OFFSETS[b] >= j,
    "blocks": lambda b, h, i, j: i // 64 == j // 64,
    "scaled": lambda b, h, i, j: 2 * j <= i,
    "unlike": lambda b, h, i, j: ~((i < j) | (j // 64 != i // 64)),
    "heads": lambda b, h, i, j: (j < 64) | (h > 4),
    "documents": lambda b, h, i, j: DOCUMENTS[i] // 2 == DOCUMENTS[j] // 2,
    "short": lambda b, h, i, j: i.to(torch.int8) >= j.to(torch.int8),
    "table": lambda b, h, i, j: j <= DOCUMENTS[i],
    "rolled": lambda b, h, i, j: (i - j) % 200 < 3,
}


@pytest.mark.parametrize("name", HIDING)
def test_what_is_hidden(name, ran):
    assert not compared(case(HIDING[name])[0], inputs(rows=200, keys=200), torch.float32)
    assert len(ran) == 1


#: Keys that the first block of rows may read.
KEPT = {"window": 64, "shifted": 64, "blocks": 64, "scaled": 64, "unlike": 64, "heads": 64}
KEPT |= {"lengths": 192, "documents": 192}


@pytest.mark.parametrize("name", KEPT)
def test_hidden_blocks_are_left_out(name, ran, monkeypatch):
    """NaN in their values would show: it does in eager mode."""
    monkeypatch.setattr(kernel, "host", lambda: PROCESSORS["wide"])
    program, (q, k, v) = case(HIDING[name])[0], inputs(rows=200, keys=200)
    v[:, :, KEPT[name] :] = torch.nan
    got, want = dovetail.compile(program, fullgraph=True)(q, k, v)[0], program(q, k, v)[0]
    assert got[:, :, :64].isfinite().all() and not want[:, :, :64].isfinite().any()


def test_numbers_that_are_none(ran):
    """A row with NaN among its scores is NaN; infinity among values is what eager has of it."""
    q, k, v = inputs()
    k[0, 0, 3, 0], v[1, 1, 5, 2] = torch.nan, torch.inf
    program = case(causal)[0]
    got, want = dovetail.compile(program, fullgraph=True)(q, k, v)[0], program(q, k, v)[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


# ---------------------------------------------------------------- which calls


def test_an_index_out_of_bounds(ran):
    places = DOCUMENTS.clone()

    def program(q, k, v, places):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + SLOPES[places[j]])

    compiled = dovetail.compile(program, fullgraph=True)
    compiled(*inputs(), places)
    places[120] = 5
    for fn in (compiled, program):
        with pytest.raises(IndexError, match="index 5 is out of bounds"):
            fn(*inputs(), places)
    assert len(ran) == 2


def test_sizes_vary(ran):
    """One kernel serves all."""
    program = case(window, alibi)[0]
    compiled = dovetail.compile(program, fullgraph=True, dynamic=True)
    for rows, keys in ((150, 160), (64, 70), (17, 300)):
        given = inputs(rows, keys)
        torch.testing.assert_close(compiled(*given), program(*given), rtol=1e-4, atol=1e-4)
    assert len(ran) == 3 and len({each.symbol for each in ran}) == 1


def test_sizes_are_arguments(ran):
    for rows, keys in ((128, 192), (256, 320)):
        dovetail.compile(case(window, alibi)[0], fullgraph=True)(*inputs(rows, keys))
    assert len(ran) == 2 and len({each.symbol for each in ran}) == 1


LEFT = {
    "a few rows": (lambda q, k, v: flex_attention(q[:, :, :5], k, v), {}),
    "float64": (lambda q, k, v: flex_attention(q, k, v), {"dtype": torch.float64}),
    "more than an element": (lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + TABLE[h].sum()), {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_left_to_products(name, ran):
    program, sizes = LEFT[name]
    given = inputs(**sizes)
    torch.testing.assert_close(dovetail.compile(program, fullgraph=True)(*given), program(*given), rtol=1e-4, atol=1e-4)
    assert not ran


def test_a_table_with_gradients_is_left_to_products(ran):
    slopes = SLOPES.clone().requires_grad_()

    def program(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s * slopes[h])

    compiled = dovetail.compile(program, fullgraph=True)
    for fn in (compiled, program):
        (found,) = torch.autograd.grad(fn(*inputs()).sum(), slopes)
        assert found.isfinite().all() and found.any()
    assert not ran
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs()), program(*inputs()), rtol=1e-4, atol=1e-4)
    assert len(ran) == 1


@pytest.mark.parametrize("setting", [{"numerics": "eager"}, {"check_kernels": True}])
def test_settings_that_kernels_do_not_heed(setting, ran):
    with dovetail.config.patch(**setting):
        dovetail.compile(CASES["plain"][0], fullgraph=True)(*inputs())
    assert not ran

