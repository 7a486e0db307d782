"""How the work of compiling grows with the program: four times the program is to be no more than about four times it.

    python -m tests.e2e.compile_growth [NAME ...] [--size 25]

Work is Python's calls, of native functions and turns of generators too, which are the same in each run.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import dovetail
from tests import forks

#: How many times as large the second program is, and how many times as much work it may be.
TIMES, MOST = 4, 4.8

Make = Callable[[int], Callable[[], Any]]


def parameters(count: int) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.randn(8 + k % 37, 4 + k % 5)) for k in range(count)]
    for each in made:
        each.grad = torch.randn_like(each)
    return made


def stepped(optimizer: Any, **given: Any) -> Make:
    """A step of the optimizer, on so many parameters."""
    return lambda count: optimizer(parameters(count), **given).step


def clipped(count: int) -> Callable[[], Any]:
    given = parameters(count)
    return lambda: nn.utils.clip_grad_norm_(given, 1.0)


def averaged(count: int) -> Callable[[], Any]:
    """Moving averages of a model, in a loop."""
    ours, theirs = parameters(count), [p.detach().clone() for p in parameters(count)]

    def run() -> None:
        with torch.no_grad():
            for mine, other in zip(ours, theirs, strict=True):
                mine.mul_(0.9).add_(other, alpha=0.1)

    return run


X = torch.randn(16, 16)


def chained(count: int) -> Callable[[], Any]:
    def run() -> torch.Tensor:
        x = X
        for k in range(count):
            x = torch.sin(x) + k
        return x

    return run


def joined(count: int) -> Callable[[], Any]:
    """Many parts of one tensor, and one of many."""
    return lambda: torch.cat([F.gelu(X[k % 16]) * k for k in range(count)]).softmax(-1)


def stacked(count: int) -> Callable[[], Any]:
    """Numbers of many tensors, stacked, and each used again."""
    given = [torch.randn(4 + k % 7) for k in range(count)]

    def run() -> list[torch.Tensor]:
        norms = torch.stack([t.norm() for t in given])
        return [t / (norms[k] + norms.sum()) for k, t in enumerate(given)]

    return run


def several(count: int) -> Callable[[], Any]:
    """Many results of one input."""
    return lambda: {f"r{k}": (X * k).relu().sum(k % 2) for k in range(count)}


def written(count: int) -> Callable[[], Any]:
    """Columns of one tensor, one by one."""

    def run() -> torch.Tensor:
        made = torch.zeros(16, count)
        for k in range(count):
            made[:, k] = X[:, k % 16] * k
        return made

    return run


def dense(count: int) -> Callable[[], Any]:
    """Each layer reads the sum of all before it."""
    layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(count))

    def run() -> torch.Tensor:
        x = total = X
        for layer in layers:
            x = F.relu(layer(total))
            total = total + x
        return total.sum()

    return run


def trained(layer: Callable[[int], nn.Module], x: torch.Tensor) -> Make:
    """A loss and the gradients of a model of so many layers, each of other sizes."""

    def made(count: int) -> Callable[[], Any]:
        model = nn.Sequential(*map(layer, range(count)))
        return lambda: model(x).square().mean().backward()

    return made


def _mlp(k: int) -> nn.Module:
    return nn.Sequential(nn.Linear(16, 17 + k % 11), nn.GELU(), nn.Linear(17 + k % 11, 16), nn.LayerNorm(16))


def _convolution(k: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 5 + k % 7, 3, padding=1), nn.BatchNorm2d(5 + k % 7), nn.ReLU(), nn.Conv2d(5 + k % 7, 4, 1)
    )


O = torch.optim
CASES: dict[str, Make] = {
    **{
        f"{name}, {'lists' if lists else 'one by one'}": stepped(optimizer, foreach=lists, **given)
        for name, optimizer, given in (
            ("SGD", O.SGD, {"lr": 0.1, "momentum": 0.9}), ("Adam", O.Adam, {}), ("AdamW", O.AdamW, {"amsgrad": True}),
            ("RMSprop", O.RMSprop, {"momentum": 0.9}), ("NAdam", O.NAdam, {}), ("RAdam", O.RAdam, {}),
            ("Adagrad", O.Adagrad, {}), ("Adadelta", O.Adadelta, {}), ("Adamax", O.Adamax, {}),
            ("ASGD", O.ASGD, {}), ("Rprop", O.Rprop, {}), ("Adafactor", O.Adafactor, {}),
        )
        for lists in (True, False)
    },
    "clipping": clipped, "averages": averaged, "a chain": chained, "cat": joined, "stack": stacked,
    "results": several, "columns": written, "dense": dense,
    "layers": trained(_mlp, torch.randn(8, 16)), "images": trained(_convolution, torch.randn(2, 4, 8, 8)),
}  # fmt: skip


def work(run: Callable[[], Any]) -> int:
    """Python's calls in two calls of what is compiled, without machine code and what runs it."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event != "return" and event != "c_return"

    compiled = dovetail.compile(run)
    gc.collect()
    sys.setprofile(note)
    try:
        for _ in range(2):
            compiled()
    finally:
        sys.setprofile(None)
    return count


def work_of(name: str, size: int) -> int:
    """The work for one program."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work(CASES[name](size))


def growth(name: str, size: int) -> tuple[int, int]:
    """The work for a program, and for one that is `TIMES` as large: each in a process of its own, nothing on disk."""
    first, second = (_apart(name, size * times) for times in (1, TIMES))
    return first, second


def _apart(name: str, size: int) -> int:
    program = f"from tests.e2e.compile_growth import work_of; print(work_of({name!r}, {size}))"
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPATH": forks.PLACES, "DOVETAIL_CACHE_DIR": folder}
        done = forks.python("-c", program, env=env)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--size", type=int, default=25, help="layers, parameters and so on of the smaller program")
    chosen = parser.parse_args()
    failed = False
    for name in chosen.names or CASES:
        first, second = growth(name, chosen.size)
        failed |= second > MOST * first
        print(f"{name}: {first:,} calls, {TIMES} times as large {second:,}: {second / first:.1f} times", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
