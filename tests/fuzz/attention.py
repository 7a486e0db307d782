"""Random calls of `flex_attention`, compiled and in eager, with their gradients.

    python -m tests.fuzz.attention [--count 200] [--first 0] [--kernels]

Sizes, layouts, types, functions of scores, masks, which tables learn, and where the mask is made are drawn, and whether
its blocks say less than its function, which is what counts. With `--kernels` a GPU's kernels run, under Triton's
interpreter. PyTorch's own function refuses
gradients on CPUs although what is behind it has them: here it is let through.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn.attention import flex_attention as flex

import dovetail
from dovetail.attention import fused, ranges
from dovetail.codegen.gpu import attention as templates
from dovetail.ir.attention import Tiles
from dovetail.ops.calls import attention_blocks
from dovetail.runtime.gpu import templates as launches
from tests.codegen_gpu.interpreter import launched_template
from tests.fuzz.beside_exact import SLACK, unlike

Modifier = Callable[..., torch.Tensor]


class Case:
    """Everything that a seed decides: `tensors` are q, k, v and what the functions close over."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        torch.manual_seed(seed)
        self.dtype = r.choice([*[torch.float32] * 3, torch.bfloat16, torch.float16, torch.float64])
        self.batch, self.shared, self.groups = r.choice([1, 2, 3]), r.choice([1, 2, 3]), r.choice([1, 1, 2, 4])
        self.heads = self.shared * self.groups
        self.rows = r.choice([1, 5, 16, 37, 64, 130])
        self.columns = r.choice([self.rows, self.rows, 1, 24, 70, 129])
        self.width, self.out_width = r.choice([4, 16, 24, 80]), r.choice([4, 16, 40])
        self.trained = r.random() < 0.6
        self.slopes = self._floats(self.heads)
        self.table = self._floats(max(3, self.rows + self.columns))
        self.bias = self._floats(self.batch, self.heads, self.rows, self.columns)
        self.documents = torch.randint(0, 3, (self.batch, max(self.rows, self.columns)))
        self.lengths = torch.randint(0, self.columns + 1, (self.batch,))
        self.score_mod = r.choice([None, *SCORES])
        self.mask_mod = r.choice(MASKS)
        self.second = r.choice([None, None, *MASKS])
        self.join = r.choice([flex.or_masks, flex.and_masks])
        self.place = r.choice(["argument", "closure", "inside", "none"])
        self.scale = r.choice([None, 0.3])
        self.options = r.choice([None, {"BLOCK_M": 32}])
        self.aux = r.choice(["", "", "lse", "aux"])
        self.learned = [r.random() < 0.7 for _ in range(3)]
        self.narrow = r.random() < 0.2
        self.inputs = [
            self._strided(self.heads, self.rows, self.width), self._strided(self.shared, self.columns, self.width),
            self._strided(self.shared, self.columns, self.out_width),
        ]  # fmt: skip

    def _floats(self, *sizes: int) -> torch.Tensor:
        return torch.randn(sizes, dtype=torch.float64 if self.dtype == torch.float64 else torch.float32)

    def _strided(self, heads: int, rows: int, width: int) -> torch.Tensor:
        if self.random.random() < 0.5:
            return torch.randn(self.batch, heads, rows, width, dtype=self.dtype)
        return torch.randn(self.batch, rows, heads, width, dtype=self.dtype).transpose(1, 2)

    def widened(self) -> Case:
        """The same numbers in float64."""
        self.dtype = torch.float64
        self.inputs = [t.double() for t in self.inputs]
        self.slopes, self.table, self.bias = self.slopes.double(), self.table.double(), self.bias.double()
        return self

    def mask(self) -> Any:
        shown = self.mask_mod(self)
        if self.second is not None:
            shown = self.join(shown, self.second(self))
        sizes = self.batch, self.heads, self.rows, self.columns
        made = flex.create_block_mask(shown, *sizes, device="cpu", BLOCK_SIZE=32)
        if self.narrow:
            few = made.kv_num_blocks.clamp(max=1)
            made = flex.BlockMask.from_kv_blocks(
                few, made.kv_indices, BLOCK_SIZE=32, mask_mod=shown, seq_lengths=sizes[2:]
            )
        return made

    def function(self) -> Callable[..., Any]:
        score_mod = None if self.score_mod is None else self.score_mod(self)
        made = self.mask() if self.place == "closure" else None
        extra: dict[str, Any] = {"return_lse": True} if self.aux == "lse" else {}
        if self.aux == "aux":
            extra = {"return_aux": flex.AuxRequest(lse=True)}

        def call(q: Any, k: Any, v: Any, given: Any = None) -> Any:
            mask = self.mask() if self.place == "inside" else made if given is None else given
            return flex.flex_attention(
                q, k, v, score_mod=score_mod, block_mask=mask, scale=self.scale, enable_gqa=self.groups > 1,
                kernel_options=self.options, **extra,
            )  # fmt: skip

        return call

    def run(self, compiler: Callable[[Any], Any]) -> list[torch.Tensor]:
        """Results, then gradients."""
        function = compiler(self.function())
        given = [self.mask()] if self.place == "argument" else []
        leaves = [t.detach().requires_grad_(self.trained) for t in self.inputs]
        tables = zip((self.slopes, self.table, self.bias), self.learned, strict=True)
        learned = [t.requires_grad_(self.trained) for t, wanted in tables if wanted]
        found = function(*leaves, *given)
        results = [found] if isinstance(found, torch.Tensor) else [found[0], *_flat(found[1])]
        if not self.trained:
            return results
        torch.manual_seed(0)
        loss: Any = 0
        for each in results:
            if each.requires_grad:
                finite = torch.where(each.isfinite(), each, 0)
                loss = loss + (finite * torch.randn(each.shape, dtype=each.dtype)).sum()
        gradients = torch.autograd.grad(loss, [*leaves, *learned], allow_unused=True)
        return [t.detach() for t in results] + [torch.zeros(1) if g is None else g for g in gradients]


