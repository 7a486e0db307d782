"""Sizes that change from call to call, on a CUDA device: few compilations, recordings for sizes that come back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dovetail

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
]


CASES = {
    "pointwise": lambda x: (x.sin() * 2).t().contiguous() + 1,
    "rows": lambda x: torch.softmax(F.layer_norm(x, x.shape[-1:]), -1),
    "columns": lambda x: (x.sum(0), x.mean()),
    "products": lambda x: F.relu(x @ x.t()) + 1,
    "concatenated": lambda x: torch.cat([x, x * 2], 1).cumsum(-1),
    "made": lambda x: torch.arange(x.shape[0], device="cuda")[:, None] * x,
}


@pytest.mark.parametrize("name", CASES)
def test_any_size(name):
    fn, compiled = CASES[name], dovetail.compile(CASES[name], dynamic=True)
    for _ in range(3):
        for sizes in ((5, 40), (300, 7), (1, 1), (64, 64), (3, 5000), (17, 1030)):
            x = torch.randn(sizes, device="cuda")
            torch.testing.assert_close(compiled(x), fn(x), rtol=1e-3, atol=1e-3)


def test_more_sizes_than_recordings():
    """Each result is its own size's, whether its graph is replayed, recorded or left out."""
    compiled = dovetail.compile(lambda x: (x * 2).sum(0) + 1, dynamic=True)
    for _ in range(3):
        for n in range(2, 22):
            x = torch.ones(n, 8, device="cuda")
            torch.testing.assert_close(compiled(x), torch.full((8,), 2.0 * n + 1, device="cuda"))


def test_sizes_given_as_numbers():
    compiled = dovetail.compile(lambda x, n: torch.ones(n, device="cuda") * x.sum(), dynamic=True)
    x = torch.ones(4, device="cuda")
    for n in (3, 5, 3, 5, 3, 5, 9, 3):
        torch.testing.assert_close(compiled(x, n), torch.full((n,), 4.0, device="cuda"))


def test_training():
    """Batches of different sizes, with dropout off: losses are eager's."""
    def losses(compiler):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 1)).cuda()
        optimizer, compiled = torch.optim.SGD(model.parameters(), lr=0.05), compiler(model)
        found = []
        for k in range(24):
            x = torch.randn(8 + k % 4 * 5, 16, device="cuda")
            optimizer.zero_grad()
            loss = F.mse_loss(compiled(x), x[:, :1])
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    ours = losses(lambda model: dovetail.compile(model, dynamic=True))
    torch.testing.assert_close(ours, losses(lambda model: model), rtol=1e-3, atol=1e-4)
