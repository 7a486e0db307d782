"""Reads back what `ir/text.py` prints.

Lines are told apart by their first word; scalar statements and arguments are read by Python's own parser.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch

from dovetail.ir import dimforms, dims, loops
from dovetail.ir.devices import HOST
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.ranges import new_range
from dovetail.ir.records import dataclass
from dovetail.ir.reshape import contiguous_strides
from dovetail.ir.text import INFIX, LITERALS, derived_dtype

_DECLARATION = re.compile(
    r"(?P<kind>input|output|temporary|local) (?P<name>\w+): (?P<dtype>\w+)\[(?P<sizes>.*?)\]"
    r"(?: strides \((?P<strides>.*?)\)(?=$| offset| on))?(?: offset (?P<offset>.*?))?(?: on (?P<device>\S+))?$"
)
_AST_INFIX: dict[type, str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.BitOr: "or", ast.BitXor: "xor", ast.BitAnd: "and", ast.LShift: "shl", ast.RShift: "shr",
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder",
}
assert set(_AST_INFIX.values()) == set(INFIX)


def parse_program(text: str, constants: Mapping[str, Any] | None = None) -> loops.Program:
    """The Program that `text` describes; `constants` gives the tensors, which text cannot hold.

    Raises ValueError with the line that makes no sense.
    """
    reader = _Reader(constants or {})
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                reader.line(line)
            except (ValueError, KeyError, SyntaxError, AttributeError, TypeError, IndexError) as error:
                raise ValueError(f"line {number}: {line.strip()}: {error!r}") from error
    reader.close_group()
    return loops.Program(
        tuple(reader.inputs), tuple(reader.items), tuple(reader.outputs), tuple(reader.mutated), tuple(reader.sizes),
        dict(reader.constants), tuple(reader.numbers), tuple(reader.measured),
        buckets=tuple(tuple(reader.buckets[k]) for k in sorted(reader.buckets)),
    )


@dataclass
class _OpenGroup:
    name: str
    outer: dict[str, Dim]
    locals: list[loops.Buffer] = field(default_factory=list)
    nests: list[loops.Loop] = field(default_factory=list)
    inner: dict[str, Dim] = field(default_factory=dict)
    body: list[loops.Statement] | None = None
    exprs: dict[str, loops.Expr] = field(default_factory=dict)
    reductions: dict[str, loops.Expr] = field(default_factory=dict)


class _Reader:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.inputs: list[loops.Buffer] = []
        self.items: list = []
        self.outputs: list[loops.Output] = []
        self.buckets: dict[int, list[int]] = {}
        self.mutated: list[tuple[loops.Buffer, loops.Buffer]] = []
        self.sizes: list[Symbol] = []
        self.constants: dict[str, Any] = {}
        self.numbers: list[tuple[int, loops.Param]] = []
        self.params: dict[str, loops.Param] = {}
        self.measured: list[tuple[loops.Param, Dim]] = []
        self.names: dict[str, Dim] = {}
        self.buffers: dict[str, loops.Buffer] = {}
        self.group: _OpenGroup | None = None

    def line(self, line: str) -> None:
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            self.close_group()
        word, _, rest = line.strip().partition(" ")
        if indent >= 4:
            self.scalar(ast.parse(line.strip()).body[0])
        elif _DECLARATION.match(line.strip()):
            self.declare(line.strip())
        elif word in _LINES:
            _LINES[word](self, rest)
        else:
            raise ValueError(f"not a line of a program: {line.strip()}")

    # ------------------------------------------------------------ whole lines

    def size(self, rest: str) -> None:
        name, _, low, *more = rest.split()
        hint = int(more[1]) if more[:1] == ["about"] else None
        self.names[name] = dims.symbol(name, int(low), hint=hint)
        if "unlisted" not in more:
            self.sizes.append(dims.as_symbol(self.names[name]))

    def declare(self, line: str) -> None:
        match = _DECLARATION.match(line)
        assert match is not None
        sizes = self.dims(match["sizes"])
        strides = contiguous_strides(sizes) if match["strides"] is None else self.dims(match["strides"])
        offset = self.dims(match["offset"])[0] if match["offset"] else 0
        device = torch.device(match["device"] or HOST)
        buffer = loops.Buffer(match["name"], _dtype(match["dtype"]), device, sizes, strides, offset, match["kind"])
        self.buffers[buffer.name] = buffer
        if self.group is not None:
            self.group.locals.append(buffer)
        elif buffer.kind == "input" and not self.items and not self.outputs:
            self.inputs.append(buffer)

    def constant(self, rest: str) -> None:
        self.constants[rest] = self.given[rest]

    def number(self, rest: str) -> None:
        rest, _, size = rest.partition(" is ")
        name, dtype, _, place = rest.replace(":", "").split()
        self.params[name] = loops.Param(name, _dtype(dtype))
        self.numbers.append((int(place), self.params[name]))
        if size:
            self.measured.append((self.params[name], dimforms.parse(size, self.names)))

    def open_group(self, rest: str) -> None:
        name, _, ranges = rest.partition(" for ")
        self.group = _OpenGroup(name, self.ranges(ranges))

    def open_loop(self, rest: str) -> None:
        assert self.group is not None
        self.close_loop()
        self.group.inner, self.group.body, self.group.exprs = self.ranges(rest), [], {}

    def library(self, rest: str) -> None:
        name, _, call = rest.partition(": ")
        results, _, call = call.partition("= ")
        tree = ast.parse(call, mode="eval").body
        assert isinstance(tree, ast.Call)
        buffers = tuple(self.buffers.get(r.strip()) for r in results.split(",") if r.strip())
        kwargs = {str(k.arg): self.argument(k.value) for k in tree.keywords}
        args = tuple(map(self.argument, tree.args))
        self.items.append(loops.LibraryCall(name, _operator(ast.unparse(tree.func)), args, kwargs, buffers))

    def view(self, rest: str) -> None:
        result, base = rest.split(" = ")
        self.items.append(loops.View(self.buffers[result], self.buffers[base]))

    def mutate(self, rest: str) -> None:
        old, new = rest.split(" = ")
        self.mutated.append((self.buffers[old], self.buffers[new]))

    def output(self, rest: str) -> None:
        value, _, kind = rest.partition(" as ")
        value, _, bucket = value.partition(" in bucket ")
        value, _, after = value.partition(" after ")
        if bucket:
            self.buckets.setdefault(int(bucket), []).append(len(self.outputs))
        argument = self.argument(ast.parse(value, mode="eval").body)
        argument = argument.buffer if isinstance(argument, loops.BufferRef) else argument
        view = {"": None, "view": True, "base": False}[kind]
        self.outputs.append(loops.Output(argument, view, self.buffers[after] if after else None))

    def close_loop(self) -> None:
        group = self.group
        if group is not None and group.body is not None:
            group.nests.append(loops.Loop(tuple(group.inner.values()), tuple(group.body)))
            group.body = None

    def close_group(self) -> None:
        if self.group is not None:
            self.close_loop()
            group, self.group = self.group, None
            outer = tuple(group.outer.values())
            self.items.append(loops.Group(group.name, outer, tuple(group.nests), tuple(group.locals)))

    # ------------------------------------------------------------ sizes and indices

    def scope(self) -> dict[str, Dim]:
        return self.names if self.group is None else {**self.names, **self.group.outer, **self.group.inner}

    def dims(self, text: str) -> tuple[Dim, ...]:
        return tuple(map(self.dim, ast.parse(f"({text},)", mode="eval").body.elts)) if text.strip() else ()  # type: ignore[attr-defined]

    def dim(self, node: ast.expr) -> Dim:
        return dimforms.from_ast(node, self.scope(), self.value)

    def value(self, node: ast.Call) -> Dim:
        expr, *extent = node.args
        return dims.value(self.expr(expr), self.dim(extent[0]) if extent else None)

    def ranges(self, text: str) -> dict[str, Dim]:
        found: dict[str, Dim] = {}
        for compare in ast.parse(f"({text},)", mode="eval").body.elts if text else ():  # type: ignore[attr-defined]
            found[compare.left.id] = new_range(compare.left.id, self.dim(compare.comparators[0]))
        return found

    # ------------------------------------------------------------ statements

    def scalar(self, node: ast.stmt) -> None:
        group = self.group
        assert group is not None and group.body is not None
        if isinstance(node, ast.Assert):
            assert isinstance(node.msg, ast.Constant)
            group.body.append(loops.Check(self.expr(node.test), node.msg.value))  # type: ignore[arg-type]
        elif isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call)
            reduce = loops.Reduce(node.target.id, ast.unparse(node.value.func), self.expr(node.value.args[0]),
                            _dtype(ast.unparse(node.annotation)))
            group.body.append(reduce)
            group.reductions[reduce.name] = loops.Local(reduce.name, reduce.dtype)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            buffer, index = self.place(node.targets[0])
            scan, value = _running(node.value)
            group.body.append(loops.Store(buffer, index, self.expr(value), scan))
        else:
            assert isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            group.exprs[node.targets[0].id] = self.expr(node.value)

    def place(self, node: ast.Subscript) -> tuple[loops.Buffer, tuple[Dim, ...]]:
        elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return self.buffers[ast.unparse(node.value)], tuple(map(self.dim, elements))

    def expr(self, node: ast.expr) -> loops.Expr:
        return _READ[type(node)](self, node)

    def binary(self, node: Any) -> loops.Expr:
        if isinstance(node, ast.Compare):
            name, args = _AST_INFIX[type(node.ops[0])], (node.left, node.comparators[0])
        else:
            name, args = _AST_INFIX[type(node.op)], (node.left, node.right)
        return self.derived(name, tuple(map(self.expr, args)))

    def unary(self, node: ast.UnaryOp) -> loops.Expr:
        literal = _literal(node)
        if literal is not None:
            return loops.Const(literal, LITERALS[type(literal)])
        return self.derived("neg" if isinstance(node.op, ast.USub) else "not", (self.expr(node.operand),))

    def derived(self, name: str, args: tuple[loops.Expr, ...]) -> loops.Expr:
        dtype = derived_dtype(name, args)
        if dtype is None:
            raise ValueError(f"unknown operator {name}")
        return loops.Op(name, args, dtype)

    def name(self, node: ast.Name) -> loops.Expr:
        literal = _literal(node)
        if literal is not None:
            return loops.Const(literal, LITERALS[type(literal)])
        if node.id in self.params:
            return self.params[node.id]
        assert self.group is not None
        known = self.group.exprs.get(node.id)
        return self.group.reductions[node.id] if known is None else known

    def load(self, node: ast.Subscript) -> loops.Expr:
        return loops.Load(*self.place(node))

    def masked(self, node: ast.IfExp) -> loops.Expr:
        assert isinstance(node.body, ast.Subscript)
        return loops.Load(*self.place(node.body), self.expr(node.test))

    def call(self, node: ast.Call) -> loops.Expr:
        name = ast.unparse(node.func)
        if name == "index":
            return loops.Index(self.dim(node.args[0]))
        if name == "const":
            return loops.Const(_literal(node.args[0]), _dtype(ast.unparse(node.args[1])))  # type: ignore[arg-type]
        if name == "op":
            operator, dtype, *args = node.args
            return loops.Op(ast.literal_eval(operator), tuple(map(self.expr, args)), _dtype(ast.unparse(dtype)))
        if isinstance(getattr(torch, name, None), torch.dtype):
            return loops.Op("cast", (self.expr(node.args[0]),), _dtype(name))
        return self.derived(name, tuple(map(self.expr, node.args)))

    # ------------------------------------------------------------ arguments of library calls

    def argument(self, node: ast.expr) -> Any:
        if isinstance(node, (ast.List, ast.Tuple)):
            return (list if isinstance(node, ast.List) else tuple)(map(self.argument, node.elts))
        if isinstance(node, ast.Name) and node.id in self.buffers:
            return loops.BufferRef(self.buffers[node.id])
        if isinstance(node, ast.Name) and node.id in self.params:
            return self.params[node.id]
        literal = _literal(node)
        if literal is not None:
            return literal
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "device":
            return torch.device(ast.literal_eval(node.args[0]))
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
            return getattr(torch, node.attr)
        return self.dim(node)


_LINES: dict[str, Callable[[_Reader, str], None]] = {
    "size": _Reader.size, "constant": _Reader.constant, "number": _Reader.number,
    "group": _Reader.open_group, "loop": _Reader.open_loop,
    "library": _Reader.library, "view": _Reader.view, "mutate": _Reader.mutate, "output": _Reader.output,
}
_READ: dict[type, Callable[[_Reader, Any], loops.Expr]] = {
    ast.Constant: lambda reader, node: loops.Const(node.value, LITERALS[type(node.value)]),
    ast.Name: _Reader.name, ast.Subscript: _Reader.load, ast.IfExp: _Reader.masked, ast.Call: _Reader.call,
    ast.BinOp: _Reader.binary, ast.Compare: _Reader.binary, ast.UnaryOp: _Reader.unary,
}


def _running(node: ast.expr) -> tuple[str, ast.expr]:
    """The kind of a scan, and what it is of; of a plain value the empty text."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    kind = name.removeprefix("running_")
    return (kind, node.args[0]) if kind != name else ("", node)  # type: ignore[attr-defined]


def _literal(node: ast.expr) -> bool | int | float | None:
    """A number with its sign, inf and nan included; None when the node is something else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        return node.value
    return None


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown dtype {name}")
    return dtype


def _operator(name: str) -> Any:
    """`aten.add.Tensor` -> torch.ops.aten.add.Tensor."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found
