"""Build small groups, run them as kernels, and evaluate them with torch for comparison."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.codegen.cpu import Processor, generate
from dovetail.ir import dims, dimvalues
from dovetail.ir.kernel import NOTHING, REPORT, Kernel, Limit
from dovetail.ir.loops import Buffer, Const, Dim, Expr, Group, Index, Load, Local, Loop, Op, Reduce, Store
from dovetail.ir.ranges import extent, new_range
from dovetail.ir.scalar import SCALAR_OPS
from dovetail.options import Options
from dovetail.runtime.cpu import load
from dovetail.runtime.store import Store as Disk

CPU = torch.device("cpu")


def buffer(name: str, tensor: torch.Tensor, kind: str = "input") -> Buffer:
    return Buffer(name, tensor.dtype, CPU, tuple(tensor.shape), tuple(tensor.stride()), 0, kind)


def op(name: str, *args: Expr, dtype: torch.dtype | None = None) -> Op:
    row = SCALAR_OPS[name]
    result = torch.bool if row.result == "bool" else args[-1].dtype
    return Op(name, args, dtype or result)


def run(
    group: Group,
    tensors: dict[str, torch.Tensor],
    options: Options | None = None,
    target: Processor | None = None,
    sizes: dict[Any, int] | None = None,
) -> int:
    """Compile and run; the status. A checked kernel gets the extents of the very tensors; it must keep to them."""
    kernel = generate(group, options, target)
    function = load([kernel], Disk(None))[kernel.symbol]
    memory = {**tensors, REPORT: torch.full((len(kernel.accesses),), NOTHING)}
    numbers = [number(kernel, s, memory, sizes or {}) for s in kernel.sizes]
    status = function(*(memory[b.name].data_ptr() for b in kernel.pointers), *numbers)
    assert not faults(kernel, memory[REPORT])
    return status


def number(kernel: Kernel, size: Any, tensors: dict[str, torch.Tensor], sizes: dict[Any, int]) -> int:
    """What a kernel is given for one of its sizes."""
    if not isinstance(size, Limit):
        return dimvalues.evaluate(size, sizes)
    return _span(tensors[kernel.pointers[size.pointer].name]) if size.end else 0


def faults(kernel: Kernel, report: torch.Tensor) -> list[tuple[str, bool, int]]:
    """The accesses that a report tells of: buffer, whether it was to be written, place."""
    words = zip(kernel.accesses, report.tolist(), strict=True)
    return [(access.buffer.name, access.stores, word) for access, word in words if word != NOTHING]


def pointwise(value: Any, inputs: dict[str, torch.Tensor], output: torch.Tensor) -> Group:
    """`output[...] = value(loads)` over the output's shape; inputs broadcast."""
    index = tuple(new_range(f"i{k}", n) for k, n in enumerate(output.shape))
    loads = []
    for name, tensor in inputs.items():
        own = index[len(index) - tensor.dim() :]
        own = tuple(0 if n == 1 else r for n, r in zip(tensor.shape, own, strict=True))
        loads.append(Load(buffer(name, tensor), own))
    return Group("g", index, (Loop((), (Store(buffer("out", output, "output"), index, value(*loads)),)),))


def check_pointwise(value: Any, expected: torch.Tensor, *inputs: torch.Tensor, target: Processor | None = None) -> None:
    """Run `value` as a kernel on inputs and compare bitwise (NaNs equal) with `expected`."""
    output = torch.empty_like(expected)
    named = {f"x{k}": t for k, t in enumerate(inputs)}
    assert run(pointwise(value, named, output), {**named, "out": output}, target=target) == 0
    assert same(output, expected), (output, expected)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype.is_floating_point:
        return bool(((a == b) | (a.isnan() & b.isnan())).all())
    return torch.equal(a, b)


