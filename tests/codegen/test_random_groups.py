"""Random groups: loops, layouts, reductions and stores in any combination, against the reference."""

from __future__ import annotations

import random

import pytest
import torch

from dovetail.codegen.cpu import Processor
from dovetail.ir import dims
from dovetail.ir.loops import Buffer, Const, Expr, Group, Index, Load, Local, Loop, Op, Reduce, Statement, Store
from dovetail.ir.ranges import extent, new_range
from tests.codegen.harness import CPU, compare, op

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8)
SIZES = (1, 2, 3, 5, 8, 17, 31, 64, 100)
TARGETS = (Processor(64, True), Processor(32, False), Processor(16, False))


class Maker:
    """One random group and its tensors."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tensors: dict[str, torch.Tensor] = {}
        self.outputs: list[str] = []
        self.locals: dict[str, torch.dtype] = {}

    def pick(self, values):
        return self.random.choice(values)

    def buffer(self, shape, dtype, kind) -> Buffer:
        """A tensor of `shape` with permuted, padded or broadcast strides."""
        name = f"{kind[0]}{len(self.tensors)}"
        order = list(range(len(shape)))
        self.random.shuffle(order)
        strides, step = [0] * len(shape), self.pick((1, 1, 1, 2))
        for d in order:
            broadcast = kind == "input" and self.random.random() < 0.2
            strides[d] = 0 if broadcast else step
            step *= 1 if broadcast else max(shape[d], 1) + self.pick((0, 0, 0, 3))
        span = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
        memory = torch.randint(0, 4, (max(span, 1),)).to(dtype)
        if dtype.is_floating_point:
            memory = torch.randint(-8, 9, (max(span, 1),)).to(dtype) / 4
        self.tensors[name] = memory.as_strided(shape, strides)
        return Buffer(name, dtype, CPU, tuple(shape), tuple(strides), 0, kind)

    def leaf(self, ranges) -> Expr:
        choice = self.random.random()
        if choice < 0.1:
            return Const(self.pick((0, 1, 2)), torch.int64)
        if choice < 0.2 and ranges:
            return Index(self.pick(ranges) * self.pick((1, 2)) + self.pick((0, 1)))
        if choice < 0.35 and self.locals:
            name = self.pick(sorted(self.locals))
            return Local(name, self.locals[name])
        if choice < 0.5 and ranges:
            return self.computed(ranges)
        kept = [r for r in ranges if self.random.random() < 0.85]
        self.random.shuffle(kept)
        return Load(self.buffer([extent(r) for r in kept], self.pick(DTYPES), "input"), tuple(kept))

    def computed(self, ranges) -> Expr:
        """A load at an index with // and %, or under a mask, or at a position read from memory or found by a loop."""
        flat = 0
        for r in self.random.sample(ranges, len(ranges)):
            flat = flat * extent(r) + r
        choice = self.random.random()
        if choice < 0.4:
            divisor = self.pick((2, 3, 4, 5, 8))
            place = flat // divisor if self.random.random() < 0.5 else flat % divisor + (flat // divisor) % 3
            return Load(self.buffer([2000], self.pick(DTYPES), "input"), (place % 2000,))
        if choice < 0.7:
            r, low = self.pick(ranges), self.pick((0, 1, 3))
            inside = op(
                "and", op("ge", Index(r), Const(low, torch.int64)), op("lt", Index(r), Const(low + 5, torch.int64))
            )
            return Load(self.buffer([5], self.pick(DTYPES), "input"), (r - low,), inside)
        found = sorted(name for name, dtype in self.locals.items() if dtype == torch.int64)
        if found and self.random.random() < 0.6:
            least = op("max", Local(self.pick(found), torch.int64), Const(0, torch.int64))
            place, r = dims.value(op("min", least, Const(3, torch.int64)), 4), self.pick(ranges)
            shape, index = self.pick((((4,), (place,)), ((4, extent(r)), (place, r)), ((extent(r), 4), (r, place))))
            return Load(self.buffer(shape, self.pick(DTYPES), "input"), index)
        kept = self.random.sample(ranges, self.pick((1, len(ranges))))
        position = Load(self.buffer([extent(r) for r in kept], torch.int64, "input"), tuple(kept))
        return Load(
            self.buffer([4, extent(ranges[0])], self.pick(DTYPES), "input"), (dims.value(position, 4), ranges[0])
        )

    def value(self, ranges, dtype, depth=2) -> Expr:
        """A random expression of `dtype`; exact arithmetic on small numbers only."""
        if depth == 0 or self.random.random() < 0.2:
            leaf = self.leaf(ranges)
            return leaf if leaf.dtype == dtype else Op("cast", (leaf,), dtype)
        a, b = self.value(ranges, dtype, depth - 1), self.value(ranges, dtype, depth - 1)
        if dtype == torch.bool:
            return op(self.pick(("and", "or", "xor")), a, b)
        if self.random.random() < 0.3:
            return op("where", op(self.pick(("lt", "eq")), a, b), b, self.value(ranges, dtype, 0))
        return op(self.pick(("add", "sub", "min", "max")), a, b)

    def statement(self, outer, inner) -> Statement:
        dtype = self.pick(DTYPES)
        if inner and self.random.random() < 0.6:
            kind = self.pick(("min", "max", "argmin", "argmax")) if dtype != torch.bool else self.pick(("any", "all"))
            if dtype in (torch.float32, torch.float64, torch.int64) and self.random.random() < 0.5:
                kind = "sum"
            name, result = f"r{len(self.locals) + len(self.pending)}", torch.int64 if kind.startswith("arg") else dtype
            self.pending[name] = result
            return Reduce(name, kind, self.value([*outer, *inner], dtype), result)
        index = [*outer, *inner]
        self.random.shuffle(index)
        buffer = self.buffer([extent(r) for r in index], dtype, "output")
        self.outputs.append(buffer.name)
        return Store(buffer, tuple(index), self.value([*outer, *inner], dtype))

    def group(self) -> Group:
        sizes = iter(self.random.sample(SIZES, 5))
        outer = [new_range(f"o{k}", next(sizes)) for k in range(self.pick((0, 1, 1, 2)))]
        loops = []
        for number in range(self.pick((1, 1, 2, 3))):
            inner = [new_range(f"n{number}{k}", self.pick(SIZES[:7])) for k in range(self.pick((0, 1, 1, 2)))]
            self.pending: dict[str, torch.dtype] = {}
            body = tuple(self.statement(outer, inner) for _ in range(self.pick((1, 1, 2))))
            self.locals.update(self.pending)
            loops.append(Loop(tuple(inner), body))
        return Group("g", tuple(outer), tuple(loops))


@pytest.mark.parametrize("seed", range(60))
def test_random_group(seed):
    torch.manual_seed(seed)
    maker = Maker(seed)
    group = maker.group()
    if maker.outputs:
        compare(group, maker.tensors, maker.outputs, target=TARGETS[seed % 3])
