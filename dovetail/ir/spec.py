"""What a legal Program is, as a table of rules, each checked by one small function.

`verify` runs every rule over every item, loop, statement and expression it applies to, and raises
VerificationError naming the place and the rule. What cannot be decided for symbolic sizes is taken as legal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

import torch

from dovetail.errors import VerificationError
from dovetail.ir import dims, loops
from dovetail.ir.access import covers_once, crosses_iterations, stays_inside
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.liveness import leaves, nodes, output_buffers, reads, statement_roots, view_roots, writes
from dovetail.ir.records import dataclass
from dovetail.ir.scalar import REDUCTIONS, SCALAR_OPS, SCANS

KINDS = frozenset({"input", "output", "temporary", "local"})
_INTS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
                   torch.uint16, torch.uint32, torch.uint64})
_FLOATS = frozenset({torch.float32, torch.float64})
_HALF = frozenset({torch.float16, torch.bfloat16})
_BOOL = frozenset({torch.bool})

#: Which dtypes each domain of `ir/scalar.py` admits. Half types only pass through selection and conversion.
DOMAINS: dict[str, frozenset[torch.dtype]] = {
    "float": _FLOATS, "int": _INTS, "long": frozenset((torch.int64,)), "bool": _BOOL, "bits": _INTS | _BOOL,
    "number": _INTS | _FLOATS, "any": _INTS | _FLOATS | _HALF | _BOOL,
}

Problems = Iterator[str]


def verify(program: loops.Program) -> None:
    """Raise VerificationError for the first rule that `program` breaks."""
    for place, problem in problems(program):
        raise VerificationError("verify", f"{place}: {problem}")


def problems(program: loops.Program) -> Iterator[tuple[str, str]]:
    """Every broken rule as (place, what is wrong)."""
    scope = _Scope(program)
    for whole in PROGRAM_RULES:
        yield from (("program", p) for p in whole(program))
    for item in program.items:
        for rule in ITEM_RULES:
            yield from ((_name(item), p) for p in rule(item, scope))
        if isinstance(item, loops.Group):
            yield from ((item.name, p) for p in _group(item, scope))
        scope.define(item)


def _name(item: Any) -> str:
    return item.name if isinstance(item, (loops.Group, loops.LibraryCall)) else f"view {item.result.name}"


@dataclass
class _Scope:
    """What is defined before the current item."""

    program: loops.Program
    defined: dict[str, loops.Buffer] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.defined = {b.name: b for b in self.program.inputs}
        self.roots = view_roots(self.program)

    def define(self, item: Any) -> None:
        self.defined.update(writes(item))


# ---------------------------------------------------------------- the program as a whole


def unique_names(program: loops.Program) -> Problems:
    """Names of inputs, groups, calls and views are unique; a name always means one buffer."""
    names = [*(b.name for b in program.inputs), *(i.result.name for i in program.items if isinstance(i, loops.View)),
             *(b.name for i in program.items for b in writes(i).values()
               if isinstance(i, loops.LibraryCall) and b.kind != "input")]
    names += [i.name for i in program.items if not isinstance(i, loops.View)]
    yield from (f"the name {name} is used twice" for name in _repeated(names))
    known: dict[str, loops.Buffer] = {b.name: b for b in program.inputs}
    for item in program.items:
        for name, buffer in (*reads(item).items(), *writes(item).items()):
            if known.setdefault(name, buffer) != buffer:
                yield f"{name} is two different buffers: {buffer} in {_name(item)}"


def outputs_written(program: loops.Program) -> Problems:
    """What the program returns, and each mutated input's new value, is written."""
    defined = {b.name for b in program.inputs}
    for item in program.items:
        defined |= set(writes(item))
    for k, output in enumerate(program.outputs):
        if isinstance(output.value, loops.Buffer) and output.value.name not in defined:
            yield f"output {k} is {output.value}, which nothing writes"
    for old, new in program.mutated:
        if old not in program.inputs:
            yield f"{old} is mutated and no input"
        if new.name not in defined:
            yield f"the new value {new} of {old} is never written"


