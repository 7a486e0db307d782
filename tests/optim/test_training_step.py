"""A whole training step as one call: gradients, parameters, buffers and state as eager leaves them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dovetail


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.never = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        return self.last(F.gelu(self.norm(self.first(x))) * self.frozen)


def loss_of(mod, data):
    return F.cross_entropy(mod(data[0]), data[1])


def documented(mod, opt, data):
    opt.zero_grad(True)
    pred = mod(data[0])
    loss = torch.nn.CrossEntropyLoss()(pred, data[1])
    loss.backward()
    opt.step()


def returning_the_loss(mod, opt, data):
    opt.zero_grad()
    loss = loss_of(mod, data)
    loss.backward()
    opt.step()
    return loss


def accumulating(mod, opt, data):
    """No gradient is set back: each call adds to it in place."""
    loss = loss_of(mod, data)
    loss.backward()
    opt.step()
    return loss.detach()


def filled_with_zeros(mod, opt, data):
    opt.zero_grad(set_to_none=False)
    loss_of(mod, data).backward()
    opt.step()


def two_losses(mod, opt, data):
    opt.zero_grad()
    out = mod(data[0])
    F.cross_entropy(out, data[1]).backward(retain_graph=True)
    out.square().mean().backward()
    opt.step()
    return out.detach()


def given_a_gradient(mod, opt, data):
    opt.zero_grad()
    out = mod(data[0])
    out.backward(torch.ones_like(out) * 0.1)
    opt.step()


def clipped(mod, opt, data):
    opt.zero_grad()
    loss_of(mod, data).backward()
    norm = torch.nn.utils.clip_grad_norm_(mod.parameters(), 0.1)
    opt.step()
    return norm


def micro_batches(mod, opt, data):
    opt.zero_grad()
    for x, y in zip(data[0].chunk(2), data[1].chunk(2)):
        (loss_of(mod, (x, y)) / 2).backward()
    opt.step()


def reading_gradients(mod, opt, data):
    opt.zero_grad()
    loss_of(mod, data).backward()
    total = sum(p.grad.abs().sum() for p in mod.parameters() if p.grad is not None)
    mod.last.bias.grad.mul_(0.5)
    opt.step()
    return total


def transposed_gradient(mod, opt, data):
    """The engine copies what is not laid out as the parameter is, and what is somebody else's."""
    opt.zero_grad()
    weight = mod.first.weight.t().contiguous()
    ((data[0] @ weight).sum() + mod.last.bias.sum() + mod.norm.bias.sum()).backward()
    opt.step()


PROGRAMS = (
    documented, returning_the_loss, accumulating, filled_with_zeros, two_losses, given_a_gradient, clipped,
    micro_batches, reading_gradients, transposed_gradient,
)  # fmt: skip


