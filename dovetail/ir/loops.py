"""The loop IR: what `lower` produces, `schedule` rearranges and `codegen` prints.

    Program = inputs: Buffer*, items: Item*, outputs: Output*, sizes: Symbol*, numbers: (place, Param)*,
              measured: (Param, Dim)*, buckets: (place*)*
    Item    = Group | LibraryCall | View | Batch(Group*)
    Group   = name, outer: Range*, loops: Loop*, locals: Buffer*      one kernel
    Loop    = inner: Range*, body: Statement*
    Statement = Store(buffer, index: Dim*, value, scan?)
              | Reduce(name, kind, value)        accumulates over the loop's inner ranges
              | Check(condition, message)        the kernel reports it; the host raises IndexError
    Expr    = Const(value) | Param(name) | Index(Dim) | Load(buffer, index: Dim*, mask?) | Local(name)
              | Op(name, Expr*)                  the names are the rows of `ir/scalar.py`
    Range   = symbol with lo = 0 and an extent
    Buffer  = name, dtype, device, sizes, strides, offset, kind
    LibraryCall = operator, arguments (BufferRef for tensors), results: Buffer*
    View    = result: Buffer that aliases base: Buffer (as_strided)

Meaning. A group runs its loops, in order, for every index of `outer`, outer indices in
any order (so in parallel): what one outer index writes no other may read or write. Within a
loop the inner ranges run in order, last fastest. A loop with no inner ranges runs once. A
`Local` names an earlier Reduce of the same group and holds its value at the same outer index.
`locals` are buffers that live for one outer index only (a row in L1 or in registers).

Index tuples have one Dim for each dimension of the buffer; strides and offset are applied by codegen, so layout can
change without touching any expression. A Load whose mask is false reads zero and touches no memory. Expressions are
hash-consed: equal ones are one object, which makes common work shared and rewriting linear in distinct nodes.

Every dtype is a `torch.dtype`. Arithmetic on half types is done in float32: lowering casts.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

import torch

from dovetail.ir import dims
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.records import dataclass
from dovetail.ir.stores import InternTable

_table = InternTable()
_NO_SYMBOLS: frozenset[Symbol] = frozenset()

#: The greatest `depth` of an expression in a scheduled program, but for what lowering makes of one operator.
DEEPEST = 200


class Expr:
    """An immutable scalar expression; `dtype` is its type, `symbols` its free range symbols.

    `depth` counts the expressions on the longest way down. Most walks recurse, so `schedule` keeps it below
    `DEEPEST`: what would be deeper is stored and loaded again.
    """

    __slots__ = ("dtype", "symbols", "depth", "_key", "_loads", "_digest")
    dtype: torch.dtype
    symbols: frozenset[Symbol]
    depth: int
    _key: tuple
    _loads: tuple[Load, ...] | None  # see `loads`
    _digest: str  # see `digest`; empty until somebody asks
    children: tuple[Expr, ...] = ()

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The children, and the expressions inside run-time indices."""
        return self.children

    @property
    def loads(self) -> tuple[Load, ...]:
        """Every distinct Load in the expression, run-time indices included. Found once; an interned node lives long."""
        found = self._loads
        if found is None:
            below = (part.loads for part in reversed(self.parts))
            found = self._loads = tuple(dict.fromkeys(itertools.chain.from_iterable(below)))
        return found

    @property
    def digest(self) -> str:
        """What orders expressions in all processes alike: a short text of what this one is made of."""
        stack: list[Expr] = [] if self._digest else [self]
        while stack:
            node = stack[-1]
            waiting = [part for part in node.parts if not part._digest]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            made = repr((type(node).__name__, str(node.dtype), *map(_written, node._key[1:])))
            node._digest = hashlib.blake2b(made.encode(), digest_size=16).hexdigest()
        return self._digest

    def substitute(self, mapping: Mapping[Symbol, Dim]) -> Expr:
        """Replace range symbols, simultaneously, in every index inside."""
        return rewrite(self, mapping, {})

    def __repr__(self) -> str:
        return expr_text(self)


Node = TypeVar("Node")


