"""The reference evaluator: what a Program means, on real tensors, without generating code.

Every loop is evaluated at once over its whole iteration space: ranges are index tensors that broadcast,
Loads gather, Stores scatter, Reduces are torch reductions over the inner dimensions (sums and products of
floats in float64, rounded once). It is slow and it checks what compiled code does not: that every index lies
inside its buffer, that nothing is read before it is written, and that nothing is written twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dovetail.errors import InternalError
from dovetail.ir import dims, dimvalues, loops
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.liveness import writes
from dovetail.ir.memory import Memory, allocate, memory_of, strided
from dovetail.ir.ranges import extent
from dovetail.ir.scalar import SCALAR_OPS

Env = dict[Symbol, Any]


def evaluate(program: loops.Program, inputs: Sequence[Any]) -> list:
    """Run `program` on the caller's inputs, tensors and numbers (constants left out), and return its outputs.

    Mutated inputs are written, after everything else. Raises IndexError where a Check fails and InternalError
    where the program reads or writes what it must not.
    """
    return _Machine(program, inputs).run()


class _Machine:
    """`tensors` are what library calls see, `memories` what groups see; both by buffer name."""

    def __init__(self, program: loops.Program, inputs: Sequence[Any]) -> None:
        self.program = program
        given = {p.name: value for p, value in zip(program.parameters(), inputs, strict=True)}
        self.numbers = {number.name: given.pop(number.name) for _, number in program.numbers}
        self.tensors = {**given, **program.constants}
        self.memories: dict[str, Memory | None] = {name: memory_of(t) for name, t in self.tensors.items()}
        self.sizes = _bind_sizes(program, self.tensors, self.numbers)
        self.mutated = {old.name for old, _ in program.mutated}
        self.inputs = {b.name for b in program.inputs}
        self.stored = {name for item in program.items if isinstance(item, loops.Group) for name in writes(item)}

    def run(self) -> list:
        with torch.no_grad():
            for item in self.program.items:
                _RUN[type(item)](self, item)
            for old, new in self.program.mutated:
                if old.name != new.name:
                    self.tensors[old.name].copy_(self.tensor(new))
            return [self.output(o) for o in self.program.outputs]

    def size(self, dim: Dim) -> int:
        return int(dimvalues.evaluate(dim, self.sizes))

    def shape(self, buffer: loops.Buffer) -> tuple[list[int], list[int], int]:
        sizes, strides = list(map(self.size, buffer.sizes)), list(map(self.size, buffer.strides))
        return sizes, strides, self.size(buffer.offset)

    def tensor(self, buffer: loops.Buffer) -> torch.Tensor:
        """The buffer as a tensor."""
        if buffer.name not in self.tensors:
            memory = self.memories.get(buffer.name)
            if memory is None:
                raise InternalError("evaluate", f"{buffer.name} is used before it is defined, or has no memory")
            self.tensors[buffer.name] = strided(memory, buffer.dtype, *self.shape(buffer))
        return self.tensors[buffer.name]

    # ------------------------------------------------------------ items

    def group(self, group: loops.Group) -> None:
        for statement in group.statements():
            if isinstance(statement, loops.Store):
                self.prepare(statement.buffer, group)
        _GroupRun(self, group).run()

    def prepare(self, buffer: loops.Buffer, group: loops.Group) -> None:
        """Make sure that what a group writes exists and may be written."""
        if buffer.name in self.inputs and buffer.name not in self.mutated:
            raise InternalError("evaluate", f"{group.name} writes the input {buffer.name}")
        if buffer.name not in self.memories and buffer not in group.locals:
            self.memories[buffer.name] = allocate(buffer.dtype, buffer.device, *self.shape(buffer))

    def library(self, call: loops.LibraryCall) -> None:
        kwargs = {name: self.argument(value) for name, value in call.kwargs.items()}
        results = _flat(call.operator(*map(self.argument, call.args), **kwargs))
        if len(results) != len(call.results):
            raise InternalError("evaluate", f"{call.name} gave {len(results)} results, not {len(call.results)}")
        for buffer, result in zip(call.results, results, strict=True):
            if buffer is not None:
                self.accept(call, buffer, result)

    def accept(self, call: loops.LibraryCall, buffer: loops.Buffer, result: torch.Tensor) -> None:
        """Keep a library call's result, which must look as the program says."""
        sizes, strides, _ = self.shape(buffer)
        got_strides = list(result.stride()) if result.layout is torch.strided else strides
        moves = [s for n, s in zip(sizes, strides, strict=True) if n > 1]
        wrong = result.dtype is not buffer.dtype or list(result.shape) != sizes
        if wrong or (0 not in sizes and moves != [s for n, s in zip(sizes, got_strides, strict=True) if n > 1]):
            got = f"{result.dtype} {list(result.shape)} {got_strides}"
            raise InternalError("evaluate", f"{call.name}: {call.operator} gave {got}, "
                                            f"not {buffer.dtype} {sizes} {strides}")
        self.tensors[buffer.name] = result
        self.memories[buffer.name] = memory_of(result)

    def argument(self, value: Any) -> Any:
        if isinstance(value, loops.BufferRef):
            return self.tensor(value.buffer)
        if isinstance(value, loops.Param):
            return self.numbers[value.name]
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.argument, value))
        return self.size(value) if isinstance(value, dims.Poly) else value

    def view(self, view: loops.View) -> None:
        """The base's memory under the result's shape; offsets of both count from the same pointer."""
        memory = self.memories.get(view.base.name)
        if memory is None:
            raise InternalError("evaluate", f"the view {view.result.name} is of {view.base.name}, not defined yet")
        over = view.result.name in self.stored and view.result.dtype is view.base.dtype
        self.memories[view.result.name] = memory.overwritten(view.result.dtype) if over else memory
        base = self.tensor(view.base)
        sizes, strides, offset = self.shape(view.result)
        if base.dtype is view.result.dtype:  # as_strided keeps the conjugate and negative bits
            self.tensors[view.result.name] = base.as_strided(sizes, strides, memory.origin(base.dtype) + offset)
        else:
            self.tensors[view.result.name] = strided(memory, view.result.dtype, sizes, strides, offset)

    def output(self, output: loops.Output) -> Any:
        value = output.value
        if not isinstance(value, loops.Buffer):
            return self.size(value) if isinstance(value, dims.Poly) else value
        return self.tensor(value)


