"""The first step of an optimizer is compiled as all others are: its state is there before it is traced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import dovetail


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.unused = nn.Linear(4, 3), nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.line(x) * self.frozen).square().mean()


def at_first(mod: Any, opt: Any, x: torch.Tensor) -> torch.Tensor:
    opt.zero_grad()
    loss = mod(x)
    loss.backward()
    opt.step()
    return loss.detach()


def at_last(mod: Any, opt: Any, x: torch.Tensor) -> torch.Tensor:
    loss = mod(x)
    loss.backward()
    opt.step()
    opt.zero_grad(True)
    return loss.detach()


def by_hand(mod: Any, opt: Any, x: torch.Tensor) -> torch.Tensor:
    for p in mod.parameters():
        p.grad = None
    return at_last(mod, opt, x)


def after_a_break(mod: Any, opt: Any, x: torch.Tensor) -> torch.Tensor:
    opt.zero_grad()
    loss = mod(x)
    loss.backward()
    dovetail.graph_break()
    opt.step()
    return loss.detach()


def make(cls: Any, **settings: Any) -> tuple[Any, Any, torch.Tensor]:
    torch.manual_seed(0)
    mod = Net()
    groups = [{"params": mod.line.parameters()}, {"params": [*mod.unused.parameters(), mod.frozen], "lr": 0.5}]
    return mod, cls(groups, lr=0.01, **settings), torch.randn(5, 4)


def facts(mod: Any, opt: Any) -> Any:
    return mod.state_dict(), opt.state_dict(), [p.grad for p in mod.parameters()]


@pytest.mark.parametrize("step", [at_first, at_last, by_hand, after_a_break])
@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Rprop])
def test_one_compilation(step: Any, cls: Any) -> None:
    (mine, own, x), (theirs, other, _) = make(cls), make(cls)
    compiled = dovetail.compile(step)
    for number in range(4):
        torch.testing.assert_close(compiled(mine, own, x + number), step(theirs, other, x + number))
        torch.testing.assert_close(facts(mine, own), facts(theirs, other))
    (entry,) = compiled._dovetail_dispatcher.entries
    assert not entry.once


def test_memory_of_gradients_is_free_before_the_graph_runs() -> None:
    """Though there were none when it was compiled."""
    mod, opt, x = make(torch.optim.Adam)
    compiled = dovetail.compile(at_first)
    compiled(mod, opt, x)
    (entry,) = compiled._dovetail_dispatcher.entries
    before, _, after = entry.text.partition("_o = graph(")
    assert before.count("'grad', None)") == len(list(mod.parameters())) and "'grad', _o[" in after


def test_state_that_the_program_asks_for_first() -> None:
    def step(mod: Any, opt: Any, x: torch.Tensor) -> torch.Tensor:
        fresh = len(opt.state) == 0
        return at_first(mod, opt, x) + fresh

    (mine, own, x), (theirs, other, _) = make(torch.optim.Adam), make(torch.optim.Adam)
    compiled = dovetail.compile(step)
    for _ in range(3):
        torch.testing.assert_close(compiled(mine, own, x), step(theirs, other, x))
        torch.testing.assert_close(facts(mine, own), facts(theirs, other))


def test_gradients_from_outside_stay() -> None:
    """Those that the state is made for, and one that the step will refuse."""
    mod, opt, x = make(torch.optim.Adam)
    mod(x).backward()
    own = mod.line.weight.grad
    mod.unused.weight.grad = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        dovetail.compile(opt.step)()
    assert mod.line.weight.grad is own and mod.unused.weight.grad.is_sparse and mod.unused.weight not in opt.state


def test_an_optimizer_of_the_programs_own() -> None:
    """Whose state depends on gradients: it is made in the step."""

    class Own(torch.optim.Adam):
        def _init_group(self, group: Any, *lists: Any) -> Any:
            for p in group["params"]:
                if p.grad is not None and p not in self.state:
                    self.state[p]["scale"] = p.grad.abs().max().item() + 1
            return super()._init_group(group, *lists)

    (mine, own, x), (theirs, other, _) = make(Own), make(Own)
    compiled = dovetail.compile(at_first)
    for _ in range(3):
        try:
            want = at_first(theirs, other, x)
        except KeyError:
            with pytest.raises(KeyError):
                compiled(mine, own, x)
            return
        torch.testing.assert_close(compiled(mine, own, x), want)
    torch.testing.assert_close(facts(mine, own), facts(theirs, other))