def inputs_respected(program: loops.Program) -> Problems:
    """Inputs have kind `input`, nothing else has; only mutated ones are written, through views too."""
    inputs = {b.name for b in program.inputs}
    mutated = {old.name for old, _ in program.mutated}
    yield from (f"the input {b} has kind {b.kind}" for b in program.inputs if b.kind != "input")
    roots = view_roots(program)
    for item in program.items:
        for name, buffer in writes(item).items():
            if buffer.kind == "input" and name not in inputs:
                yield f"{name} has kind input and is none"
            if not isinstance(item, loops.View) and (root := roots.get(name, name)) in inputs - mutated:
                yield f"{item.name} writes the input {root}"
    yield from (f"the constant {name} is no input" for name in program.constants if name not in inputs)


def overwritten_unread(program: loops.Program) -> Problems:
    """Once a group writes to a view, what lay there before is neither read nor returned."""
    stored = {name for item in program.items if isinstance(item, loops.Group) for name in writes(item)}
    shown: dict[str, str] = {}  # by a view's name, the buffer whose elements it shows
    below: dict[str, str] = {}
    gone: dict[str, str] = {}
    for item in program.items:
        for name in reads(item):
            if shown.get(name, name) in gone:
                yield f"{_name(item)} reads {name}, which {gone[shown.get(name, name)]} has overwritten"
        if isinstance(item, loops.View):
            base = shown.get(item.base.name, item.base.name)
            shown[item.result.name] = item.result.name if item.result.name in stored else base
            below[item.result.name] = base
            if item.result.name in stored and item.result.dtype is not item.base.dtype:
                yield f"{item.result} is written over {item.base}, which has another dtype"
        elif isinstance(item, loops.Group):
            gone.update((below[name], name) for name in writes(item) if name in below)
    for name in output_buffers(program):
        if shown.get(name, name) in gone:
            yield f"{name} outlives the program, and {gone[shown.get(name, name)]} has overwritten it"


def elements_written_once(program: loops.Program) -> Problems:
    """No two stores of the program write one element of a buffer, where that is decidable."""
    stores: dict[str, list[tuple[loops.Store, tuple[Symbol, ...]]]] = {}
    for item in program.items:
        if isinstance(item, loops.Group):
            local = {b.name for b in item.locals}
            for loop in item.loops:
                ranges = tuple(dims.as_symbol(r) for r in (*item.outer, *loop.inner))
                for s in loop.body:
                    if isinstance(s, loops.Store) and s.buffer.name not in local:
                        stores.setdefault(s.buffer.name, []).append((s, ranges))
    for name, found in stores.items():
        if covers_once(found) is False:
            yield f"an element of {name} is written twice"


def buffers_valid(program: loops.Program) -> Problems:
    """Kinds are known; sizes and strides pair up; sizes are not negative."""
    found = {b.name: b for b in program.inputs}
    for item in program.items:
        found.update({**reads(item), **writes(item)})
        found.update({b.name: b for b in item.locals} if isinstance(item, loops.Group) else {})
    for buffer in found.values():
        if buffer.kind not in KINDS:
            yield f"{buffer} has the unknown kind {buffer.kind!r}"
        if len(buffer.sizes) != len(buffer.strides):
            yield f"{buffer} has {len(buffer.sizes)} sizes and {len(buffer.strides)} strides"
        if any(isinstance(n, int) and n < 0 for n in buffer.sizes):
            yield f"{buffer} has a negative size"
        free = {s for d in (*buffer.sizes, *buffer.strides, buffer.offset) for s in dims.symbols(d)}
        if any(s.extent is not None for s in free):
            yield f"the shape of {buffer} mentions a loop range"


def numbers_declared(program: loops.Program) -> Problems:
    """Numbers are int64 or float64, have different places, and those that groups and calls use are declared."""
    declared = {number for _, number in program.numbers}
    places = [place for place, _ in program.numbers]
    yield from (f"the place {place} has two numbers" for place in _repeated(places))
    yield from (f"the number {n.name} is {n.dtype}" for n in declared if n.dtype not in (torch.int64, torch.float64))
    for item in program.items:
        used = set(_numbers(item))
        yield from (f"{_name(item)} uses {n.name}, which is no number of the program" for n in used - declared)


