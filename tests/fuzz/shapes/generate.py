"""Random programs of reshapes, slices, concatenations, reductions and what goes with them, and sizes to run them at.

A program is built while it runs on tensors of the first sizes, so that every step is valid there; at other sizes a step
may raise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from tests.fuzz.shapes.steps import STEPS, Step

HEAD = '''import torch
import torch.nn.functional as F
'''
NAMES = "abc"
CALLS = 10
#: More elements than this are not worked on.
LARGEST = 3000


def generate(seed: int, steps: Sequence[tuple[Step, int]] = STEPS) -> str:
    """`steps` come with how often each is wanted."""
    return _Generator(random.Random(seed), steps).text()


class _Generator:
    def __init__(self, rng: random.Random, steps: Sequence[tuple[Step, int]]) -> None:
        self.rng, self.steps = rng, steps
        self.sizes = self.calls()
        self.shapes = [self.shape() for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        self.gradients = rng.random() < 0.3
        self.lines: list[str] = []
        self.env: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}

    def calls(self) -> list[dict[str, int]]:
        """Sizes of each call; 0 and 1 are among them."""
        rng = self.rng
        first = dict(zip(NAMES, rng.sample((2, 3, 4, 5, 6, 7, 8), 3), strict=True))
        found = [first]
        for k in range(1, CALLS):
            small = (0, 1) if k < 4 else (1, 2, 3, 4, 5, 6, 7, 9, 12)
            changed = rng.sample(NAMES, rng.choice((1, 2, 3)))
            found.append({n: rng.choice(small) if n in changed else rng.choice((2, 3, 4, 5, 6, 8)) for n in NAMES})
        return [{**values, "seed": k} for k, values in enumerate(found)]

    def shape(self) -> list[str]:
        rng = self.rng
        return [rng.choice((*NAMES, *NAMES, "1", "2", "4", "6", "8")) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))]

    def text(self) -> str:
        rng = self.rng
        names = [f"x{k}" for k in range(len(self.shapes))]
        for name, shape in zip(names, self.shapes, strict=True):
            self.env[name] = torch.randn([self.sizes[0].get(s) or int(s) for s in shape])
        tensors = list(names)
        for _ in range(rng.randrange(2, 10)):
            self.step(tensors)
        made = [t for t in tensors if t not in names] or tensors
        results = sorted({*rng.sample(made, min(len(made), rng.choice((1, 2, 3)))), made[-1]})
        suffix = ".requires_grad_()" if self.gradients else ""
        inputs = [f"torch.randn({''.join(f'{s}, ' for s in shape)}){suffix}" for shape in self.shapes]
        lines = [HEAD, f"SIZES = {self.sizes!r}", "", "", "def make_inputs(a, b, c, seed):"]
        lines += [f"    return [{', '.join(inputs)}]", "", "", f"def program({', '.join(names)}):"]
        lines += [f"    {line}" for line in self.lines]
        return "\n".join([*lines, f"    return ({''.join(f'{r}, ' for r in results)})", ""])

    def step(self, tensors: list[str]) -> None:
        """One more line, if the one that comes to mind is valid."""
        rng = self.rng
        name = tensors[-1] if rng.random() < 0.7 else rng.choice(tensors)
        make = rng.choices([s for s, _ in self.steps], [w for _, w in self.steps])[0]
        text = make(rng, name, self.env[name], {t: self.env[t] for t in tensors})
        if text is None:
            return
        target = f"t{len(tensors)}"
        line = text if "TARGET" in text else f"{target} = {text}"
        env = dict(self.env)
        line = line.replace("TARGET", target)
        try:
            exec(line, env)
        except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
            return
        made = env[target]
        if not isinstance(made, torch.Tensor) or made.numel() > LARGEST or made.dim() > 5:
            return
        self.env = env
        self.lines += line.split("\n")
        tensors.append(target)
