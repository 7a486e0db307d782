"""Random histories: what is compiled meets other sizes, dtypes, layouts, modes and resets, and agrees with eager.

A step calls one of the models, with or without gradients, and compares results, gradients and buffers. Errors are
measured against the same step in float64, as eager's are: rounding may go another way, and no further than eager's goes
for inputs that are rounded otherwise.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import dovetail
from tests.fuzz.history.programs import MODELS

SIZES = ((3, 5), (2, 4), (4, 7), (1, 5), (3, 8))
DTYPES = (torch.float32,) * 6 + (torch.float64, torch.bfloat16)
#: Difference allowed beyond some times eager's own, relative to the largest number.
SLACK = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "every other": lambda x: torch.stack((x, x), -1).flatten(-2)[..., ::2],
    "offset": lambda x: torch.cat((x[:1], x))[1:],
}


#: Inputs a few roundings away of which eager's error is found, where its error says too little.
ROUNDINGS = 16
Outcomes = tuple[list[torch.Tensor], list[torch.Tensor]]


@dataclass(frozen=True)
class Step:
    model: str
    dynamic: bool | None
    size: tuple[int, int]
    dtype: torch.dtype
    layout: str
    trains: bool
    autocast: bool
    before: str  # "", "reset" or "again": what happens first

    def __str__(self) -> str:
        mode = f"{'train' if self.trains else 'infer'}{', autocast' * self.autocast}"
        return f"{self.before or 'then'}: {self.model} {self.size} {self.dtype} {self.layout}, {mode}, {self.dynamic=}"


def drawn(chosen: random.Random) -> Step:
    name = chosen.choice(list(MODELS))
    return Step(
        name, chosen.choice((None, None, True)), chosen.choice(SIZES[:2] if chosen.random() < 0.6 else SIZES),
        chosen.choice(DTYPES), chosen.choice([*["as it is"] * 4, *LAYOUTS]) if MODELS[name].floats else "as it is",
        chosen.random() < 0.5, chosen.random() < 0.1, chosen.choice([""] * 60 + ["reset", "again", "again"]),
    )  # fmt: skip


class History:
    """One process's: the models in each dtype, and what is compiled of them."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.models: dict[Any, nn.Module] = {}
        self.compiled: dict[Any, Any] = {}

    def model(self, name: str, dtype: torch.dtype) -> nn.Module:
        if (name, dtype) not in self.models:
            torch.manual_seed(len(name))
            self.models[name, dtype] = MODELS[name].make().to(dtype)
        return self.models[name, dtype]

    def step(self) -> str | None:
        """What differs, in one line."""
        step = drawn(self.chosen)
        if step.before:
            self.compiled.clear()
        if step.before == "reset":
            dovetail.reset()
        model = self.model(step.model, step.dtype)
        key = step.model, step.dtype, step.dynamic
        if key not in self.compiled:
            self.compiled[key] = dovetail.compile(model, dynamic=step.dynamic, fullgraph=True)
        torch.manual_seed(self.chosen.randrange(1 << 30))
        inputs = [LAYOUTS[step.layout](x) for x in MODELS[step.model].inputs(step.size, step.dtype)]
        before = copy.deepcopy(model)
        want, refused = attempt(step, *_twice(before), inputs)
        got, raised = attempt(step, self.compiled[key], model, inputs)
        if refused or raised:  # sizes that a model cannot take
            return None if raised == refused else f"{step}: raises {raised or 'nothing'}, eager {refused or 'nothing'}"
        found = difference(step, got, want, exact(step, before, inputs), roundings(step, before, inputs))
        return None if found is None else f"{step}: {found}"


def attempt(
    step: Step, call: Callable[..., Any], model: nn.Module, inputs: list[torch.Tensor]
) -> tuple[list[torch.Tensor], str]:
    """The outcome, or the error that it raises."""
    try:
        return outcome(step, call, model, inputs), ""
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"[:400]


def outcome(step: Step, call: Callable[..., Any], model: nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result, then gradients and buffers."""
    model.zero_grad(set_to_none=True)
    inputs = [x.detach().requires_grad_(step.trains and x.is_floating_point()) for x in inputs]
    double = next(model.parameters()).dtype is torch.float64
    with torch.set_grad_enabled(step.trains), torch.autocast("cpu", enabled=step.autocast and not double):
        result = call(*inputs)
    if step.trains:
        tangent = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view(result.shape).to(result.dtype)
        result.backward(tangent)
    gradients = [t.grad for t in (*inputs, *model.parameters()) if t.grad is not None]
    return [result.detach(), *gradients, *(b.clone() for b in model.buffers())]


def _twice(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """What is called and what is looked at: a copy, whose buffers change."""
    copied = copy.deepcopy(model)
    return copied, copied


def exact(step: Step, model: nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    doubled = [x.double() if x.is_floating_point() else x for x in inputs]
    return outcome(step, *_twice(copy.deepcopy(model).double()), doubled)


def roundings(step: Step, model: nn.Module, inputs: list[torch.Tensor]) -> Iterator[Outcomes]:
    """Eager's outcome and the exact one, of inputs that are some roundings away."""
    for k in range(ROUNDINGS):
        torch.manual_seed(k)
        away = 4 * torch.finfo(step.dtype).eps
        near = [x * (1 + away * torch.randn_like(x)) if x.is_floating_point() else x for x in inputs]
        yield outcome(step, *_twice(model), near), exact(step, model, near)


def difference(
    step: Step, got: list[torch.Tensor], want: list[torch.Tensor], true: list[torch.Tensor],
    others: Iterator[Outcomes],
) -> str | None:
    if [(t.shape, t.dtype) for t in got] != [(t.shape, t.dtype) for t in want]:
        return f"{[(t.shape, t.dtype) for t in got]}, eager's {[(t.shape, t.dtype) for t in want]}"
    half = step.autocast and step.dtype is torch.float32
    slack = SLACK[torch.bfloat16 if half else step.dtype]
    # In 8 bits the largest of a pool's window is often another one, and its gradient goes elsewhere, in eager as well.
    of = torch.mean if slack == SLACK[torch.bfloat16] else torch.max

    def off(found: list[torch.Tensor], true: list[torch.Tensor]) -> list[float]:
        pairs = zip(found, true, strict=True)
        return [float(of((t.double() - exact.double()).abs())) if t.numel() else 0.0 for t, exact in pairs]

    mine, theirs = off(got, true), off(want, true)
    allowed = [slack * (1 + float(t.abs().max())) if t.numel() else 0.0 for t in true]
    within = lambda k: mine[k] <= 8 * theirs[k] + allowed[k]
    if not all(map(within, range(len(got)))):
        theirs = list(map(max, theirs, *(off(*other) for other in others)))
    wrong = next((k for k in range(len(got)) if not within(k)), None)
    if wrong is None:
        return None
    return f"number {wrong} of {len(got)} is off by {mine[wrong]:.2g}, eager's by {theirs[wrong]:.2g}"


def walk(first: int, count: int) -> list[str]:
    """The differences of one history."""
    history, found = History(first), []
    for number in range(count):
        try:
            words = history.step()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"[:400]
        if words is not None:
            found.append(f"history {first}, step {number}: {words}")
    return found