def _interned(cls: type[Node], key: tuple, fill: Callable[[Any], None]) -> Node:
    full = (cls, *key)
    found = _table.get(full)
    if found is None:
        node: Any = object.__new__(cls)
        node._key, node._loads, node._digest = full, None, ""
        fill(node)
        node.depth = 1 + max([part.depth for part in node.parts], default=0)
        found = _table.add(full, lambda: node)
    interned: Node = found
    return interned


def _written(part: Any) -> Any:
    """A part of an expression's key as something whose text is the same in all processes."""
    if isinstance(part, tuple):
        return tuple(map(_written, part))
    if isinstance(part, Expr):
        return part.digest
    if isinstance(part, Buffer):
        layout = tuple(map(dims.key, (*part.sizes, *part.strides, part.offset)))
        return part.name, str(part.dtype), str(part.device), part.kind, layout
    return dims.key(part) if isinstance(part, (int, dims.Poly)) else str(part)


class Const(Expr):
    """A literal. NaN, -0.0, True and 1 are all distinct from each other and from 1.0."""

    __slots__ = ("value",)
    value: bool | int | float

    def __new__(cls, value: bool | int | float, dtype: torch.dtype) -> Const:
        def fill(node: Const) -> None:
            node.value, node.dtype, node.symbols = value, dtype, _NO_SYMBOLS

        return _interned(cls, (repr(value), dtype), fill)


class Param(Expr):
    """A number among the program's inputs: int64 or float64, as Python's own numbers are."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, dtype: torch.dtype) -> Param:
        def fill(node: Param) -> None:
            node.name, node.dtype, node.symbols = name, dtype, _NO_SYMBOLS

        return _interned(cls, (name, dtype), fill)


class Index(Expr):
    """The value of a Dim, as int64."""

    __slots__ = ("dim", "parts")
    dim: Dim
    parts: tuple[Expr, ...]

    def __new__(cls, dim: Dim) -> Index:
        def fill(node: Index) -> None:
            node.dim, node.dtype, node.symbols = dim, torch.int64, dims.symbols(dim)
            node.parts = tuple(value_exprs((dim,)))

        return _interned(cls, (dim,), fill)


class Load(Expr):
    """`buffer[index]`; zero, without touching memory, where `mask` is given and false."""

    __slots__ = ("buffer", "index", "mask", "children")
    buffer: Buffer
    index: tuple[Dim, ...]
    mask: Expr | None
    children: tuple[Expr, ...]

    def __new__(cls, buffer: Buffer, index: tuple[Dim, ...], mask: Expr | None = None) -> Load:
        assert len(index) == len(buffer.sizes), f"{buffer} indexed with {index}"

        def fill(node: Load) -> None:
            node.buffer, node.index, node.mask, node.dtype = buffer, index, mask, buffer.dtype
            node.symbols = frozenset().union(*map(dims.symbols, index), mask.symbols if mask else ())
            inside = tuple(value_exprs(index))
            node.children = inside if mask is None else (*inside, mask)

        return _interned(cls, (buffer, index, mask), fill)

    @property
    def loads(self) -> tuple[Load, ...]:
        """This load, and those in its index and mask."""
        return (self, *super().loads)  # kept without itself: a cycle would outlive its last user


class Local(Expr):
    """The result of the Reduce called `name`, earlier in the same group."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, dtype: torch.dtype) -> Local:
        def fill(node: Local) -> None:
            node.name, node.dtype, node.symbols = name, dtype, _NO_SYMBOLS

        return _interned(cls, (name, dtype), fill)


class Op(Expr):
    """A scalar operator of `ir/scalar.py` applied to expressions."""

    __slots__ = ("name", "args")
    name: str
    args: tuple[Expr, ...]

    def __new__(cls, name: str, args: tuple[Expr, ...], dtype: torch.dtype) -> Op:
        def fill(node: Op) -> None:
            node.name, node.args, node.dtype = name, args, dtype
            node.symbols = frozenset().union(*(a.symbols for a in args))

        return _interned(cls, (name, args, dtype), fill)

    @property
    def children(self) -> tuple[Expr, ...]:  # type: ignore[override]
        """The operands."""
        return self.args

    parts = children


