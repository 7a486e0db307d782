"""A Program as text that parses back to an equal Program (`ir/parse.py`).

    input a0: float32[4, 8]
    number n1: float64 at 1
    temporary b0: float32[4, 8] strides (1, 4)
    group k0_softmax for i0 < 4
      loop j1 < 8
        r0: float32 = max(a0[i0, j1])
      loop j1 < 8
        t0 = exp(a0[i0, j1] - r0)
        r1: float32 = sum(t0)
        b0[i0, j1] = t0
    library mm_1: b1 = aten.mm.default(b0, a0)
    view b2 = b1
    output b2

Scalar statements are Python expressions: infix operators where Python has them, calls elsewhere, `x[i] if m else 0`
for a masked Load, `name: dtype = kind(x)` for a Reduce, `b[i] = running_kind(x)` for a scan, `assert c, "..."` for a
Check. What a loop uses more than once, or nests too deep to read, gets a name `t<n>`. A buffer is declared where it
first appears; contiguous strides, offset 0 and the cpu are not said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dovetail.ir import dimforms, dims, loops
from dovetail.ir.devices import HOST
from dovetail.ir.dims import Dim, Poly, Symbol
from dovetail.ir.liveness import nodes, references, statement_roots
from dovetail.ir.ranges import extent
from dovetail.ir.reshape import contiguous_strides
from dovetail.ir.scalar import SCALAR_OPS

#: Operators written infix: symbol and Python's precedence, loosest 0. Comparisons do not chain.
INFIX: dict[str, tuple[str, int]] = {
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1),
    "or": ("|", 2), "xor": ("^", 3), "and": ("&", 4), "shl": ("<<", 5), "shr": (">>", 5),
    "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("/", 7), "floordiv": ("//", 7), "remainder": ("%", 7),
}
COMPARISON = 1
UNARY = 8
ATOM = 9
PREFIX: dict[str, str] = {"neg": "-", "not": "~"}
#: The dtype that a bare literal of a Python type has.
LITERALS: dict[type, torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float32}
#: Deeper expressions are cut into named parts: for the reader, and because Python's parser has a limit.
DEEPEST = 8


def program_text(program: loops.Program) -> str:
    """The whole program, one line a statement."""
    return "\n".join(_Printer().program(program)) + "\n"


def group_text(group: loops.Group) -> str:
    """One kernel with its buffers, for logs."""
    return "\n".join(_Printer().item(group)) + "\n"


def derived_dtype(name: str, args: Sequence[loops.Expr]) -> torch.dtype | None:
    """What an operator's dtype is when nothing is said; None for conversions and unknown operators."""
    row = SCALAR_OPS.get(name)
    if row is None or row.result == "given" or not args:
        return None
    if row.result == "bool":
        return torch.bool
    return args[1 if name == "where" and len(args) > 1 else 0].dtype


def declaration(buffer: loops.Buffer) -> str:
    """`kind name: dtype[sizes] strides (...) offset n on device`."""
    text = f"{buffer.kind} {buffer.name}: {loops.dtype_name(buffer.dtype)}[{', '.join(map(str, buffer.sizes))}]"
    if buffer.strides != contiguous_strides(buffer.sizes):
        text += f" strides ({', '.join(map(str, buffer.strides))})"
    if buffer.offset != 0:
        text += f" offset {buffer.offset}"
    return text if buffer.device == HOST else f"{text} on {buffer.device}"

_VIEWS = {None: "", True: " as view", False: " as base"}


