"""Adding and writing at indices on a CUDA device: as eager does, and the same in each call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
]

ROWS, WIDTH, COUNT = 5000, 96, 9000


def places(kind):
    found = torch.randint(0, ROWS, (COUNT,), device="cuda")
    if kind == "mostly one":
        found[torch.rand(COUNT, device="cuda") < 0.7] = 17
    return found.fill_(ROWS - 1) if kind == "one" else found


PROGRAMS = {
    "embedding": lambda x, i: torch.ops.aten.embedding_dense_backward(x, i, ROWS, -1, False),
    "padding": lambda x, i: torch.ops.aten.embedding_dense_backward(x, i, ROWS, 17, False).sin(),
    "index_add": lambda x, i: x.new_zeros(ROWS, WIDTH).index_add(0, i, x.exp()),
    "scatter_add": lambda x, i: x.new_zeros(ROWS, WIDTH).scatter_add(0, i[:, None].expand(-1, WIDTH), x),
    "index_put": lambda x, i: x.new_zeros(ROWS // 50 + 1, 50, WIDTH).index_put([i // 50, i % 50], x, True),
    "elements": lambda x, i: x.new_zeros(ROWS).index_put([i], x[:, 0], True),
    "few": lambda x, i: x.new_zeros(4, ROWS).scatter_add(1, i[:4, None], x[:4]),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["all", "mostly one", "one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums(name, kind, dtype):
    fn = PROGRAMS[name]
    compiled = dovetail.compile(fn)
    for _ in range(3):
        x, i = torch.randn(COUNT, WIDTH, device="cuda", dtype=dtype), places(kind)
        got, want = compiled(x, i), fn(x.double(), i)
        tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance * COUNT**0.5)
        assert torch.equal(compiled(x, i), got)


def test_gradients_of_a_model():
    def loss(table, words):
        hidden = F.embedding(words, table, padding_idx=0)
        return (hidden.tanh() @ table.t()).logsumexp(-1).mean()

    words = places("mostly one").reshape(90, 100) % 700
    mine, theirs = (torch.linspace(-1, 1, 700 * WIDTH, device="cuda").view(700, WIDTH).requires_grad_() for _ in "ab")
    compiled = dovetail.compile(loss)
    for _ in range(3):
        compiled(mine, words).backward()
        loss(theirs, words).backward()
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_a_cache_stays_where_it_is():
    def step(cache, new, at):
        cache.index_copy_(1, at, new)
        return (cache * 2).sum(1)

    compiled = dovetail.compile(step)
    mine, theirs = (torch.zeros(4, 600, 64, device="cuda") for _ in "ab")
    before = torch.cuda.memory_allocated()
    for k in range(6):
        new, at = torch.randn(4, 1, 64, device="cuda"), torch.tensor([k * 7], device="cuda")
        torch.testing.assert_close(compiled(mine, new, at), step(theirs, new, at))
        assert torch.equal(mine, theirs)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < mine.nbytes
