"""Random attention that programs write out, compiled and in eager, with gradients.

    python -m tests.fuzz.written_attention [--count 200] [--first 0]

How products, scales, masks, casts and layouts are written is drawn, and whether the weights are used elsewhere.
PyTorch's own attention is taken wherever it may be, as on a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

import dovetail
from dovetail.ir import devices
from dovetail.normalize.recording import written_attention
from tests.fuzz.beside_exact import SLACK, unlike

Tensor = torch.Tensor


class Case:
    """Everything that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        torch.manual_seed(seed)
        self.dtype = r.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
        self.sizes = r.choice([(2, 3), (1, 2), (4,)])
        self.rows, self.keys = r.choice([(5, 5), (8, 8), (7, 3), (1, 9)])
        self.width = r.choice([8, 16, 16, 12])
        self.trained = r.random() < 0.6
        self.product, self.last = r.choice(list(PRODUCTS)), r.choice(list(LAST))
        self.steps = [r.choice(SCALES), *r.choices(MASKS, k=r.choice([0, 1, 1, 2])), r.choice(SCALES[:4])]
        self.r = [r.random() for _ in range(8)]
        self.weights = r.random() < 0.1
        batch = [(*self.sizes, self.rows, self.width), *[(*self.sizes, self.keys, self.width)] * 2]
        self.inputs = [torch.randn(s).to(self.dtype) for s in batch]
        shape = (*[n if r.random() < 0.5 else 1 for n in self.sizes], r.choice([1, self.rows]), self.keys)
        self.mask = torch.rand(shape) < r.choice([0.3, 0.8])
        low = r.choice([-math.inf, torch.finfo(self.dtype).min, -3.0])
        self.bias = torch.where(torch.rand(shape) < r.choice([0.0, 0.5]), low, torch.randn(shape)).to(self.dtype)
        self.number = r.choice([-math.inf, -math.inf, torch.finfo(self.dtype).min, -3e4])

    def run(self, compiler: Callable[[Any], Any], dtype: torch.dtype) -> list[Tensor]:
        """Results, then gradients."""
        fn = compiler(lambda q, k, v, mask, bias: self.function(q, k, v, mask, bias))
        leaves = [t.to(dtype).requires_grad_(self.trained) for t in (*self.inputs, self.bias)]
        found = list(fn(*leaves[:3], self.mask, leaves[3]))
        if not self.trained:
            return found
        torch.manual_seed(0)
        loss = (found[0] * torch.randn(found[0].shape).to(dtype)).sum()
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        return [t.detach() for t in found] + [torch.zeros(1) if g is None else g for g in gradients]

    def function(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        scores = PRODUCTS[self.product](q, k)
        for step in self.steps:
            scores = step(self, scores, mask, bias)
        weights = scores.softmax(-1)
        out = LAST[self.last](weights, v)
        return (out, weights) if self.weights else (out,)


def _triangle(scores: Tensor) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "@": lambda q, k: q @ k.mT,
    "matmul": lambda q, k: torch.matmul(q, k.transpose(-1, -2)),
    "einsum": lambda q, k: torch.einsum("bhid,bhjd->bhij" if q.dim() == 4 else "bid,bjd->bij", q, k),
    "scaled": lambda q, k: (q * 0.5) @ k.transpose(q.dim() - 1, q.dim() - 2),
    "lies otherwise": lambda q, k: (
        torch.einsum("bihd,bjhd->bhij", q.transpose(1, 2), k.transpose(1, 2)) if q.dim() == 4 else q @ k.mT
    ),
}
LAST: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "@": lambda p, v: p @ v,
    "cast": lambda p, v: torch.matmul(p.to(v.dtype), v),
    "dropout": lambda p, v: F.dropout(p, 0.4, training=False) @ v,
    "einsum": lambda p, v: torch.einsum("bhij,bhjd->bihd" if v.dim() == 4 else "bij,bjd->bid", p, v),
}
Step = Callable[[Case, Tensor, Tensor, Tensor], Tensor]
SCALES: list[Step] = [
    lambda c, s, mask, bias: s,
    lambda c, s, mask, bias: s,
    lambda c, s, mask, bias: s,
    lambda c, s, mask, bias: s * 1.5,
    lambda c, s, mask, bias: s / math.sqrt(c.width),
    lambda c, s, mask, bias: 0.3 * s,
]
MASKS: list[Step] = [
    lambda c, s, mask, bias: s.masked_fill(mask, c.number),
    lambda c, s, mask, bias: torch.where(mask, s, c.number),
    lambda c, s, mask, bias: torch.where(_triangle(s), s, torch.full([], c.number, dtype=s.dtype)),
    lambda c, s, mask, bias: s.masked_fill(~_triangle(s), -math.inf),
    lambda c, s, mask, bias: s + bias,
    lambda c, s, mask, bias: bias + s,
    lambda c, s, mask, bias: s + torch.zeros_like(s[..., :1, :]).masked_fill(mask[..., :1, :], c.number),
    lambda c, s, mask, bias: s + torch.full(s.shape[-2:], -math.inf, dtype=s.dtype).triu(1),
]


def difference(seed: int) -> str | None:
    """What is wrong with the seed's case, in words."""
    case = Case(seed)
    everywhere = dataclasses.replace(devices.TRAITS["cpu"], attention=True)
    with warnings.catch_warnings(), mock.patch.dict(devices.TRAITS, {"cpu": everywhere}):
        warnings.simplefilter("ignore")
        want, truth = (case.run(lambda function: function, dtype) for dtype in (case.dtype, torch.float64))
        got = case.run(lambda function: dovetail.compile(function, fullgraph=True), case.dtype)
    return unlike(got, want, truth, SLACK[case.dtype], overflows=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    taken = failed = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        with mock.patch.object(written_attention, "attention", wraps=written_attention.attention) as calls:
            words = difference(seed)
        taken += calls.called
        if words:
            failed += 1
            print(f"seed {seed}: {words}")
        dovetail.reset()
    print(f"{failed} of {chosen.count} differ; {taken} are PyTorch's attention")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