def buckets_divide(program: loops.Program) -> Problems:
    """Each buffer among the outputs is in one bucket, if there are any."""
    places = [place for bucket in program.buckets for place in bucket]
    yield from (f"output {place} is in two buckets" for place in _repeated(places))
    given = {k for k, output in enumerate(program.outputs) if isinstance(output.value, loops.Buffer)}
    if places:
        yield from (f"output {place} is in no bucket" for place in sorted(given.difference(places)))


def _numbers(item: Any) -> Iterator[loops.Param]:
    if isinstance(item, loops.Group):
        roots = [root for statement in item.statements() for root in statement_roots(statement)]
        yield from (node for node in nodes(roots) if isinstance(node, loops.Param))
    elif isinstance(item, loops.LibraryCall):
        yield from (leaf for leaf in leaves((item.args, dict(item.kwargs))) if isinstance(leaf, loops.Param))


PROGRAM_RULES: tuple[Callable[[loops.Program], Problems], ...] = (
    unique_names, buffers_valid, outputs_written, inputs_respected, overwritten_unread, elements_written_once,
    numbers_declared, buckets_divide,
)


# ---------------------------------------------------------------- items


def defined_before_use(item: Any, scope: _Scope) -> Problems:
    """What an item reads is an input or written by an earlier item (or by the group itself)."""
    own = set(writes(item)) if isinstance(item, loops.Group) else set()
    for name, buffer in reads(item).items():
        if name not in scope.defined and name not in own:
            yield f"{buffer} is read before anything writes it"


def view_kept_in_bounds(item: Any, scope: _Scope) -> Problems:
    """A view of memory that the program made lies inside it."""
    if isinstance(item, loops.View) and item.base.kind != "input":
        base = scope.defined.get(scope.roots.get(item.base.name, item.base.name))
        if base is not None and base.kind != "input" and stays_inside(item.result, base) is False:
            yield f"the view {item.result} leaves the memory of {base}"


def call_results_new(item: Any, scope: _Scope) -> Problems:
    """A library call's results start at offset 0 and nothing wrote them before, but for inputs that it writes into."""
    if isinstance(item, loops.LibraryCall):
        into = reads(item) if item.operator._schema.name.endswith("_") else {}
        for buffer in item.results:
            if buffer is None or buffer.kind == "input" and buffer.name in into:
                continue
            if buffer.name in scope.defined or buffer.offset != 0:
                yield f"the result {buffer} is not a new tensor"


ITEM_RULES: tuple[Callable[[Any, _Scope], Problems], ...] = (defined_before_use, view_kept_in_bounds, call_results_new)


# ---------------------------------------------------------------- groups


@dataclass
class _Context:
    """Where a statement stands: its group and loop, and what may be named there."""

    group: loops.Group
    loop: loops.Loop
    ranges: tuple[Symbol, ...]
    reductions: dict[str, torch.dtype]
    written: set[str]  # locals of the group and buffers stored earlier in it
    defined: dict[str, loops.Buffer]

    def bound(self, dim_or_expr: Iterable[Symbol]) -> Iterator[Symbol]:
        """Symbols that nothing binds here."""
        return (s for s in dim_or_expr if s not in self.ranges and s.extent is not None)


def _group(group: loops.Group, scope: _Scope) -> Problems:
    yield from _ranges(group)
    reductions: dict[str, torch.dtype] = {}
    written: set[str] = set()
    for loop in group.loops:
        ranges = tuple(dims.as_symbol(r) for r in (*group.outer, *loop.inner))
        context = _Context(group, loop, ranges, reductions, written, scope.defined)
        for statement in loop.body:
            for rule in STATEMENT_RULES[type(statement)]:
                yield from rule(statement, context)
            for node in nodes(statement_roots(statement)):
                for rule in EXPR_RULES.get(type(node), ()):
                    yield from rule(node, context)
            if isinstance(statement, loops.Store):
                written.add(statement.buffer.name)
        for statement in loop.body:  # a loop's own reductions are complete only after it
            if isinstance(statement, loops.Reduce):
                if statement.name in reductions:
                    yield f"the reduction {statement.name} is defined twice"
                reductions[statement.name] = statement.dtype
    yield from crosses_iterations(group, scope.roots)


