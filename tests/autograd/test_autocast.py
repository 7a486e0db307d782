"""Training with autocast outside, inside and around the compiled function, with GradScaler, and with checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import dovetail

BACKENDS = ("dovetail", "aot_eager", "eager")


def bf16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def fp16():
    return torch.autocast("cpu", dtype=torch.float16)


def plain(m, x, y):
    return F.mse_loss(m(x).float(), y)


def inside(m, x, y):
    with bf16():
        out = m(x)
    return F.mse_loss(out.float(), y)


def partly(m, x, y):
    with bf16():
        h = m[0](x)
        with torch.autocast("cpu", enabled=False):
            h = m[1](h.float())
        out = m[3](m[2](h))
    return F.mse_loss(out.float(), y)


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated(m, x, y):
    return F.mse_loss(m(x).float(), y)


def steps(call: Callable[..., Any], around: Callable[[], Any], scaler: Any = None) -> list[float]:
    """The losses, scales and last gradients of a short training."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        x, y = torch.randn(6, 8), torch.randn(6, 4)
        with around():
            loss = call(m, x, y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append(scaler.get_scale())
        assert all(p.dtype is torch.float32 and p.grad.dtype is torch.float32 for p in m.parameters())
        found.append(loss.item())
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("around", [contextlib.nullcontext, bf16, fp16], ids=["alone", "bf16", "fp16"])
@pytest.mark.parametrize("fn", [plain, inside, partly, decorated], ids=lambda f: f.__name__)
def test_losses(fn, around, backend):
    dovetail.reset()
    want = steps(fn, around)
    torch.testing.assert_close(steps(dovetail.compile(fn, backend=backend), around), want, rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("around", [bf16, fp16])
def test_scaled_gradients(around):
    def scaler():
        return torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=2)  # the first steps overflow

    dovetail.reset()
    want = steps(plain, around, scaler())
    assert len(set(want[::2])) > 1 or around is bf16
    torch.testing.assert_close(steps(dovetail.compile(plain), around, scaler()), want, rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("around", [bf16, fp16])
def test_a_scaler_inside_the_step(around, backend):
    """It unscales lists of gradients in place, and a step whose gradients overflow is left out."""
    def program(compiler):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=2)

        def step(x, y):
            optimizer.zero_grad()
            with around():
                loss = F.mse_loss(m(x).float(), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach(), norm

        call = compiler(step)
        found = [(call(torch.randn(6, 8), torch.randn(6, 4)), scaler.get_scale()) for _ in range(5)]
        return found, list(m.parameters()), scaler.state_dict()

    dovetail.reset()
    want = program(lambda fn: fn)
    got = program(lambda fn: dovetail.compile(fn, backend=backend))
    torch.testing.assert_close(got, want, rtol=5e-3, atol=1e-3, equal_nan=True)


def test_the_types_of_results_follow_the_state_outside():
    def fn(x, w):
        with bf16():
            a = x @ w
        b = x @ w
        return a, b, a + b

    x, w = torch.randn(3, 3), torch.randn(3, 3)
    compiled = dovetail.compile(fn)
    for around in (contextlib.nullcontext, bf16, fp16, contextlib.nullcontext):
        with around():
            want, got = fn(x, w), compiled(x, w)
        assert [t.dtype for t in got] == [t.dtype for t in want]
        torch.testing.assert_close(got, want)


def test_a_backward_pass_under_autocast():
    """Its products have the types that they were recorded with."""
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    loss = dovetail.compile(lambda x, w: (x @ w).sin().sum())(x, w)
    with fp16():
        loss.backward()
    torch.testing.assert_close(x.grad, (x @ w).cos() @ w.t())
    assert x.grad.dtype is torch.float32


# ---------------------------------------------------------------- checkpoints


def saved_bytes(fn: Callable[..., Any], *args: Any) -> tuple[int, torch.Tensor]:
    """How much memory a call keeps for the backward pass, and its result."""
    kept = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = fn(*args)
    return sum(kept.values()), result


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_keep_their_inputs_alone(reentrant, backend):
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.3))
    x = torch.randn(64, 32, requires_grad=True)

    def checkpointed(x):
        for _ in range(3):
            x = checkpoint(block, x, use_reentrant=reentrant)
        return x.sum()

    def step(fn):
        x.grad = None
        block.zero_grad()
        torch.manual_seed(1)
        size, result = saved_bytes(fn, x)
        result.backward()
        return size, [result.detach(), x.grad, *(p.grad for p in block.parameters())]

    dovetail.reset()
    compiled = dovetail.compile(checkpointed, backend=backend)
    compiled(x)
    size, got = step(compiled)
    eager, want = step(checkpointed)
    torch.testing.assert_close(got, want)
    unseen = 3 * torch.get_rng_state().nbytes + sum(p.nbytes for p in block.parameters())  # eager keeps these elsewhere
    assert size <= eager + unseen and eager < step(lambda x: block(block(block(x))).sum())[0] / 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoints_under_autocast_that_run_to_their_end(backend):
    def step(compiler):
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))

        def fn(x):
            with set_checkpoint_early_stop(False), bf16():
                return checkpoint(block, x, use_reentrant=False).float().sum()

        loss = compiler(fn)(torch.ones(3, 4))
        loss.backward()
        return loss.detach(), [p.grad for p in block.parameters()]

    dovetail.reset()
    got = step(lambda fn: dovetail.compile(fn, backend=backend))
    torch.testing.assert_close(got, step(lambda fn: fn), rtol=5e-3, atol=1e-3)
