"""Random programs on numbers out of tensors, compiled as one graph: results, gradients and errors beside eager's.

    python -m tests.fuzz.items [--count 2000] [--first 0] [--backend dovetail]

Such numbers stay in the graph under `fullgraph=True`, as tensors or as numbers that PyTorch takes out. Types of results
follow Python's rules for numbers and PyTorch's for scalars beside tensors.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import dovetail
from dovetail.errors import GraphBreakError

NUMBERS = ("a", "b", "c", "i", "j", "flag", "0.5", "2", "-1.5", "3")
TENSORS = ("x", "x", "y", "half", "wide", "whole")
#: Texts by how often they are drawn; N is a number, T a tensor.
OF_NUMBERS = {
    "(N + N)": 16, "(N - N)": 10, "(N * N)": 14, "(N / N)": 8, "(N // N)": 6, "(N % N)": 6, "(-N)": 6, "abs(N)": 6,
    "max(N, N)": 3, "min(N, N)": 3, "(N ** 2)": 2, "(N ** 3)": 2, "float(N)": 4, "int(N)": 4, "round(N, 2)": 3,
    "math.sqrt(abs(N))": 3, "(N < N)": 1, "(N > N)": 1, "(N == N)": 1, "(N <= N)": 1,
}  # fmt: skip
OF_TENSORS = {
    "(T + N)": 14, "(T - N)": 12, "(T * N)": 14, "(T / N)": 10, "(N + T)": 4, "(N - T)": 4, "(N * T)": 4, "(T + T)": 3,
    "(T * T)": 3, "(T - T)": 2, "T.add(T, alpha=N)": 5, "torch.clamp(T, min=N)": 5, "torch.where(T > N, N, T)": 5,
    "T.mul(N)": 5, "torch.addcmul(T, T, T, value=N)": 5, "torch.full((3,), N)": 5,
}  # fmt: skip
LINES = {
    "{x} = {T}": 5, "{a} = {N}": 3, "a = {x}.sum().item()": 1, "b = wide.max().item()": 1, "{x}.detach().add_({n})": 1,
    "{x}.detach().mul_({n})": 1, "with torch.no_grad(): {x} = {T}": 1, "torch._check({n} < {n}, lambda: 'no')": 1,
}  # fmt: skip
HEAD = """\
def f(x, y, half, wide, whole):
    a, b, c = x.sum().item(), float(y.max()), wide.mean().item()
    i, j, flag = int(whole.sum()), whole[0].item(), (x > 0.3).any().item()
"""
SIZES = (
    "x.new_zeros(int(N) % 5)", "wide.repeat(int(N) % 3 + 1, 2)", "whole[: int(N) % 4]", "torch.arange(int(N) % 7)",
    "y[int(N) % 3 :].sum()", "x.narrow(0, 0, round(N) % 3 + 1) * N", "torch.tensor([int(N), 3])",
    "x.expand(int(N) % 3, 3)",
)  # fmt: skip
#: Differences that rounding explains, relative and absolute; numbers in wide programs come out of narrow sums, too.
CLOSE = {torch.float16: 4e-3, torch.float32: 2e-5, torch.float64: 2e-6}


def _drawn(chosen: random.Random, texts: dict[str, int]) -> str:
    return chosen.choices([*texts], [*texts.values()])[0]


def _number(chosen: random.Random, depth: int) -> str:
    if not depth or chosen.random() < 0.25:
        return chosen.choice(NUMBERS)
    return "".join(_number(chosen, depth - 1) if c == "N" else c for c in _drawn(chosen, OF_NUMBERS))


def _tensor(chosen: random.Random, depth: int) -> str:
    if not depth:
        return chosen.choice(TENSORS)
    made = {"N": lambda: _number(chosen, chosen.randint(0, 2)), "T": lambda: _tensor(chosen, depth - 1)}
    return "".join(made[c]() if c in made else c for c in _drawn(chosen, OF_TENSORS))


def text(seed: int) -> str:
    chosen, lines = random.Random(seed), []
    for _ in range(chosen.randint(1, 4)):
        parts = {"T": _tensor(chosen, chosen.randint(1, 2)), "N": _number(chosen, 2), "n": _number(chosen, 1)}
        lines.append(_drawn(chosen, LINES).format(x=chosen.choice("xy"), a=chosen.choice("abc"), **parts))
    results = [_tensor(chosen, 1), _number(chosen, 2), *(["f'{a:.3f} {i}'"] if chosen.random() < 0.3 else [])]
    if chosen.random() < 0.4:
        results.append("".join(_number(chosen, 1) if c == "N" else c for c in chosen.choice(SIZES)))
    return HEAD + "".join(f"    {line}\n" for line in [*lines, f"return {', '.join(results)}"])


def inputs(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    found = [torch.rand(3) - 0.2, torch.rand(3) * 2, torch.rand(3).half(), torch.rand(3, dtype=torch.float64)]
    for tensor in found if seed % 2 else ():
        tensor.requires_grad_()
    return [*found, torch.randint(1, 5, (3,))]


@dataclass
class Ending:
    """`code` is that of a graph break."""

    found: Any
    code: str = ""


def ending(function: Callable[..., Any], seed: int) -> Ending:
    """Results, gradients and arguments after the call; or what was raised."""
    given = inputs(seed)
    try:
        results = function(*given)
    except GraphBreakError as error:
        return Ending(None, error.code)
    except Exception as error:  # it is what is compared
        return Ending((type(error).__name__, str(error)[:80]))
    gradients: Any = None
    learned = [t for t in given if t.requires_grad]
    if learned and results[0].requires_grad:
        gradients = torch.autograd.grad(results[0].sum(), learned, allow_unused=True)
    return Ending((results, gradients, [t.detach() for t in given]))


def equal(mine: Any, eager: Any) -> bool:
    (a, spec), (b, wanted) = pytree.tree_flatten(mine), pytree.tree_flatten(eager)
    return spec == wanted and all(map(_equal, a, b))


def _equal(mine: Any, eager: Any) -> bool:
    if type(mine) is not type(eager):
        return False
    if isinstance(eager, torch.Tensor):
        if (mine.dtype, mine.shape, mine.requires_grad) != (eager.dtype, eager.shape, eager.requires_grad):
            return False
        close = CLOSE.get(eager.dtype, 0.0)
        return torch.allclose(mine.double(), eager.double(), rtol=close, atol=close, equal_nan=True)
    if isinstance(eager, float):
        return math.isclose(mine, eager, rel_tol=2e-5, abs_tol=2e-5) or mine != mine and eager != eager
    return bool(mine == eager)


def difference(seed: int, backend: str = "eager") -> str:
    """Empty if the program behaves as in eager mode, in both of two calls, or ends the graph."""
    space: dict[str, Any] = {"torch": torch, "math": math}
    exec(text(seed), space)
    dovetail.reset()
    rounding = {"numerics": "eager", "strict": True} if backend == "dovetail" else None
    compiled = dovetail.compile(space["f"], fullgraph=True, backend=backend, options=rounding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(2):
            mine, eager = ending(compiled, 2 * call + seed), ending(space["f"], 2 * call + seed)
            if not mine.code and not equal(mine.found, eager.found):
                return f"call {call}: {mine.found} for eager's {eager.found}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--backend", default="eager")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.first, options.first + options.count):
        if found := difference(seed, options.backend):
            failed += 1
            print(f"{seed}: {found}\n{text(seed)}", flush=True)
    print(f"{failed} of {options.count} programs differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
