"""Random training steps of random optimizers, with things that happen between them.

    python -m tests.fuzz.training [--count 200] [--first 0] [--one SEED]

A step is compiled as a whole: gradients become None at its beginning, at its end or elsewhere, parameters are unused,
frozen, shared or in groups with settings of their own; the graph may break. Between steps the optimizer's state is
loaded, emptied or looked at, gradients are taken away or put there, groups are added. Losses, parameters, gradients and
the optimizer's state are those of an eager copy after every step; in double precision. No graph runs operator by
operator.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dovetail
from tests.fuzz.sweep import sweep

OPTIMIZERS: list[tuple[Any, dict[str, list[Any]]]] = [
    (torch.optim.Adam, {"amsgrad": [False, True], "foreach": [None, False, True], "weight_decay": [0, 0.1]}),
    (torch.optim.AdamW, {"fused": [None, True], "maximize": [False, True], "lr": [0.01, torch.tensor(0.01)]}),
    (torch.optim.NAdam, {"momentum_decay": [0.004, 0.1], "decoupled_weight_decay": [False, True]}),
    (torch.optim.RAdam, {"weight_decay": [0, 0.1], "foreach": [None, True]}),
    (torch.optim.RMSprop, {"centered": [False, True], "momentum": [0, 0.9]}),
    (torch.optim.SGD, {"momentum": [0, 0.9], "nesterov": [False], "weight_decay": [0, 0.1]}),
    (torch.optim.Adagrad, {"lr_decay": [0, 0.1]}),
    (torch.optim.Adadelta, {"rho": [0.9, 0.5]}),
    (torch.optim.Adamax, {"weight_decay": [0, 0.1]}),
    (torch.optim.Rprop, {"foreach": [None, True]}),
    (torch.optim.ASGD, {"t0": [1e6, 2]}),
]
ZEROING = ("first", "last", "module", "by hand", "with zeros", "never", "twice")


class Net(nn.Module):
    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.BatchNorm1d(4), nn.Linear(4, 6), nn.Linear(6, 4)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.rand(6), requires_grad=choose.random() < 0.3)
        if choose.random() < 0.2:
            self.last.bias = self.first.bias = nn.Parameter(torch.randn(1))  # of both

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.gelu(self.first(self.norm(x))) * self.frozen)


class Run:
    """A model in training. All choices are drawn before, so that two runs of a seed are alike."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        torch.manual_seed(seed)
        self.model = Net(choose).double()
        cls, settings = choose.choice(OPTIMIZERS)
        given = {name: copy.deepcopy(choose.choice(values)) for name, values in settings.items()}
        groups: list[dict[str, Any]] = [{"params": list(self.model.parameters())}]
        if choose.random() < 0.4:
            halves = [*groups[0]["params"][:3]], [*groups[0]["params"][3:]]
            groups = [{"params": halves[0]}, {"params": halves[1], "lr": 0.05}]
        self.optimizer = cls(groups, **{"lr": 0.01, **given})
        self.zeroing, self.clips, self.breaks = choose.choice(ZEROING), choose.random() < 0.3, choose.random() < 0.2
        self.accumulates, self.looks = choose.random() < 0.2, choose.random() < 0.15
        self.saved: Any = None

    def step(self, x: Tensor) -> Tensor:
        model, optimizer = self.model, self.optimizer
        if self.zeroing in ("first", "twice"):
            optimizer.zero_grad()
        elif self.zeroing == "with zeros":
            optimizer.zero_grad(set_to_none=False)
        elif self.zeroing == "module":
            model.zero_grad()
        elif self.zeroing == "by hand":
            for p in model.parameters():
                p.grad = None
        known = len(optimizer.state) if self.looks else 0
        loss = model(x).square().mean()
        loss.backward()
        if self.accumulates:
            model(x * 0.5).abs().mean().backward()
        if self.breaks:
            dovetail.graph_break()
        if self.clips:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        if self.zeroing in ("last", "twice"):
            optimizer.zero_grad(True)
        return loss.detach() + known

    def between(self, choose: random.Random) -> None:
        BETWEEN[choose.choice(list(BETWEEN))](self)

    def facts(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "gradients": [p.grad for p in self.model.parameters()],
        }  # fmt: skip


def _save(run: Run) -> None:
    run.saved = copy.deepcopy(run.optimizer.state_dict())


def _load(run: Run) -> None:
    if run.saved is not None and len(run.saved["param_groups"]) == len(run.optimizer.param_groups):
        run.optimizer.load_state_dict(run.saved)


def _rate(run: Run) -> None:
    for group in run.optimizer.param_groups:
        group["lr"] = group["lr"] * 0.5


def _a_group_more(run: Run) -> None:
    if not hasattr(run.model, "more"):
        run.model.more = nn.Parameter(torch.ones(4).double())
        run.optimizer.add_param_group({"params": [run.model.more], "lr": 0.02})


def _a_gradient(run: Run) -> None:
    run.model.unused.weight.grad = torch.ones(2, 2).double()


def _without_gradients(run: Run) -> None:
    for p in run.model.parameters():
        p.grad = None


def _frozen(run: Run) -> None:
    run.model.first.weight.requires_grad_(not run.model.first.weight.requires_grad)


BETWEEN: dict[str, Callable[[Run], None]] = {
    "nothing": lambda run: None, "as well": lambda run: None, "save": _save, "load": _load, "rate": _rate,
    "empty": lambda run: run.optimizer.state.clear(), "group": _a_group_more, "gradient": _a_gradient,
    "without": _without_gradients, "frozen": _frozen,
}  # fmt: skip


def check(seed: int) -> str | None:
    """What differs from eager; None if nothing does."""
    dovetail.reset()
    ours, theirs = Run(seed), Run(seed)
    compiled = dovetail.compile(Run.step)
    choices = random.Random(seed + 1), random.Random(seed + 1)
    for number in range(7):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(number)).double()
        outcomes = [_outcome(step, run, x) for step, run in ((compiled, ours), (Run.step, theirs))]
        try:
            if any(isinstance(o, str) for o in outcomes):
                assert outcomes[0] == outcomes[1], outcomes
            else:
                torch.testing.assert_close(*outcomes)
            torch.testing.assert_close(ours.facts(), theirs.facts())
        except AssertionError as error:
            what = f"{type(theirs.optimizer).__name__}, zeroing {theirs.zeroing}"
            return f"seed {seed}, step {number} of {what}: {str(error)[:400]}"
        for run, choose in zip((ours, theirs), choices, strict=True):
            run.between(choose)
    return None


def _outcome(step: Any, run: Run, x: Tensor) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", r".*\[uncompiled-graph\]")
            return step(run, x)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    raise SystemExit(sweep("tests.fuzz.training", check, 200))