class Reference:
    """Evaluates a group of static sizes with torch, one broadcast tensor for each expression."""

    def __init__(self, group: Group, tensors: dict[str, torch.Tensor]) -> None:
        self.group, self.tensors = group, dict(tensors)
        self.locals: dict[str, torch.Tensor] = {}
        for local in group.locals:
            shape = [extent(r) for r in group.outer] + list(local.sizes)
            self.tensors[local.name] = torch.zeros(shape, dtype=local.dtype)  # type: ignore[arg-type]

    def run(self) -> None:
        for loop in self.group.loops:
            ranges = [*self.group.outer, *loop.inner]
            self.shape = [extent(r) for r in ranges]
            self.env = {
                dims.as_symbol(r): torch.arange(extent(r)).reshape([-1 if k == j else 1 for k in range(len(ranges))])  # type: ignore[arg-type]
                for j, r in enumerate(ranges)
            }
            for statement in loop.body:
                self.memo: dict[Expr, torch.Tensor] = {}
                if isinstance(statement, Store):
                    places = self.places(statement.buffer, statement.index)
                    value = self.value(statement.value).expand(self.shape)
                    tensor = self.tensors[statement.buffer.name]
                    flat = tensor.as_strided((_span(tensor),), (1,))
                    flat[places.expand(self.shape).reshape(-1)] = value.reshape(-1)
                elif isinstance(statement, Reduce):
                    self.reduce(statement, len(self.group.outer))

    def reduce(self, statement: Reduce, outer: int) -> None:
        value = self.value(statement.value).expand(self.shape).reshape((*self.shape[:outer], -1))
        function = {
            "sum": lambda v: v.to(torch.float64 if statement.dtype.is_floating_point else statement.dtype).sum(-1),
            "prod": lambda v: v.to(statement.dtype).prod(-1), "min": lambda v: v.amin(-1), "max": lambda v: v.amax(-1),
            "any": lambda v: v.any(-1), "all": lambda v: v.all(-1),
            "argmin": lambda v: _first(v.int() if v.dtype == torch.bool else v, True),
            "argmax": lambda v: _first(v.int() if v.dtype == torch.bool else v, False),
        }[statement.kind]  # fmt: skip
        self.locals[statement.name] = function(value).to(statement.dtype)

    def places(self, buffer: Buffer, index: tuple[Dim, ...]) -> torch.Tensor:
        tensor = self.tensors[buffer.name]
        total = torch.zeros([1] * len(self.shape), dtype=torch.int64)
        if buffer.kind == "local":
            index = (*self.group.outer, *index)
            strides: tuple[Any, ...] = tensor.stride()
        else:
            strides = buffer.strides
            total = total + buffer.offset
        for place, stride in zip(index, strides, strict=True):
            total = total + dimvalues.evaluate(place, self.env, self.value) * stride
        return total

    def value(self, expr: Expr) -> torch.Tensor:
        if expr not in self.memo:
            self.memo[expr] = self._value(expr)
        return self.memo[expr]

    def _value(self, expr: Expr) -> torch.Tensor:
        if isinstance(expr, Const):
            return torch.tensor(expr.value, dtype=expr.dtype)
        if isinstance(expr, Index):
            return torch.as_tensor(dimvalues.evaluate(expr.dim, self.env, self.value), dtype=torch.int64)
        if isinstance(expr, Local):
            value = self.locals[expr.name]
            return value.reshape((*value.shape, *[1] * (len(self.shape) - value.dim())))
        if isinstance(expr, Load):
            places = self.places(expr.buffer, expr.index)
            mask = torch.tensor(True) if expr.mask is None else self.value(expr.mask)
            places, mask = torch.broadcast_tensors(places, mask)
            tensor = self.tensors[expr.buffer.name]
            flat = tensor.as_strided((_span(tensor),), (1,))
            return torch.where(mask, flat[torch.where(mask, places, 0)], torch.zeros((), dtype=expr.dtype))
        assert isinstance(expr, Op)
        args = [self.value(a) for a in expr.args]
        if expr.name in ("cast", "rounded"):
            return args[0].to(expr.dtype)
        if expr.name == "bitcast":
            return args[0].view(expr.dtype)
        return SCALAR_OPS[expr.name].evaluate(*args)


def _span(tensor: torch.Tensor) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0


def _first(value: torch.Tensor, smallest: bool) -> torch.Tensor:
    """First position of the extreme, NaN counting as extreme."""
    extreme = value.amin(-1, keepdim=True) if smallest else value.amax(-1, keepdim=True)
    hit = (value == extreme) | (value != value)
    if value.dtype.is_floating_point:
        hit = torch.where(value.isnan().any(-1, keepdim=True), value.isnan(), hit)
    return hit.int().argmax(-1)


def compare(
    group: Group, tensors: dict[str, torch.Tensor], outputs: list[str], tolerance: float = 0.0, run: Any = run,
    **how: Any,
) -> None:  # fmt: skip
    """Run the kernel, as `run` does, and the reference from the same state; outputs must agree."""
    expected = {name: t.clone() if name in outputs else t for name, t in tensors.items()}
    for name in outputs:  # clones of strided outputs keep their strides
        expected[name] = torch.empty_strided(
            tensors[name].shape, tensors[name].stride(), dtype=tensors[name].dtype
        ).copy_(tensors[name])
    Reference(group, expected).run()
    assert run(group, tensors, **how) == 0
    for name in outputs:
        got, want = tensors[name], expected[name]
        if tolerance and got.dtype.is_floating_point:
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert same(got, want), (name, got, want)