def value_exprs(index: tuple[Dim, ...]) -> Iterator[Expr]:
    """Expressions inside run-time `RuntimeIndex` atoms of an index."""
    for dim in index:
        if isinstance(dim, dims.Poly) and dims.has_values(dim):
            for monomial, _ in dim.terms:
                for atom in monomial:
                    if isinstance(atom, dims.RuntimeIndex):
                        yield atom.expr
                    elif isinstance(atom, dims.Binary):
                        yield from value_exprs((atom.left, atom.right))


def rewrite(
    expr: Expr,
    mapping: Mapping[Symbol, Dim],
    memo: dict[Expr, Expr],
    leaf: Callable[[Expr], Expr | None] | None = None,
) -> Expr:
    """Substitute range symbols and, where `leaf(node)` gives one, replace Loads and Locals.

    `leaf` sees each Load or Local after substitution; None keeps it. `memo` is shared by
    the caller over all expressions rewritten with the same arguments.
    """
    done = memo.get(expr)
    if done is None:
        done = memo[expr] = _rewrite(expr, mapping, memo, leaf)
    return done


def _rewrite(expr: Expr, mapping: Any, memo: Any, leaf: Any) -> Expr:
    if isinstance(expr, Op):
        args = tuple([memo.get(a) or rewrite(a, mapping, memo, leaf) for a in expr.args])
        return expr if args == expr.args else Op(expr.name, args, expr.dtype)
    if isinstance(expr, Index):
        return Index(_rewrite_dim(expr.dim, mapping, memo, leaf))
    if isinstance(expr, Load):
        index = tuple([d if type(d) is int else _rewrite_dim(d, mapping, memo, leaf) for d in expr.index])
        mask = None if expr.mask is None else rewrite(expr.mask, mapping, memo, leaf)
        if index != expr.index or mask is not expr.mask:
            expr = Load(expr.buffer, index, mask)
    if leaf is not None and isinstance(expr, (Load, Local)):
        return leaf(expr) or expr
    return expr


def _rewrite_dim(dim: Dim, mapping: Any, memo: Any, leaf: Any) -> Dim:
    """Run-time indices first (their expressions see `mapping` too), then the symbols around them."""
    if isinstance(dim, int):
        return dim
    if not dim.dynamic:
        return dims.substitute(dim, mapping)
    return dims.substitute(dim, mapping, lambda expr: rewrite(expr, mapping, memo, leaf))