def _ranges(group: loops.Group) -> Problems:
    """Ranges start at 0, have an extent over sizes only, and have one meaning in each loop."""
    for loop in group.loops or (loops.Loop((), ()),):
        symbols = [dims.as_symbol(r) for r in (*group.outer, *loop.inner)]
        yield from (f"the range {name} is bound twice" for name in _repeated(symbols))
        for symbol in symbols:
            if symbol.extent is None or symbol.lo != 0:
                yield f"{symbol.name} is no range: it has no extent or does not start at 0"
            elif any(s.extent is not None for s in dims.symbols(symbol.extent)):
                yield f"the extent {symbol.extent} of {symbol.name} mentions a loop range"
    for name in _repeated(b.name for b in group.locals):
        yield f"the local {name} is declared twice"
    for buffer in group.locals:
        if buffer.kind != "local":
            yield f"the local {buffer} has kind {buffer.kind}"


def _index(buffer: loops.Buffer, index: tuple[Dim, ...], context: _Context) -> Problems:
    if len(index) != len(buffer.sizes):
        yield f"{buffer} of rank {len(buffer.sizes)} has {len(index)} indices"
    for dim in index:
        yield from (f"the range {s.name} in {buffer}[{dim}] is not bound" for s in context.bound(dims.symbols(dim)))
    if buffer.kind == "local" and buffer not in context.group.locals:
        yield f"{buffer} is local to another group"


def _in_bounds(buffer: loops.Buffer, index: tuple[Dim, ...]) -> Problems:
    """Indices that are certainly outside are wrong."""
    for dim, size in zip(index, buffer.sizes, strict=True):
        lo, hi = dims.bounds(dim)
        most = dims.bounds(size)[1]
        if any(True for _ in loops.value_exprs((dim,))) or most is None:
            continue
        exact = isinstance(dim, int) or _affine(dim)
        if exact and hi is not None and hi >= most and all(s.extent is not None for s in dims.symbols(dim)):
            yield f"index {dim} of {buffer} reaches {hi}, beyond its size {size}"
        if exact and lo is not None and lo < 0:
            yield f"index {dim} of {buffer} reaches {lo}"


def _affine(dim: Dim) -> bool:
    """Then its bounds are reached, if no range is empty."""
    if isinstance(dim, int):
        return True
    extents = [s.extent for s in dim.symbols]
    return (all(isinstance(e, int) and e > 0 for e in extents)
            and all(dims.coefficient(dim, s) is not None for s in dim.symbols))


def store_valid(store: loops.Store, context: _Context) -> Problems:
    """A store writes inside of its buffer, and scans only where a scan is allowed."""
    yield from _index(store.buffer, store.index, context)
    if _runs(context):
        yield from _in_bounds(store.buffer, store.index)
    if store.scan:
        yield from scan_valid(store, context)
    if store.value.dtype is not store.buffer.dtype:
        yield f"{store.buffer} of {store.buffer.dtype} is given {store.value.dtype}"


def scan_valid(store: loops.Store, context: _Context) -> Problems:
    """A scan is one that exists, over an inner loop, in a dtype that can accumulate."""
    if store.scan not in SCANS:
        yield f"{store.buffer} is given the unknown scan {store.scan!r}"
    if not context.loop.inner:
        yield f"{store.buffer} is given a scan over nothing"
    if store.buffer.dtype in _HALF or store.buffer.dtype is torch.bool:
        yield f"{store.buffer} is given a scan in {store.buffer.dtype}"


def reduce_valid(reduce: loops.Reduce, context: _Context) -> Problems:
    """A reduction is of a kind that exists, and its dtypes fit it."""
    positional = reduce.kind in ("argmin", "argmax")
    if reduce.kind not in REDUCTIONS:
        yield f"{reduce.name} has the unknown kind {reduce.kind!r}"
    expected = torch.int64 if positional else reduce.value.dtype
    if reduce.dtype is not expected:
        yield f"{reduce.name} is {reduce.dtype}; {reduce.kind} of {reduce.value.dtype} is {expected}"
    if reduce.kind in ("any", "all") and reduce.value.dtype is not torch.bool:
        yield f"{reduce.name}: {reduce.kind} of {reduce.value.dtype}"
    if reduce.value.dtype in _HALF and not positional and reduce.kind in ("sum", "prod"):
        yield f"{reduce.name} accumulates in {reduce.value.dtype}"


