"""Expressions of the loop IR as lines of Triton's language.

Every value is a tile that broadcasts: it has the extent 1 along axes on which it does not depend. What does not
depend on the ranges of the loop that is being written goes in front of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

from dovetail.codegen.common.signature import KernelSignature, split
from dovetail.codegen.gpu import types
from dovetail.codegen.gpu.operators import operator
from dovetail.codegen.gpu.plan import symbols_of
from dovetail.ir import dims, liveness
from dovetail.ir.dims import Atom, Dim, Symbol
from dovetail.ir.kernel import REPORT, Limit
from dovetail.ir.loops import Buffer, Check, Const, Expr, Index, Load, Local, Op, Param
from dovetail.ir.ranges import extent


class Scope:
    """Lines of text, and the names of values computed by them."""

    def __init__(self, indent: str) -> None:
        self.indent = indent
        self.lines: list[str] = []
        self.memo: dict[Any, str] = {}

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)


class Expressions:
    """`bound` names each live range's index; `masks` the condition under which an axis's indices exist."""

    def __init__(self, signature: KernelSignature, wide: bool, checked: bool = False) -> None:
        self.signature, self.wide = signature, wide
        self.words: dict[tuple[str, bool], int] | None = {} if checked else None  # the report's, see `inside`
        self.outer = Scope("    ")
        self.inner: Scope | None = None  # the loop that is being written
        self.symbols: frozenset[Symbol] = frozenset()  # its ranges, where tiles go along them one by one
        self.ranges: tuple[Dim, ...] = ()  # of the loop that is being written
        self.bound: dict[Symbol, str] = {}
        self.masks: dict[Symbol, str] = {}
        self.axes: dict[Symbol, int] = {}  # which of the tile's axes a range is part of
        self.values: dict[str, str] = {}  # results of Reduces
        self.stored: dict[Any, tuple[str, bool]] = {}  # what lies where; does it belong to one loop?
        self.dirty: set[str] = set()  # buffers written since the last barrier
        self.numbers: dict[str, Param] = {}  # numbers that are read from memory, by name
        self.count = 0

    # ------------------------------------------------------------ scopes

    def fresh(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def scope(self, symbols: frozenset[Symbol]) -> Scope:
        return self.inner if self.inner is not None and symbols & self.symbols else self.outer

    def find(self, key: Any) -> str | None:
        found = None if self.inner is None else self.inner.memo.get(key)
        return found or self.outer.memo.get(key)

    def keep(self, key: Any, symbols: frozenset[Symbol], text: str) -> str:
        """Name the value of `text` in the scope that its ranges ask for."""
        scope, name = self.scope(symbols), self.fresh()
        scope.line(f"{name} = {text}")
        scope.memo[key] = name
        return name

    # ------------------------------------------------------------ values

    def value(self, root: Expr) -> str:
        for node in liveness.unknown(root, self.find, attrgetter("parts")):
            _EMIT[type(node)](self, node)
        found = self.find(root)
        assert found is not None
        return found

    def note(self, node: Expr, text: str) -> None:
        self.scope(node.symbols).memo[node] = text

    def _const(self, node: Const) -> None:
        self.outer.memo[node] = types.literal(node.value, node.dtype)

    def _param(self, node: Param) -> None:
        pointer = self.signature.pointer(node.name)[1:]
        self.numbers[node.name] = node
        self.keep(node, node.symbols, f"tl.load({pointer})")

    def _index(self, node: Index) -> None:
        if isinstance(node.dim, int) or not node.symbols and not dims.has_values(node.dim):
            self.note(node, f"tl.full((), {self.index(node.dim)}, tl.int64)")
        else:
            self.note(node, f"({self.index(node.dim)}).to(tl.int64)")

    def _local(self, node: Local) -> None:
        self.outer.memo[node] = self.values[node.name]

    def _op(self, node: Op) -> None:
        args = [self.value(a) for a in node.args]
        operand = node.args[-1 if node.name == "where" else 0].dtype
        self.keep(node, node.symbols, operator(node.name, node.dtype, operand, args))

    # ------------------------------------------------------------ memory

    def _load(self, node: Load) -> None:
        known = self.stored.get((node.buffer.name, self.position(node.index[0])))
        if known is not None and node.mask is None:
            self.note(node, known[0])
            return
        if node.buffer.name in self.dirty:
            self.scope(node.symbols).line("tl.debug_barrier()")
            self.dirty.clear()
        mask = self.conditions(node.symbols)
        address = self.address(node.buffer, node.index[0])
        if node.mask is not None:
            mask.append(self.value(node.mask))
            if not node.mask.symbols <= frozenset().union(*map(dims.symbols, node.index)):
                address += f" + 0 * {mask[-1]}.to(tl.int32)"  # as many addresses as the mask has elements
        if self.words is not None:
            address = self.inside(self.scope(node.symbols), node.buffer.name, False, address, mask)
        inside = [address]
        inside += [" & ".join(mask), "other=0"] if mask else []
        loaded = f"tl.load({', '.join(inside)})"
        self.keep(node, node.symbols, f"({loaded} != 0)" if node.dtype is torch.bool else loaded)

    def store(self, buffer: Buffer, index: Dim, value: str) -> None:
        symbols = dims.symbols(index)
        address, mask, scope = self.address(buffer, index), self.conditions(symbols), self.inner or self.outer
        if self.words is not None:
            address = self.inside(scope, buffer.name, True, address, mask)
        inside = [address, f"{value}.to(tl.int8)" if buffer.dtype is torch.bool else value]
        inside += [" & ".join(mask)] if mask else []
        scope.line(f"tl.store({', '.join(inside)})")
        self.forget(buffer.name)
        self.dirty.add(buffer.name)
        self.hold(buffer.name, index, value, bool(self.inner is not None and symbols & self.symbols))

    def check(self, check: Check) -> None:
        """Of elements that exist: what others compute with is nobody's."""
        value, mask = self.value(check.condition), self.conditions(check.condition.symbols)
        value += f" | (({' & '.join(mask)}) == 0)" if mask else ""
        self.outer.line(f'tl.device_assert({value}, "{check.message}")')

    def inside(self, scope: Scope, name: str, stores: bool, address: str, mask: list[str]) -> str:
        """The address again; `mask` gets what leaves out elements beyond the buffer's memory. Their place goes into the
        report's word for such accesses: of several, any one."""
        assert self.words is not None
        pointer, _, terms = address.partition(" + ")
        place, outside = self.fresh("place"), self.fresh("outside")
        first, end = (self.signature.number(Limit(int(pointer[1:]), k)).lstrip("%") for k in (False, True))
        report, word = self.signature.pointer(REPORT)[1:], self.words.setdefault((name, stores), len(self.words))
        scope.line(f"{place} = tl.full((), 0, tl.int64) + ({terms or '0'})")
        scope.line(f"{outside} = ({place} < {first}) | ({place} >= {end})")
        wrong = " & ".join([outside, *mask])
        scope.line(f"tl.store({report} + {word} + 0 * ({wrong}).to(tl.int32), {place}, {wrong})")
        mask.append(f"({outside} == 0)")
        return f"{pointer} + {place}"

    def hold(self, name: str, index: Dim, value: str, inside: bool) -> None:
        """What a load at `index` would give, until the buffer is written to again."""
        self.stored[name, self.position(index)] = value, inside

    def position(self, index: Dim) -> tuple[Dim, tuple[Dim, ...]]:
        """The index as other loops of the group have it, over the same elements in as many ranges as they like: what
        follows the position in the row is said by that. Else it goes for loops of the same ranges alone."""
        if not self.ranges or not dims.symbols(index) & symbols_of(self.ranges):
            return index, ()
        scale = dims.coefficient(index, dims.as_symbol(self.ranges[-1]))
        rest: Dim = index
        if scale is not None:
            stride: Dim = 1
            for r in reversed(self.ranges):
                rest, stride = rest - scale * stride * r, stride * extent(r)
            if not dims.symbols(rest) & symbols_of(self.ranges):
                return rest + scale * dims.symbol("row@", 0, stride), ()
        alias = {dims.as_symbol(r): dims.symbol(f"r@{k}", 0, extent(r)) for k, r in enumerate(self.ranges)}
        return dims.substitute(index, alias), tuple(map(extent, self.ranges))

    def conditions(self, symbols: frozenset[Symbol]) -> list[str]:
        """Which of the tile's elements exist."""
        return list(dict.fromkeys(self.masks[s] for s in sorted(symbols) if s in self.masks))

    def forget(self, name: str) -> None:
        """Loads of a buffer that was just written must be done again."""
        self.stored = {k: v for k, v in self.stored.items() if k[0] != name}
        for scope in (self.outer, self.inner):
            if scope is not None:
                stale = [n for n in scope.memo if isinstance(n, Expr) and any(i.buffer.name == name for i in n.loads)]
                for node in stale:
                    del scope.memo[node]

    def address(self, buffer: Buffer, index: Dim) -> str:
        """What is the same all along an axis is added first: it is the same in all of a thread's elements there."""
        text = self.signature.pointer(buffer.name)[1:]
        parts: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for monomial, size in split(index):
            symbols = frozenset().union(*(dims.symbols(dims.of_atom(atom)) for atom in monomial))
            along = tuple(sorted({self.axes[s] for s in symbols if s in self.axes}))
            parts[along].append(self.term(monomial, size))
        for axes in sorted(parts, key=lambda axes: (len(axes), axes)):
            terms = " + ".join(parts[axes])
            text += f" + ({terms})" if terms != "0" else ""
        return text

    # ------------------------------------------------------------ indices

    def index(self, dim: Dim) -> str:
        """An expression for the Dim; sizes are arguments."""
        return " + ".join(self.term(monomial, size) for monomial, size in split(dim))

    def term(self, monomial: dims.Monomial, size: Dim) -> str:
        """`size` times the product of the atoms."""
        if not monomial:
            return self.signature.term(size).lstrip("%")
        factors = [self.atom(a) for a in monomial]
        return " * ".join(factors if size == 1 else [*factors, self.signature.factor(size).lstrip("%")])

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.bound[atom]
        if isinstance(atom, dims.RuntimeIndex):
            value = self.value(atom.expr)
            return value if self.wide else f"{value}.to(tl.int32)"
        assert isinstance(atom, dims.Binary)
        found = self.find(atom)
        if found is None:
            left = self.index(atom.left)
            right = str(atom.right) if isinstance(atom.right, int) else self.index(atom.right)
            forms = _BINARY | _PLAIN if dims.known_nonnegative(atom.left) else _BINARY
            found = self.keep(atom, dims.symbols(dims.of_atom(atom)), forms[type(atom)].format(left, right))
        return found


#: By type; and the first two where the left side is not negative.
_BINARY: dict[type, str] = {
    dims.FloorDiv: "_floordiv({}, {})", dims.Mod: "_modulo({}, {})",
    dims.Min: "tl.minimum({}, {})", dims.Max: "tl.maximum({}, {})",
}  # fmt: skip
_PLAIN: dict[type, str] = {dims.FloorDiv: "({}) // ({})", dims.Mod: "({}) % ({})"}

_EMIT: dict[type, Callable[[Expressions, Any], None]] = {
    Const: Expressions._const, Param: Expressions._param, Index: Expressions._index, Local: Expressions._local,
    Op: Expressions._op, Load: Expressions._load,
}  # fmt: skip

#: Accumulated in a wider type.
ACCUMULATED = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.bool}
