"""Random numbers that kernels draw on a CUDA device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import dovetail

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_programs_are_recorded"),
]


def _ones(*sizes, **kwargs):
    return torch.ones(*sizes, device="cuda", **kwargs)


DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout of channels": lambda x: F.dropout2d(x[:, :, None, None].expand(-1, -1, 2, 2), 0.5),
    "rand": lambda x: x + torch.rand_like(x),
    "randn": lambda x: x + torch.randn(x.shape, device="cuda"),
    "bernoulli": lambda x: torch.bernoulli(x * 0.3),
    "randint": lambda x: torch.randint(0, 100, x.shape, device="cuda"),
    "exponential": lambda x: torch.empty_like(x).exponential_(),
    "bfloat16": lambda x: F.dropout(x.bfloat16(), 0.5),
    "permutation": lambda x: x[torch.randperm(len(x), device="cuda")] + torch.rand_like(x),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_tells_all_numbers(name):
    """Plain calls, the recorded one and replays: each draws others, the same ones after the same seed."""
    fn, x = DRAWS[name], _ones(64, 100)

    def drawn():
        compiled = dovetail.compile(fn)
        torch.manual_seed(7)
        found = [compiled(x).clone() for _ in range(5)]
        torch.manual_seed(7)
        return found, compiled(x).clone()

    first, again = drawn()
    for k in range(4):
        assert not torch.equal(first[k], first[k + 1])
    assert torch.equal(first[0], again)
    dovetail.reset()
    for one, other in zip(first, drawn()[0], strict=True):
        assert torch.equal(one, other)


def test_both_halves_of_a_step_use_one_mask():
    compiled = dovetail.compile(lambda x: F.dropout(x.exp(), 0.25).log1p())
    masks = []
    for _ in range(6):
        x = torch.zeros(10000, device="cuda", requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(y != 0, x.grad != 0)
        assert 0.7 < (y != 0).float().mean() < 0.8
        masks.append(y.detach() != 0)
    assert all(not torch.equal(a, b) for a, b in zip(masks, masks[1:], strict=False))


def test_checkpoints():
    inner = dovetail.compile(lambda x: F.dropout(x.exp(), 0.5))
    for _ in range(4):
        x = torch.zeros(1000, device="cuda", requires_grad=True)
        y = checkpoint(inner, x, use_reentrant=False)
        y.sum().backward()
        torch.testing.assert_close(x.grad, y.detach())


def test_moments():
    n = 1 << 20
    uniform, normal = dovetail.compile(lambda x: (torch.rand_like(x), torch.randn_like(x)))(_ones(n))
    assert abs(uniform.mean() - 0.5) < 2e-3 and abs(uniform.var() - 1 / 12) < 1e-3 and 0 <= uniform.min()
    assert uniform.max() < 1 and abs(normal.mean()) < 6e-3 and abs(normal.var() - 1) < 1e-2


def test_a_training_step_draws_once_and_trains():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 64), torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 1),
    ).cuda()  # fmt: skip
    compiled, optimizer = dovetail.compile(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(256, 32, device="cuda")
    y, losses = x[:, :1].sin(), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.mse_loss(compiled(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])


def test_eagers_numbers_on_request():
    compiled = dovetail.compile(lambda x: F.dropout(x, 0.3) + torch.rand_like(x), options={"fallback_random": True})
    x = _ones(1000)
    for seed in range(4):
        torch.manual_seed(seed)
        found = compiled(x).clone()
        torch.manual_seed(seed)
        torch.testing.assert_close(found, F.dropout(x, 0.3) + torch.rand_like(x))


def test_gradients_of_gradients_draw_eagers_numbers_again():
    compiled = dovetail.compile(lambda x: F.dropout(x**3, 0.5), options={"fallback_random": True})
    x = torch.full((1000,), 2.0, device="cuda", requires_grad=True)
    y = compiled(x)
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.equal(gradient != 0, y != 0)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second, torch.where(y != 0, 24.0, 0.0))
