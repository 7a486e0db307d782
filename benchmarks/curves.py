"""`make curves`: does a compiled training run follow eager's, as closely as eager's own runs follow each other?

python -m benchmarks.curves [--steps N] [--svg FILE]

Training amplifies rounding: two runs that differ in a last bit drift apart, as far as the batch noise lets them. So
the drift between eager and Dovetail is held, step by step, against the drift between eager and eager with its sums
taken in another order: hidden units reordered, or other convolution kernels. Under autocast Dovetail also rounds at
fewer places; what such roundings are worth is told by eager without autocast. A learning rate one percent too large
shows what the comparison can tell apart.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import dovetail

from .models.small import TASKS, Task
from .plot import Line, Panel, svg
from .training import Compile, Loss, TrainingStep

ORDERS = (1, 2)
# Two draws of an amplified noise differ by a small factor; a wrong gradient, by orders of magnitude from the start.
ALLOWED = 5
# Drifts below it are the rounding of the loss itself.
ROUNDING = 4 * torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Run:
    """Losses `(steps,)` of the same training, by eager, by Dovetail and by each yardstick."""

    title: str
    eager: Tensor
    compiled: Tensor
    noise: tuple[Tensor, ...]
    control: Tensor

    def drift(self, *others: Tensor) -> Tensor:
        """At each step the largest relative difference to eager's loss so far, of any of the curves."""
        differences = torch.stack([(other - self.eager).abs() / self.eager.abs() for other in others])
        return differences.amax(0).cummax(0).values

    def excess(self, curve: Tensor) -> float:
        """How many times as far as float noise a curve is from eager's, at the worst step."""
        noise = self.drift(*self.noise).clamp(min=ROUNDING)
        return (self.drift(curve) / noise).max().item()


def train(task: Task, steps: int, autocast: bool, compile: Compile | None = None, lr: float | None = None,
          order: int | None = None) -> Tensor:  # fmt: skip
    """The losses, always from the same weights, batches and random numbers; `order` seeds the hidden units' order."""
    torch.manual_seed(0)
    model = task.make()
    if order is not None:
        reorder(model, task, order)
    step = TrainingStep(model, under_autocast(task.loss) if autocast else task.loss, lr or task.lr)
    if compile is not None:
        step = step.compiled(compile)
    torch.manual_seed(1)
    batches = torch.Generator().manual_seed(2)
    return torch.tensor([step(*task.batch(batches)).item() for _ in range(steps)], dtype=torch.float64)


def reorder(model: nn.Module, task: Task, seed: int) -> None:
    """The same function, with the units of a hidden layer in another order."""
    state = model.state_dict()
    name, dim = task.hidden[0]
    order = torch.randperm(state[name].shape[dim], generator=torch.Generator().manual_seed(seed))
    for name, dim in task.hidden:
        state[name].copy_(state[name].index_select(dim, order))


def under_autocast(loss: Loss) -> Loss:
    """The loss computed in bfloat16 where autocast takes it for safe."""

    def lowered(model: nn.Module, *inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss(model, *inputs)

    return lowered


def without_onednn(task: Task, steps: int) -> Tensor:
    """Eager's losses by PyTorch's own convolutions: another algorithm, so that other units cross zero first."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration", UserWarning)
        with torch.backends.mkldnn.flags(enabled=False):
            return train(task, steps, autocast=False)


def compare(task: Task, steps: int, report: Callable[[str], object] = lambda text: None) -> list[Run]:
    """The task without autocast and with it; dropout draws eager's numbers."""
    runs: list[Run] = []
    for autocast in (False, True):
        title = f"{task.title}, {'bfloat16 autocast' if autocast else 'float32'}"
        report(title)
        dovetail.reset()
        with dovetail.config.patch(fallback_random=True):
            compiled = train(task, steps, autocast, partial(dovetail.compile, fullgraph=True))
        noise = [train(task, steps, autocast, order=order) for order in ORDERS]
        noise.append(runs[0].eager if autocast else without_onednn(task, steps))
        control = train(task, steps, autocast, lr=1.01 * task.lr)
        runs.append(Run(title, train(task, steps, autocast), compiled, tuple(noise), control))
    return runs


def table(runs: list[Run]) -> Table:
    """Losses are means of the last 20 steps."""
    found = Table(title="Dovetail's training runs beside eager's", title_justify="left", header_style="bold")
    heads = ("first loss", "final loss,\neager", "\nDovetail", "drift,\nDovetail", "drift,\nfloat noise",
             "Dovetail, x noise\n(worst step)", "1% learning rate,\nx noise")  # fmt: skip
    found.add_column("run", no_wrap=True)
    for head in heads:
        found.add_column(head, justify="right")
    for run in runs:
        finals = [f"{curve[-20:].mean():.4f}" for curve in (run.eager, run.compiled)]
        drifts = [f"{run.drift(*curves)[-1]:.1e}" for curves in ((run.compiled,), run.noise)]
        ratios = [f"{run.excess(curve):.1f}" for curve in (run.compiled, run.control)]
        found.add_row(run.title, f"{run.eager[0]:.4f}", *finals, *drifts, *ratios)
    return found


def chart(runs: list[Run]) -> str:
    """Each run's losses, and below them the drifts."""
    eager, ours, noise, control = "#9a9a9a", "#e8730c", "#3b8ed0", "#b05cc6"
    losses = [
        Panel(f"{run.title}: loss", [Line(run.eager.tolist(), eager, 3), Line(run.compiled.tolist(), ours, 1)],
              low=math.floor(run.eager.min().item() * 2) / 2, high=math.ceil(run.eager.max().item() * 2) / 2)
        for run in runs
    ]  # fmt: skip
    drifts = [
        Panel("largest relative difference to eager so far", [
            Line(run.drift(run.control).tolist(), control),
            Line(run.drift(*run.noise).tolist(), noise),
            Line(run.drift(run.compiled).tolist(), ours),
        ], low=1e-8, high=1e0, log=True)
        for run in runs
    ]  # fmt: skip
    legend = [("eager", eager), ("Dovetail", ours), ("float noise: eager, other roundings", noise),
              ("eager, learning rate 1% too large", control)]  # fmt: skip
    return svg([losses, drifts], legend)


def main() -> int:
    """Exit status 0 if no run is further from eager's than float noise allows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--svg", type=Path, help="also draw the curves into this file")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are too small for more
    with Console(stderr=True).status("starting") as status:
        runs = list(itertools.chain.from_iterable(compare(task, options.steps, status.update) for task in TASKS))
    Console().print(table(runs))
    if options.svg:
        options.svg.write_text(chart(runs))
    return 1 if any(run.excess(run.compiled) > ALLOWED for run in runs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