def check_valid(check: loops.Check, context: _Context) -> Problems:
    """A check asks for a bool."""
    if check.condition.dtype is not torch.bool:
        yield f"a check's condition is {check.condition.dtype}"


def _runs(context: _Context) -> bool:
    return all(not isinstance(s.extent, int) or s.extent > 0 for s in context.ranges)


STATEMENT_RULES: dict[type, tuple[Callable[[Any, _Context], Problems], ...]] = {
    loops.Store: (store_valid,), loops.Reduce: (reduce_valid,), loops.Check: (check_valid,),
}


# ---------------------------------------------------------------- expressions


def symbols_bound(expr: loops.Expr, context: _Context) -> Problems:
    """Every range in an index is bound by a loop around it."""
    yield from (f"the range {s.name} in {expr} is not bound" for s in context.bound(expr.symbols))


def const_fits(const: loops.Const, context: _Context) -> Problems:
    """A constant's Python type is that of its dtype."""
    wanted = (bool if const.dtype is torch.bool else
              float if const.dtype.is_floating_point else int if const.dtype in _INTS else object)
    if type(const.value) is not wanted:
        yield f"the constant {const.value!r} has dtype {const.dtype}"
    elif wanted is int and not torch.iinfo(const.dtype).min <= const.value <= torch.iinfo(const.dtype).max:
        yield f"the constant {const.value} does not fit {const.dtype}"


def load_valid(load: loops.Load, context: _Context) -> Problems:
    """A load reads inside of its buffer, wherever its mask is true."""
    yield from _index(load.buffer, load.index, context)
    if load.mask is not None and load.mask.dtype is not torch.bool:
        yield f"the mask of {load} is {load.mask.dtype}"
    local = load.buffer.kind == "local"
    if load.mask is None and _runs(context):
        yield from _in_bounds(load.buffer, load.index)
    if load.buffer.name not in context.written and (local or load.buffer.name not in context.defined):
        yield f"{load.buffer} is read before anything writes it"


def local_defined(local: loops.Local, context: _Context) -> Problems:
    """A local is reduced before it is read, with the dtype that it has there."""
    dtype = context.reductions.get(local.name)
    if dtype is None:
        yield f"{local.name} is used before it is reduced"
    elif dtype is not local.dtype:
        yield f"{local.name} is {dtype}, used as {local.dtype}"


def op_valid(op: loops.Op, context: _Context) -> Problems:
    """An operator exists, and its operands are as many, and of the dtypes, that its row says."""
    row = SCALAR_OPS.get(op.name)
    if row is None or len(op.args) != row.arity:
        yield f"unknown operator {op.name}/{len(op.args)}"
        return
    values = op.args[1:] if op.name == "where" else op.args
    if op.name == "where" and op.args[0].dtype is not torch.bool:
        yield f"where's condition is {op.args[0].dtype}"
    dtype = values[0].dtype
    if any(a.dtype is not dtype for a in values):
        yield f"{op.name} of {', '.join(str(a.dtype) for a in values)}"
    if dtype not in DOMAINS[row.domain]:
        yield f"{op.name} of {dtype}, outside its domain {row.domain!r}"
    expected = {"same": dtype, "bool": torch.bool, "given": op.dtype}[row.result]
    if op.dtype is not expected:
        yield f"{op.name} of {dtype} is {expected}, not {op.dtype}"
    if op.name == "bitcast" and op.dtype.itemsize != dtype.itemsize:
        yield f"bitcast from {dtype} to {op.dtype}"


EXPR_RULES: dict[type, tuple[Callable[[Any, _Context], Problems], ...]] = {
    loops.Const: (const_fits,), loops.Load: (load_valid, symbols_bound), loops.Local: (local_defined,),
    loops.Op: (op_valid,),
}


def _repeated(names: Iterable[Any]) -> list:
    seen: set[Any] = set()
    return [n for n in names if n in seen or seen.add(n)]  # type: ignore[func-returns-value]
