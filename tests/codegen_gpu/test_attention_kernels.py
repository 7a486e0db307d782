"""`flex_attention` by kernels of its own, under Triton's interpreter against `float64`; and as machine code."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dovetail
from benchmarks import flex as benchmark
from dovetail.attention import fused
from dovetail.attention import ranges as known
from dovetail.attention.ranges import Grid, ranges
from dovetail.codegen.gpu import attention as templates
from dovetail.ir.attention import Tiles
from dovetail.ir.gpus import GPUS
from dovetail.ir.template import template_of
from dovetail.runtime.gpu import templates as launches
from dovetail.runtime.gpu.loading import to_binary
from tests.codegen_gpu.interpreter import launched_template

SLOPES = torch.tensor([0.5, 0.25, 1.0, -0.125])
BIAS = torch.linspace(-1, 1, 4 * 140).reshape(4, 140).t()
DOCUMENTS = torch.arange(70) // 30
HOST = torch.device("cpu")
CHOSEN = templates.blocks


@pytest.fixture
def launched(monkeypatch):
    """The texts of kernels that have run; blocks of 16 places."""
    ran = []

    def run(given, code, sizes):
        ran.append(code)
        return launched_template(given, code, sizes)

    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)  # eager mode compiles, too
    monkeypatch.setattr(fused, "on_gpu", lambda _: True)
    monkeypatch.setattr(templates, "blocks", lambda *_: Tiles(16, 16, 4, 1))
    monkeypatch.setattr(launches, "run", run)
    return ran


def inputs(rows=48, keys=48, heads=(2, 2), widths=(16, 16), dtype=torch.float32):
    torch.manual_seed(0)
    query = torch.randn(2, rows, heads[0], widths[0]).transpose(1, 2)
    return [query.to(dtype), *(torch.randn(2, heads[1], keys, width, dtype=dtype) for width in widths)]


def case(mask_mod, score_mod=None, scale=None, **sizes):
    """A program, and what `inputs` is to be told."""
    rows, keys = sizes.get("rows", 48), sizes.get("keys", 48)
    mask = None if mask_mod is None else create_block_mask(mask_mod, None, None, rows, keys, "cpu")
    return lambda q, k, v: flex_attention(q, k, v, score_mod, mask, scale, enable_gqa=True), sizes


def window(b, h, i, j):
    return (i >= j) & (i - j < 20)


def documents(b, h, i, j):
    return (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j)


def odd_rows(b, h, i, j):
    """The others see nothing."""
    return (i % 2 == 1) & (i >= j) & (h != b)


def alibi(score, b, h, i, j):
    return score + SLOPES[h] * (j - i)


def capped(score, b, h, i, j):
    return 5 * torch.tanh(score / 5) + BIAS[i - j + 69, h] + torch.where(DOCUMENTS[j] == 0, 0.5, score * score)


def looked_up(score, b, h, i, j):
    """At indices of which nothing is known."""
    rank = (i - j).abs().float().add(1).log2().to(torch.int64).clamp(max=3)
    return capped(score, b, h, i, j) + BIAS[DOCUMENTS[i], h] + SLOPES[rank]


def logarithms(q, k, v):
    out, lse = flex_attention(q, k, v, alibi, return_lse=True, enable_gqa=True)
    return torch.cat([out, torch.where(lse == -torch.inf, 0, lse)[..., None]], -1)


CASES = {
    "plain": case(None),
    "window": case(window, alibi),
    "window, uneven": case(window, alibi, 0.7, rows=41, keys=70),
    "causal": case(lambda b, h, i, j: i >= j, rows=70, keys=64),
    "documents": case(documents, looked_up, rows=50, keys=70),
    "nothing seen": case(odd_rows, rows=32),
    "shared heads": case(window, alibi, heads=(4, 2), widths=(32, 16)),
    "one shared head": case(None, capped, heads=(4, 1), widths=(16, 32)),
    "logarithms": (logarithms, {"heads": (4, 2), "rows": 37}),
    "few rows, uneven widths": case(lambda b, h, i, j: i + 3 >= j, alibi, rows=17, widths=(24, 5)),
}


@pytest.mark.parametrize("name", ["plain", "shared heads", "nothing seen", "few rows, uneven widths"])
def test_without_gradients(name, launched):
    program, sizes = CASES[name]
    args = inputs(**sizes)
    got = dovetail.compile(program, fullgraph=True)(*args)
    assert len(launched) == 1
    want = program(*(a.double() for a in args))
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
    assert got.stride() == program(*args).stride()


def trained(program, args, weights):
    """The result and the gradients."""
    leaves = [a.detach().requires_grad_() for a in args]
    out = program(*leaves)
    return out.detach(), torch.autograd.grad((out * weights[: out.numel()].view_as(out)).sum(), leaves)


def gradients(program, args, weights):
    return trained(program, args, weights)[1]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name, launched):
    program, sizes = CASES[name]
    args, weights = inputs(**sizes), torch.linspace(-1, 1, 1 << 15)
    out, got = trained(dovetail.compile(program, fullgraph=True), args, weights)
    assert len(launched) == 3
    expected, want = trained(program, [a.double() for a in args], weights.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for mine, theirs, given in zip(got, want, args, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=2e-5)
        assert mine.stride() == given.stride()


#: Functions that read tables: the same for all rows, for all keys, or neither.
LEARNED = {
    "rows and keys": lambda t: (
        lambda score, b, h, i, j: (
            torch.tanh(score * t["number"] + t["rows"][b, j]) + t["heads"][h] * (j - i) + t["rows"][b, DOCUMENTS[i]]
        )
    ),
    "both": lambda t: (
        lambda score, b, h, i, j: (
            score
            + t["differences"][i - j + 47, h]
            + t["scores"][h, i, j] * t["scores"][h, j, i]
            + t["heads"][2 * h % 2]
        )
    ),
}
TABLES = {"number": (), "heads": (2,), "rows": (2, 48), "differences": (95, 2), "scores": (2, 48, 48)}


def dense(q, k, v, score_mod, mask_mod):
    """All places at once; PyTorch's own function cannot differentiate all of `LEARNED`."""
    b, h, i, j = torch.meshgrid(*map(torch.arange, (*q.shape[:3], k.shape[2])), indexing="ij")
    scores = score_mod(q @ k.mT / q.shape[3] ** 0.5, b, h, i, j)
    return torch.where(mask_mod(b, h, i, j), scores, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("name", LEARNED)
def test_tables_with_gradients(name, launched):
    mask = create_block_mask(window, None, None, 41, 48, "cpu")

    def outcome(function, dtype):
        torch.manual_seed(1)
        tables = {n: torch.randn(s, dtype=torch.float64).to(dtype).requires_grad_() for n, s in TABLES.items()}
        leaves = [*(t.to(dtype).requires_grad_() for t in inputs(rows=41)), *tables.values()]
        out = function(*leaves[:3], tables)
        loss = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum()
        return [out.detach(), *torch.autograd.grad(loss, leaves, allow_unused=True)]

    fused = dovetail.compile(lambda q, k, v, t: flex_attention(q, k, v, LEARNED[name](t), mask), fullgraph=True)
    got = outcome(fused, torch.float32)
    assert len(launched) == 3
    want = outcome(lambda q, k, v, t: dense(q, k, v, LEARNED[name](t), window), torch.float64)
    for mine, theirs in zip(got, want, strict=True):
        if mine is None or theirs is None:
            assert not any(t.any() for t in (mine, theirs) if t is not None)
        else:
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=2e-4)