def _flat(found: Any) -> list[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else [t for t in found if t is not None]


#: Functions of the case that give a score_mod.
SCORES: list[Callable[[Any], Modifier]] = [
    lambda c: lambda s, b, h, i, j: s + c.slopes[h] * (j - i),
    lambda c: lambda s, b, h, i, j: s + c.bias[b, h, i, j],
    lambda c: lambda s, b, h, i, j: s + c.table[i - j + c.columns - 1],
    lambda c: lambda s, b, h, i, j: 3 * torch.tanh(s / 3),
    lambda c: lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf")),
    lambda c: lambda s, b, h, i, j: s * c.slopes[h].exp() + c.bias[b, h, i, j] / (1 + (i - j).abs()),
    lambda c: lambda s, b, h, i, j: torch.where((i + j) % 2 == 0, s * 0.5, s + c.table[j]),
    lambda c: lambda s, b, h, i, j: s + c.table[c.documents[b, i]] * c.slopes[c.documents[b][j] % c.heads],
    lambda c: lambda s, b, h, i, j: s * c.bias[b, h, i, j] + c.table[i],
]
#: Functions of the case that give a mask_mod.
MASKS: list[Callable[[Any], Modifier]] = [
    lambda c: lambda b, h, i, j: i >= j,
    lambda c: lambda b, h, i, j: (i >= j) & (i - j < 24),
    lambda c: lambda b, h, i, j: c.documents[b, i] == c.documents[b, j],
    lambda c: lambda b, h, i, j: j < c.lengths[b],
    lambda c: lambda b, h, i, j: (i + j + h) % 3 != 0,
    lambda c: lambda b, h, i, j: i > j,
    lambda c: lambda b, h, i, j: (i // 16 == j // 16) | (h * 40 < j - i),
    lambda c: flex.noop_mask,
]


@contextmanager
def using(kernels: bool) -> Iterator[None]:
    """Kernels of small blocks, where they are asked for."""
    with ExitStack() as stack:
        if kernels:
            stack.enter_context(mock.patch.object(fused, "on_gpu", lambda _: True))
            stack.enter_context(mock.patch.object(ranges, "FEWEST_UNKNOWN", 1))
            stack.enter_context(mock.patch.object(templates, "blocks", lambda kind, *_: Tiles(*SIDES[kind], 4, 1)))
            stack.enter_context(mock.patch.object(launches, "run", launched_template))
        yield


SIDES = {"forward": (16, 32), "query": (16, 16), "key": (32, 16)}


def difference(seed: int, kernels: bool = False) -> str | None:
    """What is wrong with the seed's case, in words."""
    case, exact = Case(seed), Case(seed).widened()
    with warnings.catch_warnings(), mock.patch.object(flex, "_validate_device", lambda *_: None):
        warnings.simplefilter("ignore")
        want, truth = case.run(lambda function: function), exact.run(lambda function: function)
        with mock.patch.object(attention_blocks, "LEAST_ROWS", case.random.choice([8, 32, 128])), using(kernels):
            dynamic = True if case.random.random() < 0.25 else None
            got = case.run(lambda function: dovetail.compile(function, fullgraph=True, dynamic=dynamic))
    return unlike(got, want, truth, SLACK[case.dtype])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kernels", action="store_true")
    chosen = parser.parse_args()
    failed = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        words = difference(seed, chosen.kernels)
        if words:
            failed += 1
            print(f"seed {seed}: {words}")
        dovetail.reset()
    print(f"{failed} of {chosen.count} differ")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