@dataclass(frozen=True, slots=True)
class Buffer:
    """A strided region of memory. Equal means equal in every field; names are unique in a Program.

    `sizes`, `strides` and `offset` count elements. `kind`: `input` (the caller's, never written
    unless the Program lists it under `mutated`), `output`, `temporary`, or `local` to a group.
    """

    name: str
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0
    kind: str = "temporary"

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def numel(self) -> Dim:
        """The number of elements."""
        return dims.product(self.sizes)

    @property
    def span(self) -> Dim:
        """Elements between the first and one past the last that it can touch."""
        found: Dim = self.offset + 1
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size == 0:
                return 0
            found = found + (size - 1) * stride
        return found


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[index] = value`. With a `scan` (sum prod min max logsum) what is stored is that of the loop's values so
    far, this one included, in the order of its inner ranges, begun anew at each outer index."""

    buffer: Buffer
    index: tuple[Dim, ...]
    value: Expr
    scan: str = ""


@dataclass(frozen=True, slots=True)
class Reduce:
    """kind: sum prod min max any all argmin argmax. Its `Local` has dtype `dtype`.

    `argmin`/`argmax` give the int64 position, in the row-major order of the loop's inner
    ranges, of the first extreme; NaN counts as extreme, as in PyTorch. min and max return
    NaN when any value is NaN. An empty sum, prod, any, all is 0, 1, False, True.
    """

    name: str
    kind: str
    value: Expr
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Check:
    """Where `condition` is false, the program raises IndexError(message) before any reader runs."""

    condition: Expr
    message: str


Statement = Store | Reduce | Check


def map_exprs(statement: Statement, of: Callable[[Expr], Expr]) -> Statement:
    """The statement computing `of(expression)`; where a Store writes is kept."""
    if isinstance(statement, Store):
        return Store(statement.buffer, statement.index, of(statement.value), statement.scan)
    if isinstance(statement, Reduce):
        return Reduce(statement.name, statement.kind, of(statement.value), statement.dtype)
    return Check(of(statement.condition), statement.message)


@dataclass(frozen=True, slots=True)
class Loop:
    inner: tuple[Dim, ...]  # each one a range symbol as a Dim
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    outer: tuple[Dim, ...]  # each one a range symbol as a Dim
    loops: tuple[Loop, ...]
    locals: tuple[Buffer, ...] = ()
    _touched: Any = field(default=None, init=False, repr=False, compare=False)  # see `liveness.touched`
    _structure: Any = field(default=None, init=False, repr=False, compare=False)  # see `structure.structure_of`

    def statements(self) -> Iterator[Statement]:
        """The statements of all loops, in order."""
        for loop in self.loops:
            yield from loop.body


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A tensor argument of a LibraryCall."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """`operator(*args, **kwargs)`; tensors inside args are BufferRefs, sizes are Dims.

    `results` are in the order in which the operator returns tensors; None where that is none, or nobody reads it.
    """

    name: str
    operator: Any  # torch._ops.OpOverload
    args: tuple
    kwargs: Mapping[str, Any]
    results: tuple[Buffer | None, ...]
    _touched: Any = field(default=None, init=False, repr=False, compare=False)  # see `liveness.touched`


@dataclass(frozen=True, slots=True)
class View:
    """`result` is `base`'s memory under other sizes, strides and offset."""

    result: Buffer
    base: Buffer


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups of one kernel that do not depend on each other, started at once; made last, when kernels are known."""

    name: str
    groups: tuple[Group, ...]


Item = Group | LibraryCall | View | Batch


@dataclass(frozen=True, slots=True)
class Output:
    """What the program returns at one place: a buffer, or a constant that is no tensor.

    `view`: is the tensor a view in PyTorch's sense, whatever memory it lies in? None where that is all the same.
    `after`: an input that whoever gets the output from a bucket may write to: nothing reads it any more.
    """

    value: Any  # Buffer | Dim | None | constant
    view: bool | None = None
    after: Buffer | None = None


@dataclass(frozen=True)
class Program:
    """`mutated` pairs each input that the program updates with the buffer holding its new value.
    `lines` has the user's stack for what buffers hold, as far as it is known.
    `numbers` are the inputs that are no tensors, each with its place among all that the caller gives. Those that are
    sizes are `measured`: what their value is in terms of `sizes`, all the symbols that occur.
    `buckets`: the outputs that the caller gets together, before later ones are computed; none: all come at the end.
    """

    inputs: tuple[Buffer, ...]
    items: tuple[Item, ...]
    outputs: tuple[Output, ...]
    mutated: tuple[tuple[Buffer, Buffer], ...] = ()
    sizes: tuple[Symbol, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)  # input name -> a tensor known now
    numbers: tuple[tuple[int, Param], ...] = ()
    measured: tuple[tuple[Param, Dim], ...] = ()
    lines: Mapping[str, tuple] = field(default_factory=dict, compare=False)
    opaque: frozenset[str] = frozenset()  # inputs whose sizes are not what they seem: see `Row.opaque`
    buckets: tuple[tuple[int, ...], ...] = ()

    def with_items(self, items: tuple[Item, ...]) -> Program:
        """The same program with other groups and calls."""
        return replace(self, items=items)

    def parameters(self) -> list[Buffer | Param]:
        """What the caller gives, in order; constants are left out."""
        given: list[Buffer | Param] = [b for b in self.inputs if b.name not in self.constants]
        for place, number in self.numbers:
            given.insert(place, number)
        return given


def expr_text(expr: Expr) -> str:
    """One-line text; `ir/text.py` prints whole programs with shared parts named."""
    if isinstance(expr, Const):
        return f"{expr.value!r}:{dtype_name(expr.dtype)}"
    if isinstance(expr, Index):
        return f"index({expr.dim})"
    if isinstance(expr, Load):
        inside = ", ".join(map(str, expr.index))
        return f"{expr.buffer.name}[{inside}]" + (f" if {expr.mask}" if expr.mask else "")
    if isinstance(expr, (Local, Param)):
        return expr.name
    assert isinstance(expr, Op)
    inside = ", ".join(map(expr_text, expr.args))
    return f"{expr.name}({inside}):{dtype_name(expr.dtype)}"


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype as programs write it: "float32"."""
    return str(dtype).removeprefix("torch.")
