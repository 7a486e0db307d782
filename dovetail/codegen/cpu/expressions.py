"""Instructions that compute expressions: loads, operators, shared nodes once.

Pure values go to the outermost scope where their operands exist. A load may move out of a loop
only if that loop is known to run, and never above a write of the group to its buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

from dovetail.codegen.common.signature import KernelSignature
from dovetail.codegen.cpu import casts, operators, types, vecmath
from dovetail.codegen.cpu.bounds import Bounds
from dovetail.codegen.cpu.builder import Builder, Val
from dovetail.codegen.cpu.indices import Indices
from dovetail.codegen.cpu.lanes import Lanes
from dovetail.codegen.cpu.types import type_of
from dovetail.errors import InternalError
from dovetail.ir import liveness
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Buffer, Const, Expr, Index, Load, Local, Op, Param


class Expressions:
    """Emits expressions of one function. `mask` (i1 lanes) holds off lanes past the end."""

    def __init__(
        self, builder: Builder, signature: KernelSignature, flags: str, library: vecmath.Library, halves: bool = True
    ) -> None:
        self.b = builder
        self.w = Lanes(builder, flags, halves)
        self.indices = Indices(self.w, signature, self.value)
        self.signature, self.library = signature, library
        self.mask: Val | None = None
        self.values: dict[str, Val] = {}  # results of Reduces, by name
        self.rows: dict[str, Val] = {}  # addresses of local buffers, by name
        self.row_lanes = 1  # lanes interleaved in local buffers
        self.written: dict[str, int] = {}  # buffers the group writes and reads: least depth of their loads
        self.pinned: frozenset[str] = frozenset()  # those that the current loop writes: loads stay put
        self.floor = 0  # least depth of any load, after a Check
        self.bounds: Bounds | None = None  # what compares accesses with their buffers' extents

    def value(self, root: Expr) -> Val:
        for node in liveness.unknown(root, self.b.find, attrgetter("children")):
            result = _EMIT[type(node)](self, node)
            self.b.scopes[result.depth].memo[node] = result
        return self.b.find(root)

    # ------------------------------------------------------------ nodes

    def _const(self, node: Const) -> Val:
        if is_reciprocal(node):  # 1/size: an argument, so that the text does not depend on it
            whole = "i64" if node.dtype == torch.float64 else "i32"
            bits = Val(self.signature.size(float_bits(node)), "i64", 1, 0)
            return self.w.convert("bitcast", self.w.convert("trunc", bits, whole), type_of(node.dtype).register)
        return Val(types.literal(node.value, node.dtype), type_of(node.dtype).register, 1, 0)

    def _param(self, node: Param) -> Val:
        """A number of the program; floats come as their bits, as all arguments of the context are words."""
        word = Val(self.signature.number(node), "i64", 1, 0)
        return word if node.dtype == torch.int64 else self.w.convert("bitcast", word, "double")

    def _index(self, node: Index) -> Val:
        return self.indices.each(node.dim)

    def _op(self, node: Op) -> Val:
        if node.name == "cast" and node.dtype is torch.int32 and isinstance(node.args[0], Index):
            return self.indices.each_short(node.args[0].dim)
        args = tuple(self.value(a) for a in node.args)
        operand = node.args[-1 if node.name == "where" else 0].dtype
        if vecmath.has(node.name):
            return self._math(node.name, operand, args)
        return operators.emit(self.w, node.name, node.dtype, operand, args)

    def _math(self, name: str, dtype: torch.dtype, args: tuple[Val, ...]) -> Val:
        if type_of(dtype).kind == "half":
            wide = tuple(casts.cast(self.w, a, dtype, torch.float32) for a in args)
            return casts.narrow_half(self.w, self._math(name, torch.float32, wide), dtype)
        return self.library.emit(self.b, name, self.w.align(*args))

    # ------------------------------------------------------------ memory

    def address(self, buffer: Buffer, index: Dim) -> Val:
        """The address of the element in the first lane."""
        kind, row = type_of(buffer.dtype).memory, self.rows.get(buffer.name)
        place = self.indices.first(index)
        if row is None:
            base = Val(self.signature.pointer(buffer.name), "ptr", 1, 0)
        else:
            base, place = row, self.w.binary("mul", place, self.w.const(self.row_lanes, "i64"))
        return self.b.shared(f"getelementptr {kind}, ptr {base.text}, i64 {place.text}", "ptr", 1, (base, place))

    def addresses(self, buffer: Buffer, index: Dim) -> Val:
        """The address of every lane's element."""
        if buffer.name in self.rows and self.row_lanes > 1:
            raise InternalError("codegen", f"{buffer.name} is indexed across lanes")
        kind, step = type_of(buffer.dtype).memory, self.indices.step(index)
        if step is not None:  # the ramp from lane to lane is invariant, and 32 bits wide if it fits
            base, place = self.address(buffer, index), self.indices.ramp(step)
        else:
            base = self.rows.get(buffer.name) or Val(self.signature.pointer(buffer.name), "ptr", 1, 0)
            place = self.w.splat(self.indices.each(index), self.indices.lanes)
        return self.b.shared(
            f"getelementptr {kind}, ptr {base.text}, {place.typed}", "ptr", place.lanes, (base, place)
        )

    def contiguous(self, buffer: Buffer, index: Dim) -> int:
        """Lanes of the access at `index`: 1 for uniform, all of them for stride 1, else 0."""
        if buffer.name in self.rows and self.row_lanes > 1:
            return 0 if self.indices.varies(index) else self.row_lanes
        if not self.indices.varies(index):
            return 1
        return self.indices.lanes if self.indices.step(index) == 1 else 0

    def inside(self, buffer: Buffer, address: Val, lanes: int, mask: Val | None, stores: bool = False) -> None:
        """Before an access of so many lanes, at `address` on or at one for each."""
        if self.bounds is not None:
            row = self.rows.get(buffer.name)
            self.bounds.check(buffer, address, lanes, mask, stores, None if row is None else (row, self.row_lanes))

    def _load(self, node: Load) -> Val:
        mask = None if node.mask is None else self.value(node.mask)
        if mask is not None and mask.text in ("true", "false"):
            if mask.text == "false":
                return self._const(Const(False if node.dtype == torch.bool else 0, node.dtype))
            mask = None
        lanes = self.contiguous(node.buffer, node.index[0])
        if lanes == 1 and (mask is None or mask.lanes == 1):
            loaded = self._load_one(node, mask)
        elif lanes > 1:
            loaded = self._load_row(node, mask, lanes)
        else:
            loaded = self._gather(node, mask)
        return casts.from_memory(self.w, loaded, node.dtype)

    def _place(self, node: Load, operands: list[Val]) -> int:
        """The depth at which a load may be executed."""
        if node.buffer.name in self.pinned or self.bounds is not None:
            return self.b.depth
        least = max((k for k, scope in enumerate(self.b.scopes) if scope.guarded), default=0)
        lowest = max(least, self.floor, self.written.get(node.buffer.name, 0), *(v.depth for v in operands))
        return min(lowest, self.b.depth)

    def _load_one(self, node: Load, mask: Val | None) -> Val:
        kind = type_of(node.dtype)
        address = self.address(node.buffer, node.index[0])
        self.inside(node.buffer, address, 1, mask)
        if mask is not None:
            address = self.w.select(mask, address, Val("@zero", "ptr", 1, 0))
            self.b.declares["zero"] = "@zero = internal constant [64 x i8] zeroinitializer, align 64"
        text = f"load {kind.memory}, ptr {address.text}, align {kind.size}"
        return self.b.op(text, kind.memory, 1, self._place(node, [address]))

    def _masked(self, mask: Val | None, lanes: int) -> Val | None:
        """The load's own mask and the tail's."""
        if mask is None:
            return self.mask
        mask = self.w.splat(mask, lanes)
        return mask if self.mask is None else self.w.binary("and", mask, self.mask)

    def _load_row(self, node: Load, own: Val | None, lanes: int) -> Val:
        kind = type_of(node.dtype)
        address = self.address(node.buffer, node.index[0])
        row, full = f"<{lanes} x {kind.memory}>", node.buffer.name in self.rows and self.row_lanes > 1
        mask = (None if own is None else self.w.splat(own, lanes)) if full else self._masked(own, lanes)
        self.inside(node.buffer, address, lanes, mask)
        if mask is None:
            text = f"load {row}, ptr {address.text}, align {kind.size}"
            return self.b.op(text, kind.memory, lanes, self._place(node, [address]))
        name = f"llvm.masked.load.{types.suffix(kind.memory, lanes)}.p0"
        self.b.declare(name, row, ["ptr", "i32", f"<{lanes} x i1>", row])
        text = f"call {row} @{name}(ptr {address.text}, i32 {kind.size}, {mask.typed}, {row} zeroinitializer)"
        return self.b.op(text, kind.memory, lanes, self._place(node, [address, mask]))

    def _gather(self, node: Load, own: Val | None) -> Val:
        kind, lanes = type_of(node.dtype), self.indices.lanes
        places = self.addresses(node.buffer, node.index[0])
        mask = self._masked(own, lanes) or Val("splat (i1 true)", "i1", lanes, 0)
        self.inside(node.buffer, places, lanes, mask)
        row = f"<{lanes} x {kind.memory}>"
        name = f"llvm.masked.gather.{types.suffix(kind.memory, lanes)}.v{lanes}p0"
        self.b.declare(name, row, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", row])
        text = f"call {row} @{name}({places.typed}, i32 {kind.size}, {mask.typed}, {row} zeroinitializer)"
        return self.b.op(text, kind.memory, lanes, self._place(node, [places, mask]))

    def store(self, buffer: Buffer, index: Dim, value: Val) -> None:
        """Write `value`, in every live lane."""
        kind = type_of(buffer.dtype)
        lanes = self.contiguous(buffer, index) or self.indices.lanes
        value = self.w.splat(casts.to_memory(self.w, value, buffer.dtype), lanes)
        row = f"<{lanes} x {kind.memory}>"
        interleaved = buffer.name in self.rows and self.row_lanes > 1
        if self.contiguous(buffer, index):
            address = self.address(buffer, index)
            whole = lanes == 1 or self.mask is None or interleaved
            self.inside(buffer, address, lanes, None if whole else self.mask, stores=True)
            if whole:
                self.b.line(f"store {value.typed}, ptr {address.text}, align {kind.size}")
            else:
                name = f"llvm.masked.store.{types.suffix(kind.memory, lanes)}.p0"
                self.b.declare(name, "void", [row, "ptr", "i32", f"<{lanes} x i1>"])
                assert self.mask is not None
                self.b.line(f"call void @{name}({value.typed}, ptr {address.text}, i32 {kind.size}, {self.mask.typed})")
        else:
            places = self.addresses(buffer, index)
            mask = self.mask or Val("splat (i1 true)", "i1", lanes, 0)
            self.inside(buffer, places, lanes, mask, stores=True)
            name = f"llvm.masked.scatter.{types.suffix(kind.memory, lanes)}.v{lanes}p0"
            self.b.declare(name, "void", [row, f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>"])
            self.b.line(f"call void @{name}({value.typed}, {places.typed}, i32 {kind.size}, {mask.typed})")
        self._forget(buffer.name)

    def _forget(self, name: str) -> None:
        """Loads of a buffer that was just written must be done again, and all that is made of them."""
        if name not in self.written:
            return
        for scope in self.b.scopes:
            stale = {n for n in scope.memo if isinstance(n, Expr) and any(i.buffer.name == name for i in n.loads)}
            for node in stale:
                del scope.memo[node]


def is_reciprocal(node: Const) -> bool:
    """Is this the reciprocal of a size, as in a mean?"""
    value = node.value
    if node.dtype not in (torch.float32, torch.float64) or not isinstance(value, float) or not 1e-9 < value < 1 / 16:
        return False
    exact = 1 / round(1 / value)
    return value in (exact, types.to_float32(exact))


def float_bits(node: Const) -> int:
    """The literal's bits as a signed integer."""
    formats = ("<d", "<q") if node.dtype == torch.float64 else ("<f", "<i")
    return int(struct.unpack(formats[1], struct.pack(formats[0], node.value))[0])


_EMIT: dict[type, Callable[[Expressions, Any], Val]] = {
    Const: Expressions._const, Param: Expressions._param, Index: Expressions._index,
    Local: lambda self, node: self.values[node.name], Op: Expressions._op, Load: Expressions._load,
}