def make(cls: Any = torch.optim.Adam, **settings: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    mod = Net().double()
    return mod, cls(mod.parameters(), **{"lr": 0.01, **settings})


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(number)
    return torch.randn(8, 6).double(), torch.randint(3, (8,))


def facts(mod: nn.Module, opt: Any) -> dict[str, Any]:
    grads = [p.grad for p in mod.parameters()]
    return {
        "state": dict(mod.state_dict()),
        "gradients": grads,
        "strides": [None if g is None else g.stride() for g in grads],
        "memory": len({g.data_ptr() for g in grads if g is not None}),
        "optimizer": opt.state_dict(),
    }


def same(got: Any, want: Any) -> None:
    torch.testing.assert_close(got.pop("strides"), want.pop("strides"), rtol=0, atol=0)
    torch.testing.assert_close(got, want)


def follow(program: Callable[..., Any], *, calls: int = 4, fullgraph: bool = True, **settings: Any) -> Any:
    (mod, opt), (other, eager) = make(**settings), make(**settings)
    compiled = dovetail.compile(program, fullgraph=fullgraph)
    for number in range(calls):
        got, want = compiled(mod, opt, batch(number)), program(other, eager, batch(number))
        torch.testing.assert_close(got, want)
        if want is not None:
            assert got.requires_grad is want.requires_grad
        same(facts(mod, opt), facts(other, eager))
    return compiled


@pytest.mark.filterwarnings(r"error:.*\[uncompiled-graph\]")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs(program):
    compiled = follow(program)
    assert len(compiled._dovetail_dispatcher.entries) <= 2


def test_nothing_runs_operator_by_operator():
    """The graph with the backward pass inside is compiled as a whole."""
    (mod, opt), texts = make(), []

    def keep(gm, example_inputs):
        texts.append(gm)
        return gm.forward

    dovetail.compile(documented, fullgraph=True, backend=keep)(mod, opt, batch(0))
    assert len(texts) == 1
    assert [n.target for n in texts[0].graph.nodes].count(torch.autograd.grad) == 1
    assert not any(n.target == "backward" for n in texts[0].graph.nodes)


def test_the_history_of_a_returned_loss_is_used_up():
    mod, opt = make()
    loss = dovetail.compile(returning_the_loss, fullgraph=True)(mod, opt, batch(0))
    assert loss.requires_grad and loss.grad_fn is not None and not loss.is_leaf
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_result_that_can_still_be_differentiated():
    def program(mod, opt, data):
        opt.zero_grad()
        loss_of(mod, data).backward()
        opt.step()
        return (mod.last.bias * 2).sum()

    (mod, opt), (other, eager) = make(), make()
    for number in range(3):
        got = dovetail.compile(program)(mod, opt, batch(number))
        want = program(other, eager, batch(number))
        got.backward(), want.backward()
        same(facts(mod, opt), facts(other, eager))


def test_hooks_run():
    (mod, opt), (other, eager) = make(), make()
    seen: list[list[float]] = [[], []]
    for k, m in enumerate((mod, other)):
        m.last.weight.register_hook(lambda g, k=k: seen[k].append(g.sum().item()))
        m.first.bias.register_post_accumulate_grad_hook(lambda p, k=k: seen[k].append(p.grad.sum().item()))
        m.last.bias.register_hook(lambda g: g * 3)
    compiled = dovetail.compile(documented)
    for number in range(3):
        compiled(mod, opt, batch(number)), documented(other, eager, batch(number))
        same(facts(mod, opt), facts(other, eager))
    torch.testing.assert_close(*seen)
    assert len(seen[0]) == 6


def test_a_hook_that_comes_later():
    (mod, opt), (other, eager) = make(), make()
    compiled = dovetail.compile(documented)
    for number in range(4):
        compiled(mod, opt, batch(number)), documented(other, eager, batch(number))
        same(facts(mod, opt), facts(other, eager))
        for m in (mod, other) if number == 1 else ():
            m.last.weight.register_hook(lambda g: g * 2)


def test_history_from_outside():
    """The backward pass goes on into what was computed before the call."""
    def program(h, w):
        (h * w).sum().backward()

    x, twin = (torch.ones(3, requires_grad=True) for _ in range(2))
    w, other = (torch.arange(3.0).requires_grad_() for _ in range(2))
    dovetail.compile(program)(x * 2, w), program(twin * 2, other)
    torch.testing.assert_close((x.grad, w.grad), (twin.grad, other.grad))


def test_errors_are_eagers():
    def not_a_number(mod, opt, data):
        mod(data[0]).backward()

    def no_history(mod, opt, data):
        data[0].sum().backward()

    def second_time(mod, opt, data):
        loss = loss_of(mod, data)
        loss.backward()
        loss.backward()

    for program in (not_a_number, no_history, second_time):
        messages = []
        for run in (dovetail.compile(program), program):
            with pytest.raises(RuntimeError) as raised:
                run(*make(), batch(0))
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize("cls", (torch.optim.SGD, torch.optim.RMSprop, torch.optim.AdamW))
def test_optimizers(cls):
    follow(documented, cls=cls, foreach=True)


def test_rates_that_change():
    (mod, opt), (other, eager) = make(), make()
    compiled = dovetail.compile(returning_the_loss, fullgraph=True)
    plans = [torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10) for o in (opt, eager)]
    for number in range(6):
        compiled(mod, opt, batch(number)), returning_the_loss(other, eager, batch(number))
        for plan in plans:
            plan.step()
        same(facts(mod, opt), facts(other, eager))
    assert len(compiled._dovetail_dispatcher.entries) == 2


def test_compiled_parts():
    """Model, loss and step compiled each for itself."""
    (mod, opt), (other, eager) = make(), make()
    model, step = dovetail.compile(mod), dovetail.compile(opt.step)
    for number in range(4):
        for m, o, s in ((model, opt, step), (other, eager, eager.step)):
            o.zero_grad()
            loss_of(m, batch(number)).backward()
            s()
        same(facts(mod, opt), facts(other, eager))


def test_a_step_that_stays_when_the_model_is_copied():
    mod, opt = make()
    compiled = dovetail.compile(documented, fullgraph=True)
    compiled(mod, opt, batch(0))
    twin = copy.deepcopy(mod)
    compiled(mod, opt, batch(1))
    assert not torch.equal(twin.last.weight, mod.last.weight)


ALIASES: dict[str, Callable[..., Any]] = {
    "a sum of two": lambda x, y, g: (x + y).backward(g),
    "parts of one": lambda x, y, g: torch.cat([x, y]).backward(torch.cat([g, g])),
    "a view": lambda x, y, g: x.view(2, 6).backward(g.view(2, 6)),
    "itself": lambda x, y, g: x.backward(g),
    "expanded": lambda x, y, g: (x.sum() + y.sum()).backward(),
    "transposed": lambda x, y, g: x.t().backward(g.t()),
}


@pytest.mark.parametrize("name", ALIASES)
def test_gradients_share_memory_as_eagers_do(name):
    def relations(run):
        x, y, g = (torch.arange(12.0).view(3, 4) + k for k in range(3))
        x.requires_grad_(), y.requires_grad_()
        run(x, y, g)
        found = [t for t in (x.grad, y.grad) if t is not None]
        memory = [t.untyped_storage().data_ptr() == g.untyped_storage().data_ptr() for t in found]
        return found, [t.stride() for t in found], memory, len({t.data_ptr() for t in found})

    assert repr(relations(dovetail.compile(ALIASES[name], fullgraph=True))) == repr(relations(ALIASES[name]))