LENGTHS, OFTEN = torch.tensor([13, 30]), torch.arange(70) % 3


def by_heads(b, h, i, j):
    """Of which nothing is known before it is asked."""
    return torch.where(h == 0, (j < LENGTHS[b]) & (i >= j), OFTEN[j // 16] == OFTEN[i // 16])


def test_blocks_that_are_found_out(launched, monkeypatch):
    monkeypatch.setattr(known, "FEWEST_UNKNOWN", 1)
    monkeypatch.setattr(templates, "blocks", lambda kind, *_: Tiles(*((32, 16) if kind != "key" else (16, 32)), 4, 1))
    layer, sizes = case(by_heads, alibi, heads=(2, 1), rows=33, keys=34)
    program = lambda q, k, v: layer(layer(q, k, v), k, v)
    args, weights = inputs(**sizes), torch.linspace(-1, 1, 1 << 15)
    got = gradients(dovetail.compile(program, fullgraph=True), args, weights)
    kinds = [template_of(code).symbol.rpartition("_")[0].removeprefix("attention_") for code in launched]
    assert sorted(kinds) == [
        *"forward forward key_gradients key_gradients lists lists query_gradient query_gradient squares".split()
    ]  # layers of the same mask, and kernels of the same blocks, share what is known of it
    want = gradients(program, [a.double() for a in args], weights.double())
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half(dtype, launched):
    """As exact as products of rounded numbers are, summed in float32."""
    program, _ = CASES["window"]
    args, weights = inputs(dtype=dtype), torch.linspace(-1, 1, 1 << 15)
    compiled = dovetail.compile(program, fullgraph=True)
    got = [compiled(*args), *gradients(compiled, args, weights.to(dtype))]
    exact = [a.double() for a in args]
    want = [program(*exact), *gradients(program, exact, weights.to(dtype).double())]
    assert len(launched) == 4 and got[0].dtype is dtype
    for mine, theirs in zip(got, want, strict=True):
        assert float((mine.double() - theirs).abs().max() / theirs.abs().max()) < 3 * torch.finfo(dtype).eps


def test_autocast(launched):
    program, _ = CASES["window"]
    with torch.autocast("cpu", torch.bfloat16):
        got = dovetail.compile(program, fullgraph=True)(*inputs())
    assert launched and got.dtype is torch.bfloat16


def changed_table_with_gradient(q, k, v):
    table = q.mean((0, 2, 3))
    return flex_attention(q, k, v, lambda score, b, h, i, j: score + table.exp()[h])


def a_row_for_each(q, k, v):
    return flex_attention(q, k, v, lambda score, b, h, i, j: score + BIAS[i].sum())


LEFT = {
    "too wide": (CASES["plain"][0], {"widths": (272, 16)}),
    "float64": (CASES["plain"][0], {"dtype": torch.float64}),
    "a row": (CASES["plain"][0], {"rows": 1}),
    "a table with a gradient, changed": (changed_table_with_gradient, {}),
    "more than an element": (a_row_for_each, {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_left_to_products(name, launched):
    program, sizes = LEFT[name]
    args, weights = inputs(**sizes), torch.linspace(-1, 1, 1 << 15)
    got = gradients(dovetail.compile(program, fullgraph=True), args, weights)
    assert not launched
    torch.testing.assert_close(got, gradients(program, args, weights), rtol=1e-4, atol=1e-5)


def test_a_size_that_varies_is_left_to_products(launched):
    compiled = dovetail.compile(CASES["plain"][0], dynamic=True)
    for rows in 20, 24, 28:
        args = inputs(rows, rows)
        torch.testing.assert_close(compiled(*args), CASES["plain"][0](*args))


@pytest.mark.parametrize("setting", [{"check_kernels": True}, {"numerics": "eager"}])
def test_settings_that_kernels_do_not_heed(setting, launched):
    with dovetail.config.patch(**setting):
        dovetail.compile(CASES["plain"][0])(*inputs())
    assert not launched


@pytest.mark.parametrize("capability, width, dtype", [
    ((8, 6), 256, torch.float32), ((9, 0), 64, torch.bfloat16), ((9, 0), 128, torch.bfloat16),
])  # fmt: skip
def test_machine_code(capability, width, dtype, monkeypatch, launched):
    known = GPUS[capability]
    monkeypatch.setattr(templates, "blocks", CHOSEN)
    monkeypatch.setattr(fused, "gpu", lambda device: known)
    monkeypatch.setattr(launches, "run", lambda given, code, sizes: launched.append(code) or zeros(code))
    args = inputs(256, 256, widths=(width, width), dtype=dtype)
    program, _ = case(window, alibi, rows=256, keys=256)
    gradients(dovetail.compile(program), args, torch.ones(1, dtype=dtype).expand(1 << 20))
    kernels = [launches.kernel_of(template_of(code), HOST) for code in launched]
    first, second = capability
    assert len(kernels) == 3 and all(to_binary(k, 10 * first + second).shared <= known.shared for k in kernels)


def test_the_benchmark_is_taken(monkeypatch, launched):
    monkeypatch.setattr(launches, "run", lambda given, code, sizes: launched.append(code) or zeros(code))
    program = benchmark.program("cpu", (1, 16, 256, 64), 64)
    tensors = [torch.randn(1, 16, 256, 64, dtype=torch.bfloat16) for _ in range(3)]
    compiled = dovetail.compile(program, fullgraph=True)
    benchmark.passes(compiled, tensors, False)()
    assert len(launched) == 1
    benchmark.passes(compiled, [t.requires_grad_() for t in tensors], True)()
    assert len(launched) == 4


def zeros(code):
    made = template_of(code).results
    return [torch.zeros(r.sizes, dtype=r.type).as_strided(r.sizes, r.strides) for r in made]


def test_blocks_of_places():
    """Which are hidden, and which are seen in full."""
    (mask_mod,) = [torch.fx.symbolic_trace(lambda b, h, i, j: ((i >= j) & (i - j < 32),))]
    rows = ranges(mask_mod, Grid((1, 1, 64, 64), 16, 8))
    assert rows.full and rows.part
    assert rows.table == (0, 0, 0, 2, 0, 0, 2, 4, 0, 2, 4, 6, 2, 4, 6, 8)
    keys = ranges(mask_mod, Grid((1, 1, 60, 64), 16, 8, across=True))
    assert keys.table[:8] == (0, 1, 2, 3, 0, 1, 2, 3) and keys.table[-4:] == (3, 3, 3, 4)
