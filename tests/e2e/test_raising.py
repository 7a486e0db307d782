"""Graphs that raise while they run: everything that shows is then as in eager mode."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import dovetail

FAR = torch.tensor([7])
PROGRAMS = {
    "writes to an input": "x += 1; log.append(1); return x[i]",
    "writes to a view": "x[1:].add_(1); log.append(1); return x[i]",
    "writes through detach": "x.detach()[1:].add_(1); log.append(1); return x[i]",
    "writes through data": "x.data.mul_(3); log.append(1); return x[i]",
    "draws": "y = torch.rand(3); log.append(1); return y[i]",
    "draws after": "y = x[i]; log.append(1); return y + torch.rand(1)",
    "draws and writes": "x.uniform_(); y = F.dropout(x); log.append(1); return y[i], torch.rand(2)",
    "handles": "x += torch.rand(3)\n    try: return x[i]\n    except IndexError as e: log.append(str(e))",
    "only the kernel refuses": "x += 1; log.append(1); return torch.rand_like(i)",
    "library": "x += torch.rand(3); log.append(1); return torch.linalg.cholesky(-x.outer(x) - 1)",
    "before and after": "x.add_(1); log.append(1); y = torch.linalg.inv(x * 0 * x[:, None]); x.add_(y[0]); return y",
    "target": "x += 1; log.append(1); return F.cross_entropy(x[None], i)",
    "norm": "log.append(1); y = F.batch_norm(x[:, None], *s, training=True); return y[i]",
    "embedding": "log.append(1); return F.embedding(i, F.dropout(x[:, None]), max_norm=1.0)",
}


def outcome(function, size, log, s):
    torch.manual_seed(0)
    x, error = torch.arange(1.0, size + 1), None
    try:
        found = function(x, FAR)
    except (RuntimeError, IndexError) as raised:
        found, error = None, (type(raised), str(raised))
    return error, list(log), found, x, s, torch.get_rng_state(), x._version


@pytest.mark.filterwarnings("ignore:dovetail runs")
@pytest.mark.parametrize("backend", ["aot_eager", "dovetail"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_is_as_in_eager_mode(name, backend):
    log: list = []
    s = [torch.zeros(1), torch.ones(1)]
    names = {"torch": torch, "F": F, "log": log, "s": s}
    exec(f"def program(x, i):\n    {PROGRAMS[name]}", names)
    found = []
    for function in (names["program"], dovetail.compile(names["program"], dynamic=False, backend=backend)):
        for _ in range(2):
            log.clear()
            s[:] = torch.zeros(1), torch.ones(1)
            found.append(outcome(function, 3, log, list(s)))
    for mine in found[1:]:
        assert mine[:2] == found[0][:2]
        torch.testing.assert_close(mine[2:], found[0][2:], rtol=0, atol=0)


def test_training():
    layer = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 2))
    log = []

    def step(x, target):
        log.append(1)
        return F.cross_entropy(layer(x), target)

    def after(function):
        torch.manual_seed(0)
        log.clear()
        layer[0].reset_running_stats()
        with pytest.raises(IndexError, match="out of bounds") as caught:
            function(torch.arange(12.0).view(4, 3), torch.tensor([0, 1, 2, 0]))
        return str(caught.value), list(log), torch.get_rng_state(), layer[0].running_mean.clone()

    expected, found = after(step), after(dovetail.compile(step))
    assert found[:2] == expected[:2]
    torch.testing.assert_close(found[2:], expected[2:])


def test_writes_to_a_part_of_what_is_read():
    def program(x):
        print("before")
        x.add_(1)
        x[1:3] += x[2]

    found = []
    for function in (program, dovetail.compile(program)):
        x, out = torch.ones(4), io.StringIO()
        with contextlib.redirect_stdout(out), pytest.raises(RuntimeError, match="single memory location"):
            function(x)
        found.append((out.getvalue(), x.tolist()))
    assert found[0] == found[1]


# ---------------------------------------------------------------- operators of a program's own

MADE: list[int] = []


@torch.library.custom_op("raising::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    MADE.append(1)
    return x.clone()


@noted.register_fake
def _(x):
    return torch.empty_like(x)


noted.register_autograd(lambda ctx, gradient: gradient)


class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return noted(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1


OWN = {
    "a packet": lambda x, i: torch.ops.raising.noted(x.sin())[i],
    "an overload": lambda x, i: torch.ops.raising.noted.default(x.sin())[i],
    "a checkpoint": lambda x, i: checkpoint(lambda t: noted(t.sin()), x, use_reentrant=False)[i],
    "a branch": lambda x, i: torch.cond(x.sum() > 0, lambda t: noted(t.sin()), lambda t: t.cos(), (x,))[i],
    "a function": lambda x, i: Noted.apply(x)[i],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", OWN)
def test_an_operator_whose_effects_nobody_knows_is_not_run_again(name, grad):
    program = OWN[name]
    compiled = dovetail.compile(program, fullgraph=True)
    x = torch.arange(1.0, 5).requires_grad_(grad)
    compiled(x, torch.tensor([1, 2]))
    MADE.clear()
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, FAR)
    assert len(MADE) == 1