_RUN: dict[type, Callable[[_Machine, Any], None]] = {
    loops.Group: _Machine.group, loops.LibraryCall: _Machine.library, loops.View: _Machine.view,
}


class _GroupRun:
    """One group: `locals` maps reductions to tensors over the outer space."""

    def __init__(self, machine: _Machine, group: loops.Group) -> None:
        self.machine, self.group = machine, group
        self.outer = [machine.size(extent(r)) for r in group.outer]
        self.rank = len(self.outer)  # of the current loop: outer and inner ranges
        self.env: Env = {}
        self.reductions: dict[str, torch.Tensor] = {}
        self.local_names = {b.name for b in group.locals}
        self.memories: dict[str, Memory] = {}
        self.places: dict[str, Any] = {}
        self.memo: dict[loops.Expr, torch.Tensor] = {}
        for buffer in group.locals:
            self.allocate_local(buffer)

    def allocate_local(self, buffer: loops.Buffer) -> None:
        """One copy for each outer index, `places` apart."""
        sizes, strides, offset = self.machine.shape(buffer)
        span = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if 0 not in sizes else 0
        step = span
        self.memories[buffer.name] = allocate(buffer.dtype, buffer.device, [*self.outer, span], None, 0)
        position: Any = torch.zeros((), dtype=torch.int64)
        for k in reversed(range(len(self.outer))):
            position = position + self.range_tensor(k, len(self.outer), self.outer[k]) * step
            step *= self.outer[k]
        self.places[buffer.name] = position

    @staticmethod
    def range_tensor(k: int, rank: int, size: int) -> torch.Tensor:
        return torch.arange(size).reshape([size if d == k else 1 for d in range(rank)])

    def run(self) -> None:
        for loop in self.group.loops:
            self.loop(loop)

    def loop(self, loop: loops.Loop) -> None:
        ranges = (*self.group.outer, *loop.inner)
        space = [*self.outer, *(self.machine.size(extent(r)) for r in loop.inner)]
        self.rank = len(space)
        self.env = dict(self.machine.sizes)
        for k, r in enumerate(ranges):
            self.env[dims.as_symbol(r)] = self.range_tensor(k, self.rank, space[k])
        for statement in loop.body:
            self.memo = {}
            _STATEMENT[type(statement)](self, statement, space)

    # ------------------------------------------------------------ statements

    def store(self, store: loops.Store, space: list[int]) -> None:
        if 0 in space:
            return
        value = self.expr(store.value).expand(space)
        if store.scan:
            flat = value.reshape([*self.outer, -1])
            value = _SCAN[store.scan](flat).to(store.buffer.dtype).reshape(space)
        position = self.position(store.buffer, store.index, None).expand(space)
        self.memory(store.buffer).write(store.buffer, position, value)

    def reduce(self, reduce: loops.Reduce, space: list[int]) -> None:
        value = self.expr(reduce.value).expand(space)
        inner = len(space) - len(self.outer)
        flat = value.reshape([*self.outer, -1] if 0 not in space else [*self.outer, math.prod(space[len(self.outer):])])
        result = flat[..., 0] if not inner and not reduce.kind.startswith("arg") else _REDUCE[reduce.kind](flat)
        self.reductions[reduce.name] = result.to(reduce.dtype)

    def check(self, check: loops.Check, space: list[int]) -> None:
        if 0 not in space and not bool(self.expr(check.condition).all()):
            raise IndexError(check.message)

    # ------------------------------------------------------------ expressions

    def expr(self, expr: loops.Expr) -> torch.Tensor:
        done = self.memo.get(expr)
        if done is None:
            done = self.memo[expr] = _EXPR[type(expr)](self, expr)
            if done.dtype is not expr.dtype:
                raise InternalError("evaluate", f"{expr} has dtype {expr.dtype} and computes {done.dtype}")
        return done

    def dim(self, dim: Dim) -> torch.Tensor:
        result = dimvalues.evaluate(dim, self.env, self.expr)
        return result if isinstance(result, torch.Tensor) else torch.tensor(result)

    def const(self, const: loops.Const) -> torch.Tensor:
        return torch.tensor(const.value, dtype=const.dtype)

    def param(self, param: loops.Param) -> torch.Tensor:
        return torch.tensor(self.machine.numbers[param.name], dtype=param.dtype)

    def index(self, index: loops.Index) -> torch.Tensor:
        return self.dim(index.dim).to(torch.int64)

    def local(self, local: loops.Local) -> torch.Tensor:
        if local.name not in self.reductions:
            raise InternalError("evaluate", f"{self.group.name} uses {local.name} before it is reduced")
        value = self.reductions[local.name]
        return value.reshape([*value.shape, *[1] * (self.rank - value.dim())])

    def op(self, op: loops.Op) -> torch.Tensor:
        args = [self.expr(a) for a in op.args]
        if op.name in ("cast", "rounded"):
            return args[0].to(op.dtype)
        if op.name == "bitcast":
            return args[0].contiguous().view(op.dtype)
        if op.name in _DIVISIONS and not op.dtype.is_floating_point:
            return _divide(op.name, *args)
        return SCALAR_OPS[op.name].evaluate(*args)

    def load(self, load: loops.Load) -> torch.Tensor:
        mask = None if load.mask is None else self.expr(load.mask)
        if mask is not None and not bool(mask.any()):
            return torch.zeros([1] * self.rank, dtype=load.dtype)
        position = self.position(load.buffer, load.index, mask)
        value = self.memory(load.buffer).read(load.buffer, position, mask)
        return value if mask is None else torch.where(mask, value, torch.zeros((), dtype=load.dtype))

    def memory(self, buffer: loops.Buffer) -> Memory:
        memory = self.memories.get(buffer.name) or self.machine.memories.get(buffer.name)
        if memory is None:
            raise InternalError("evaluate", f"{self.group.name} reads {buffer.name} before it is defined")
        return memory

    def position(self, buffer: loops.Buffer, index: tuple[Dim, ...], mask: torch.Tensor | None) -> torch.Tensor:
        """Elements from the data pointer; 0 where the mask is false. Every index must be inside the buffer."""
        sizes, strides, offset = self.machine.shape(buffer)
        position = torch.full([1] * self.rank, offset)
        for axis, (dim, size, stride) in enumerate(zip(index, sizes, strides, strict=True)):
            at = self.dim(dim).to(torch.int64)
            inside = (at >= 0) & (at < size)
            if not bool((inside if mask is None else inside | ~mask).all()):
                raise InternalError("evaluate", f"{self.group.name}: index {axis} of {buffer.name}{list(index)} leaves "
                                                f"[0, {size}): it reaches {int(at.min())}..{int(at.max())}")
            position = position + at * stride
        if buffer.name in self.places:
            place = self.places[buffer.name]
            position = position + place.reshape([*place.shape, *[1] * (self.rank - place.dim())])
        return position if mask is None else torch.where(mask, position, -1)