class _Printer:
    def __init__(self) -> None:
        self.declared: set[str] = set()
        self.named = 0

    def program(self, program: loops.Program) -> Iterator[str]:
        for symbol in dict.fromkeys((*program.sizes, *_size_symbols(program))):
            kept = " unlisted" if symbol not in program.sizes else ""
            hint = f" about {symbol.hint}" if symbol.hint is not None else ""
            yield f"size {symbol.name} >= {symbol.lo}{hint}{kept}"
        for buffer in program.inputs:
            yield from self.declare([buffer])
        for name in program.constants:
            yield f"constant {name}"
        measured = dict(program.measured)
        for place, number in program.numbers:
            is_size = f" is {measured[number]}" if number in measured else ""
            yield f"number {number.name}: {loops.dtype_name(number.dtype)} at {place}{is_size}"
        for item in program.items:
            yield from self.item(item)
        for old, new in program.mutated:
            yield from self.declare([new])
            yield f"mutate {old.name} = {new.name}"
        buckets = {place: f" in bucket {k}" for k, bucket in enumerate(program.buckets) for place in bucket}
        for place, output in enumerate(program.outputs):
            if isinstance(output.value, loops.Buffer):
                yield from self.declare([output.value])
            after = f" after {output.after}" if output.after is not None else ""
            yield f"output {argument_text(output.value)}{after}{buckets.get(place, '')}{_VIEWS[output.view]}"

    def declare(self, buffers: Sequence[loops.Buffer | None]) -> Iterator[str]:
        for buffer in buffers:
            if buffer is not None and buffer.name not in self.declared:
                self.declared.add(buffer.name)
                yield declaration(buffer)

    def item(self, item: Any) -> Iterator[str]:
        if isinstance(item, loops.Group):
            yield from self.group(item)
        elif isinstance(item, loops.LibraryCall):
            yield from self.declare([*references([item.args, item.kwargs]), *item.results])
            results = ", ".join("_" if b is None else b.name for b in item.results)
            arguments = [argument_text(a) for a in item.args]
            arguments += [f"{name}={argument_text(a)}" for name, a in item.kwargs.items()]
            yield f"library {item.name}: {results}{',' if results else ''} = {item.operator}({', '.join(arguments)})"
        else:
            assert isinstance(item, loops.View)
            yield from self.declare([item.base, item.result])
            yield f"view {item.result.name} = {item.base.name}"

    def group(self, group: loops.Group) -> Iterator[str]:
        """`local` buffers are declared inside, all others before."""
        local = {b.name for b in group.locals}
        yield from self.declare([b for b in _mentioned(group) if b.name not in local])
        yield f"group {group.name}" + _ranges(" for ", group.outer)
        for buffer in group.locals:
            yield f"  {declaration(buffer)}"
        for loop in group.loops:
            yield "  loop" + _ranges(" ", loop.inner)
            body = _Body(loop, self.named)
            yield from (f"    {line}" for line in body.lines())
            self.named = body.named


def _ranges(head: str, ranges: Sequence[Dim]) -> str:
    return head + ", ".join(f"{r} < {extent(r)}" for r in ranges) if ranges else ""


class _Body:
    """The statements of one loop; `names` maps expressions to the names they got, numbered from `named` on."""

    def __init__(self, loop: loops.Loop, named: int) -> None:
        self.loop, self.named = loop, named
        self.names: dict[loops.Expr, str] = {}
        self.depth: dict[loops.Expr, int] = {}
        self.uses: dict[loops.Expr, int] = {}
        roots = [root for statement in loop.body for root in statement_roots(statement)]
        for node in nodes(roots):
            for child in _operands(node):
                self.uses[child] = self.uses.get(child, 0) + 1
        for root in roots:
            self.uses[root] = self.uses.get(root, 0) + 1

    def lines(self) -> Iterator[str]:
        for statement in self.loop.body:
            for root in statement_roots(statement):
                yield from self.name_parts(root)
            yield self.statement(statement)

    def name_parts(self, root: loops.Expr) -> Iterator[str]:
        """`t<n> = ...` lines for the parts of `root` that need a name, operands first."""
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in self.depth:
                continue
            if not ready:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(_operands(node)) if child not in self.depth)
                continue
            depth = 1 + max((self.depth[child] for child in _operands(node)), default=0)
            shared = self.uses[node] > 1 and not _short(node)
            if shared or (depth >= DEEPEST and node is not root):
                text = self.text(node)
                self.names[node] = f"t{self.named}"
                self.named += 1
                yield f"{self.names[node]} = {text}"
                depth = 0
            self.depth[node] = depth

    def statement(self, statement: loops.Statement) -> str:
        if isinstance(statement, loops.Store):
            value = self.text(statement.value)
            value = f"running_{statement.scan}({value})" if statement.scan else value
            return f"{statement.buffer.name}[{self.indices(statement.index)}] = {value}"
        if isinstance(statement, loops.Reduce):
            head = f"{statement.name}: {loops.dtype_name(statement.dtype)}"
            return f"{head} = {statement.kind}({self.text(statement.value)})"
        assert isinstance(statement, loops.Check)
        return f"assert {self.text(statement.condition)}, {statement.message!r}"

    def text(self, expr: loops.Expr, least: int = 0) -> str:
        """`expr`, in parentheses where an operator binding as tightly as `least` surrounds it."""
        if expr in self.names:
            return self.names[expr]
        text, precedence = self.expression(expr)
        return text if precedence >= least else f"({text})"

    def expression(self, expr: loops.Expr) -> tuple[str, int]:
        if isinstance(expr, loops.Op):
            return self.operator(expr)
        if isinstance(expr, loops.Load):
            place = f"{expr.buffer.name}[{self.indices(expr.index)}]"
            return (place, ATOM) if expr.mask is None else (f"{place} if {self.text(expr.mask, 1)} else 0", 0)
        if isinstance(expr, loops.Index):
            return f"index({self.dim(expr.dim)})", ATOM
        if isinstance(expr, (loops.Local, loops.Param)):
            return (expr.name, ATOM)
        assert isinstance(expr, loops.Const)
        return _const(expr)

    def operator(self, op: loops.Op) -> tuple[str, int]:
        if op.dtype is not derived_dtype(op.name, op.args):
            inside = "".join(f", {self.text(a, 1)}" for a in op.args)
            if op.name == "cast" and len(op.args) == 1:
                return f"{loops.dtype_name(op.dtype)}({self.text(op.args[0])})", ATOM
            return f"op({op.name!r}, {loops.dtype_name(op.dtype)}{inside})", ATOM
        if op.name in INFIX and len(op.args) == 2:
            sign, level = INFIX[op.name]
            left = self.text(op.args[0], level + (level == COMPARISON))
            return f"{left} {sign} {self.text(op.args[1], level + 1)}", level
        if op.name in PREFIX and len(op.args) == 1 and not isinstance(op.args[0], loops.Const):
            return PREFIX[op.name] + self.text(op.args[0], ATOM), UNARY
        return f"{op.name}({', '.join(self.text(a) for a in op.args)})", ATOM

    def indices(self, index: tuple[Dim, ...]) -> str:
        return ", ".join(map(self.dim, index)) if index else "()"

    def dim(self, dim: Dim) -> str:
        """`str(dim)`, with run-time values in this printer's notation."""
        if not isinstance(dim, Poly) or not any(True for _ in loops.value_exprs((dim,))):
            return str(dim)
        return dimforms.text(dim, self.value)

    def value(self, atom: dims.RuntimeIndex) -> str:
        extent = "" if atom.extent is None else f", {self.dim(atom.extent)}"
        return f"value({self.text(atom.expr)}{extent})"


