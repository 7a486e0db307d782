"""Triton kernels of the program's in compiled functions on a CUDA device: tuned ones, in CUDA graphs, in training."""

from __future__ import annotations

import pytest
import torch

import dovetail

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


# Where its output is its input, every trial would multiply again.
@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"], restore_value=["out"]
)
@triton.jit
def tuned(x, out, n, k, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n) * k, mask=places < n)


@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def rows_softmax(x, out, n, row, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    places = tl.arange(0, BLOCK)
    if EVEN:
        found = tl.load(x + tl.program_id(0) * row + places)
    else:
        found = tl.load(x + tl.program_id(0) * row + places, mask=places < n, other=float("-inf"))
    found = tl.exp(found - tl.max(found, 0))
    tl.store(out + tl.program_id(0) * row + places, found / tl.sum(found, 0), mask=places < n)


@triton.jit
def norm_forward(x, weight, out, scale, n, eps, BLOCK: tl.constexpr):
    row, places = tl.program_id(0), tl.arange(0, BLOCK)
    found = tl.load(x + row * n + places, mask=places < n, other=0.0)
    by = 1 / tl.sqrt(tl.sum(found * found, 0) / n + eps)
    tl.store(scale + row, by)
    tl.store(out + row * n + places, found * by * tl.load(weight + places, mask=places < n), mask=places < n)


@triton.jit
def norm_backward(x, weight, scale, gradient, to_x, to_weight, n, BLOCK: tl.constexpr):
    row, places = tl.program_id(0), tl.arange(0, BLOCK)
    found = tl.load(x + row * n + places, mask=places < n, other=0.0)
    given = tl.load(gradient + row * n + places, mask=places < n, other=0.0)
    by, factor = tl.load(scale + row), tl.load(weight + places, mask=places < n, other=0.0)
    inner = given * factor
    tl.store(to_x + row * n + places, by * (inner - found * by * by * tl.sum(inner * found, 0) / n), mask=places < n)
    tl.atomic_add(to_weight + places, given * found * by, mask=places < n)


@triton.jit
def loss_in_place(x, target, loss, n, BLOCK: tl.constexpr):
    """Puts the gradient where the logits were."""
    row, places = tl.program_id(0), tl.arange(0, BLOCK)
    found = tl.load(x + row * n + places, mask=places < n, other=float("-inf"))
    right = tl.load(target + row)
    above = tl.exp(found - tl.max(found, 0))
    total = tl.sum(above, 0)
    tl.store(loss + row, tl.log(total) + tl.max(found, 0) - tl.sum(tl.where(places == right, found, 0.0), 0))
    tl.store(x + row * n + places, above / total - tl.where(places == right, 1.0, 0.0), mask=places < n)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        out, scale = torch.empty_like(x), torch.empty(len(x), device=x.device)
        norm_forward[(len(x),)](x, weight, out, scale, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, weight, scale = ctx.saved_tensors
        to_x, to_weight, n = torch.empty_like(x), torch.zeros_like(weight), x.shape[1]
        block = triton.next_power_of_2(n)
        norm_backward[(len(x),)](x, weight, scale, gradient.contiguous(), to_x, to_weight, n, BLOCK=block)
        return to_x, to_weight


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        loss, n = torch.empty(len(x), device=x.device), x.shape[1]
        loss_in_place[(len(x),)](x, target, loss, n, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x)
        return loss.mean()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return x * (gradient / len(x)), None


def multiplied(x, k):
    out, n = torch.empty_like(x), x.numel()
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, k)
    return out


def softmax(x):
    out = torch.empty_like(x)
    rows_softmax[(len(x),)](x, out, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


PROGRAMS = {
    "tuned": lambda x: multiplied(x.sin() + 1, 3.0).cos() * 2,
    "heuristics": lambda x: softmax(x * 2) @ x.t(),
    "in place": lambda x: [y := x + 1, tuned[(triton.cdiv(y.numel(), 64),)](y, y, y.numel(), 2.0), y * 2][2],
}


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, mode):
    fn = PROGRAMS[name]
    compiled = dovetail.compile(fn, fullgraph=True, mode=mode)
    for rows, width in [(8, 100)] * 5 + [(16, 128)] * 4:
        x = torch.randn(rows, width, device="cuda")
        torch.testing.assert_close(compiled(x.clone()), fn(x.clone()))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_training(mode):
    torch.manual_seed(0)
    make = lambda: torch.nn.Sequential(torch.nn.Linear(96, 100), torch.nn.GELU(), torch.nn.Linear(100, 40)).cuda()
    model, twin = make(), make()
    twin.load_state_dict(model.state_dict())

    def loss_of(model, weight, x, target):
        return Loss.apply(model[2](Norm.apply(model[1](model[0](x)), weight)), target)

    compiled = dovetail.compile(loss_of, fullgraph=True, mode=mode)
    weights = [torch.ones(100, device="cuda", requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([*m.parameters(), w], 0.1) for m, w in zip((model, twin), weights)]
    for _ in range(6):
        x, target = torch.randn(32, 96, device="cuda"), torch.randint(0, 40, (32,), device="cuda")
        mine = compiled(model, weights[0], x, target)
        wanted = torch.nn.functional.cross_entropy(
            twin[2](torch.nn.functional.rms_norm(twin[1](twin[0](x)), (100,), weights[1], 1e-6)), target
        )
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-4)
        for loss, optimizer in zip((mine, wanted), optimizers):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close([*model.parameters()], [*twin.parameters()], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-4)