_STATEMENT: dict[type, Callable[..., None]] = {
    loops.Store: _GroupRun.store, loops.Reduce: _GroupRun.reduce, loops.Check: _GroupRun.check,
}
_EXPR: dict[type, Callable[[_GroupRun, Any], torch.Tensor]] = {
    loops.Const: _GroupRun.const, loops.Param: _GroupRun.param, loops.Index: _GroupRun.index,
    loops.Load: _GroupRun.load, loops.Local: _GroupRun.local, loops.Op: _GroupRun.op,
}


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.dtype.is_floating_point else x


def _arg(reduce: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: reduce(x.to(torch.uint8) if x.dtype is torch.bool else x, dim=-1)


#: Each reduces the last dimension; the caller converts to the Reduce's own dtype.
_REDUCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: _wide(x).sum(-1), "prod": lambda x: _wide(x).prod(-1),
    "min": lambda x: x.amin(-1), "max": lambda x: x.amax(-1),
    "any": lambda x: x.bool().any(-1), "all": lambda x: x.bool().all(-1),
    "argmin": _arg(torch.argmin), "argmax": _arg(torch.argmax),
}

#: Each goes along the last dimension.
_SCAN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: _wide(x).cumsum(-1), "prod": lambda x: _wide(x).cumprod(-1),
    "min": lambda x: x.cummin(-1).values, "max": lambda x: x.cummax(-1).values,
    "logsum": lambda x: _wide(x).logcumsumexp(-1),
}