def _const(const: loops.Const) -> tuple[str, int]:
    """A literal; in a call of its dtype when that is not the literal's own."""
    text = repr(const.value)
    if isinstance(const.value, float) and text.strip("-") in ("inf", "nan"):
        text = f"-{text[1:]}" if text[0] == "-" else text
    if LITERALS.get(type(const.value)) is const.dtype:
        return text, UNARY if text[0] == "-" else ATOM
    return f"const({text}, {loops.dtype_name(const.dtype)})", ATOM


def _operands(node: loops.Expr) -> tuple[loops.Expr, ...]:
    return tuple(loops.value_exprs((node.dim,))) if isinstance(node, loops.Index) else node.children


def _short(node: loops.Expr) -> bool:
    """Is it as clear as a name would be?"""
    if isinstance(node, loops.Load):
        return not node.children
    if isinstance(node, loops.Index):
        return not _operands(node)
    return isinstance(node, (loops.Const, loops.Local, loops.Param))


def _mentioned(group: loops.Group) -> Iterator[loops.Buffer]:
    """Buffers that a group stores or loads, in a stable order."""
    for statement in group.statements():
        roots = statement_roots(statement)
        found = [node.buffer for node in nodes(roots) if isinstance(node, loops.Load)]
        yield from sorted(found, key=lambda b: b.name)
        if isinstance(statement, loops.Store):
            yield statement.buffer


def argument_text(value: Any) -> str:
    """A library call's argument or an output: names for buffers, Python's spelling for the rest."""
    if isinstance(value, loops.BufferRef):
        return value.buffer.name
    if isinstance(value, (loops.Buffer, loops.Param)):
        return value.name
    if isinstance(value, list):
        return f"[{', '.join(map(argument_text, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(argument_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, torch.device):
        return f"device({str(value)!r})"
    return repr(value)


def _size_symbols(program: loops.Program) -> list[Symbol]:
    """Size symbols in the shapes of the inputs."""
    found: set[Symbol] = set()
    for buffer in program.inputs:
        for dim in (*buffer.sizes, *buffer.strides, buffer.offset):
            found |= dims.symbols(dim)
    return sorted(found, key=lambda s: s.name)


def fusion_text(before: loops.Program, after: loops.Program) -> str:
    """What scheduling put together: one line for each kernel."""
    groups = [item for item in after.items if isinstance(item, loops.Group)]
    count = sum(isinstance(item, loops.Group) for item in before.items)
    lines = [f"{count} operators in {len(groups)} kernels, {len(after.items) - len(groups)} other steps"]
    for group in groups:
        over = " x ".join(map(str, group.outer)) or "1"
        stores = sum(1 for _ in group.statements())
        inside = f"{stores} stores in {len(group.loops)} loop nests, {len(group.locals)} locals"
        lines.append(f"  {group.name}: {inside}; over {over}")
    return "\n".join(lines)
