"""Random legal programs of the loop IR: groups with reductions, locals, run-time indices, checks, calls and views."""

from __future__ import annotations

import random

import torch

from dovetail.ir import dims
from dovetail.ir.loops import (
    Buffer,
    BufferRef,
    Check,
    Const,
    Expr,
    Group,
    Index,
    LibraryCall,
    Load,
    Local,
    Loop,
    Op,
    Output,
    Program,
    Reduce,
    Store,
    View,
)
from dovetail.ir.ranges import new_range
from dovetail.ir.reshape import contiguous_strides

CPU = torch.device("cpu")
F32, F64, I64, BOOL, BF16 = torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16
_UNARY = ("neg", "abs", "exp", "tanh", "floor", "sqrt")
_BINARY = ("add", "sub", "mul", "min", "max")
_TESTS = ("eq", "ne", "lt", "le", "gt", "ge")


def buffer(name: str, sizes: tuple, dtype: torch.dtype = F32, kind: str = "temporary", strides: tuple | None = None):
    return Buffer(name, dtype, CPU, sizes, strides or contiguous_strides(sizes), 0, kind)


class Maker:
    """`readable` are the buffers that the next group may load."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.inputs = [
            buffer("a0", (4, 6), kind="input"), buffer("a1", (6,), kind="input"),
            buffer("a2", (4, 6), kind="input", strides=(1, 4)), buffer("a3", (4,), I64, "input"),
            buffer("a4", (4, 6), BF16, "input"), buffer("a5", (4, 6), F64, "input"),
        ]
        self.readable = list(self.inputs)
        self.items: list = []

    def program(self) -> Program:
        for number in range(self.rng.randint(1, 5)):
            self.rng.choice((self.group, self.group, self.call, self.view))(number)
        written = [b for b in self.readable if b.kind != "input"]
        outputs = [Output(b) for b in self.rng.sample(written, min(len(written), 3))]
        outputs += [Output(None), Output(3), Output(2.5)][: self.rng.randint(0, 3)]
        fits = [b for b in written if (b.sizes, b.dtype) == ((4, 6), F32)]
        mutated = ((self.inputs[2], fits[0]),) if fits and self.rng.random() < 0.5 else ()
        return Program(tuple(self.inputs), tuple(self.items), tuple(outputs), mutated)

    def call(self, number: int) -> None:
        result = buffer(f"c{number}", (4, 4))
        args = (BufferRef(self.inputs[0]), BufferRef(self.inputs[0]))
        transposed = buffer(f"ct{number}", (6, 4), strides=(1, 6))
        self.items.append(View(transposed, self.inputs[0]))
        self.items.append(LibraryCall(f"mm_{number}", torch.ops.aten.mm.default,
                                      (args[0], BufferRef(transposed)), {}, (result,)))
        values, indices = buffer(f"cv{number}", (4, 2)), buffer(f"ci{number}", (4, 2), I64)
        self.items.append(LibraryCall(f"topk_{number}", torch.ops.aten.topk.default, (args[0], 2, -1, True),
                                      {"sorted": True}, (values, self.rng.choice((indices, None)))))
        self.readable.append(result)

    def view(self, number: int) -> None:
        base = self.rng.choice([b for b in self.readable if b.sizes == (4, 6) and b.strides == (6, 1)])
        result = Buffer(f"v{number}", base.dtype, CPU, (2, 3), (12, 2), 1, "temporary")
        self.items.append(View(result, base))
        self.readable.append(result)

    def group(self, number: int) -> None:
        """A row: an optional local, an optional reduction, then the result."""
        rows, columns = new_range(f"i{number}", 4), new_range(f"j{number}", 6)
        out = buffer(f"b{number}", (4, 6), kind=self.rng.choice(("temporary", "output")))
        locals_: tuple[Buffer, ...] = ()
        loops: list[Loop] = []
        known: list[Expr] = []
        if self.rng.random() < 0.3:
            loops.append(Loop((), (self.check(rows),)))
        if self.rng.random() < 0.5:
            row = buffer(f"row{number}", (6,), kind="local")
            locals_ = (row,)
            loops.append(Loop((columns,), (Store(row, (columns,), self.expr(F32, 3, (rows, columns), known)),)))
            known.append(Load(row, (columns,)))
        if self.rng.random() < 0.7:
            kind = self.rng.choice(("sum", "max", "min", "prod"))
            value = self.expr(F32, 2, (rows, columns), known)
            reduce = Reduce(f"r{number}", kind, value, F32)
            extra = Reduce(f"p{number}", self.rng.choice(("argmax", "argmin")), value, I64)
            loops.append(Loop((columns,), (reduce, extra)))
            known += [Local(f"r{number}", F32), Op("cast", (Local(f"p{number}", I64),), F32)]
        loops.append(Loop((columns,), (Store(out, (rows, columns), self.expr(F32, 4, (rows, columns), known)),)))
        self.items.append(Group(f"g{number}", (rows,), tuple(loops), locals_))
        self.readable.append(out)

    def check(self, rows: dims.Dim) -> Check:
        at = Load(self.inputs[3], (rows,))
        inside = Op("and", (Op("ge", (at, Const(0, I64)), BOOL), Op("lt", (at, Const(4, I64)), BOOL)), BOOL)
        return Check(inside, self.rng.choice(("index out of range", "it's \"quoted\": {x}")))

    def expr(self, dtype: torch.dtype, depth: int, ranges: tuple, known: list[Expr]) -> Expr:
        if depth == 0 or self.rng.random() < 0.1:
            return self.leaf(ranges, known)
        again = lambda: self.expr(dtype, depth - 1, ranges, known)
        choice = self.rng.random()
        if choice < 0.3:
            return Op(self.rng.choice(_UNARY), (again(),), dtype)
        if choice < 0.6:
            return Op(self.rng.choice(_BINARY), (again(), again()), dtype)
        if choice < 0.7:
            shared = again()
            return Op("mul", (shared, Op("add", (shared, again()), dtype)), dtype)
        if choice < 0.8:
            test = Op(self.rng.choice(_TESTS), (again(), again()), BOOL)
            if self.rng.random() < 0.4:
                test = Op("not", (Op("or", (test, test), BOOL),), BOOL)
            return Op("where", (test, again(), again()), dtype)
        if choice < 0.9:
            short = self.rng.choice((BF16, F64, I64))
            return Op("cast", (Op("cast", (again(),), short),), dtype)
        return Op("fma", (again(), again(), again()), dtype)

    def leaf(self, ranges: tuple, known: list[Expr]) -> Expr:
        rows, columns = ranges
        choice = self.rng.random()
        if known and choice < 0.4:
            return self.rng.choice(known)
        if choice < 0.55:
            return Const(self.rng.choice((0.0, -0.0, 1.5, -2.0, 1e-05, float("inf"), float("-inf"))), F32)
        if choice < 0.65:
            index = dims.mod(rows * 6 + columns + self.rng.randint(0, 3), self.rng.choice((3, 5)))
            return Op("cast", (Index(index),), F32)
        return self.load(self.rng.choice(self.readable), rows, columns)

    def load(self, source: Buffer, rows: dims.Dim, columns: dims.Dim) -> Expr:
        if source.dtype is I64:
            at = Load(source, (rows,))
            return Load(self.inputs[0], (dims.value(at, 4), columns))
        places = {(4, 6): (rows, columns), (6,): (columns,), (4, 4): (rows, dims.mod(columns, 4)),
                  (2, 3): (dims.floordiv(rows, 2), dims.floordiv(columns, 2))}
        index = places[source.sizes]
        mask = None
        if self.rng.random() < 0.3:
            shift = self.rng.choice((-1, 1))
            moved = index[-1] + shift
            mask = Op("and", (Op("ge", (Index(moved), Const(0, I64)), BOOL),
                              Op("lt", (Index(moved), Const(source.sizes[-1], I64)), BOOL)), BOOL)
            index = (*index[:-1], moved)
        loaded = Load(source, index, mask)
        return loaded if source.dtype is F32 else Op("cast", (loaded,), F32)


def random_program(seed: int) -> Program:
    return Maker(seed).program()


def arguments(program: Program, seed: int) -> list[torch.Tensor]:
    """Tensors that fit the program's inputs; indices are in range."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for b in program.inputs:
        tensor = torch.empty_strided(b.sizes, b.strides, dtype=b.dtype)
        numbers = torch.randn(b.sizes, generator=generator) if b.dtype is not I64 else torch.randint(
            0, 4, b.sizes, generator=generator)
        made.append(tensor.copy_(numbers))
    return made