_DIVISIONS = frozenset({"floordiv", "truncdiv", "remainder", "fmod"})


def _divide(name: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Integer division without traps: by zero gives 0, the least number by -1 wraps around."""
    special = (b == 0) | (b == -1)
    result = SCALAR_OPS[name].evaluate(a, torch.where(special, torch.ones_like(b), b))
    by_minus_one = torch.neg(a) if name in ("floordiv", "truncdiv") else torch.zeros_like(a)
    result = torch.where(b == -1, by_minus_one, result) if b.dtype is not torch.uint8 else result
    return torch.where(b == 0, torch.zeros_like(result), result)


def _flat(result: Any) -> list:
    if isinstance(result, (tuple, list)):
        return [inner for part in result for inner in _flat(part)]
    return [result]


def _bind_sizes(program: loops.Program, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, Any]) -> Env:
    """The value of every size symbol, read off the inputs' sizes and strides, and off numbers."""
    given: list[tuple[int, Dim]] = []
    for buffer in program.inputs:
        tensor = tensors[buffer.name]
        if tensor.layout is torch.strided:
            given += zip((*tensor.shape, *tensor.stride()), (*buffer.sizes, *buffer.strides), strict=True)
    env = dimvalues.values([*given, *((numbers[param.name], dim) for param, dim in program.measured)])
    missing = [s.name for s in program.sizes if s not in env]
    if missing:
        raise InternalError("evaluate", f"no input has the size {', '.join(missing)}")
    return env
