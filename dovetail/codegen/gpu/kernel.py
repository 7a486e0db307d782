"""One Group to one Triton kernel.

    @triton.jit
    def K(p0, p1, n0, n1):                       buffers and numbers, which lie in memory; then sizes
        x = tl.program_id(0) * 1 + tl.arange(0, 1)[:, None]
        r = tl.arange(0, 4096)[None, :]
        ...

The last size that a caller gives is the number of programs. Texts are canonical: groups that differ in names and
sizes alone share one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch

from dovetail.codegen.cpu import ranges
from dovetail.codegen.cpu.signature import Signature
from dovetail.codegen.gpu import types
from dovetail.codegen.gpu.expressions import ACCUMULATED, Expressions, Scope
from dovetail.codegen.gpu.operators import HELPERS, helpers_of
from dovetail.codegen.gpu.plan import Axis, choose, symbols_of
from dovetail.codegen.gpu.reach import narrow as is_narrow
from dovetail.codegen.gpu.reach import reach
from dovetail.codegen.gpu.reciprocal import Factor, Shift, quotient
from dovetail.ir import dims
from dovetail.ir.dims import Dim
from dovetail.ir.followers import Exponentials, Squares, follower_of, followers
from dovetail.ir.kernel import GpuLaunch, Kernel
from dovetail.ir.liveness import nodes, statement_roots
from dovetail.ir.loops import Buffer, Check, Group, Load, Loop, Reduce, Store, extent
from dovetail.ir.scalar import identity
from dovetail.options import Options

#: Which group a program of a launch of many belongs to: the last one that begins at it or before. All words at once: a
#: search by halves would wait for the memory at each step.
_SEARCH = (
    "program = tl.program_id(0)", "low = program * 0 - 1", "for step in range((count + 511) // 512):",
    "    place = step * 512 + tl.arange(0, 512)",
    "    begins = tl.load(table + place, place < count, other=1 << 62)",
    "    low += tl.reduce((begins <= program).to(tl.int32), 0, _sum)",
    "row = table + count + 1 + low * WIDTH",
)  # fmt: skip
_HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


def generate(group: Group, options: Options | None = None, many: bool = False) -> Kernel:
    """The kernel of one group, or of `many` like it. Raises Unsupported for dtypes that GPU kernels cannot compute."""
    made = _Kernel(group, options or Options())
    if made.narrow is not None or many:
        return made.many() if many else made.build()
    wide, short = made.build(), _Kernel(group, options or Options(), narrow=True).build()
    assert (wide.pointers, wide.sizes) == (short.pointers, short.sizes), "two versions of a kernel take the same"
    sizes = (*short.sizes[:-1], made.reach, short.sizes[-1])
    return replace(short, sizes=sizes, wide=wide, joins=False)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Lanes:
    """What a follower has come to in each lane of a loop over tiles, and its leader, or the mean of what that added."""

    follower: Squares | Exponentials
    lead: str
    total: str


class _Kernel:
    """`narrow`: are indices held in 32 bits, whatever sizes come to?"""

    def __init__(self, group: Group, options: Options, narrow: bool = False) -> None:
        self.original, self.options = group, options
        self.group = ranges.simplify(group)
        self.plan = choose(self.group)
        self.signature = Signature()
        self.reach = reach(self.group, self.plan)
        self.narrow = is_narrow(self.reach)
        self.followers = self.found()  # by their leaders' names
        self.lanes: dict[str, _Lanes] = {}  # of followers whose leaders' loop is written
        self.state: dict[str, list[str]] = {}  # accumulators of reductions over tiles
        self.em = Expressions(self.signature, wide=not (narrow or self.narrow))

    def found(self) -> dict[str, list[Squares | Exponentials]]:
        """Followers, with the ranges of simplified loops: each loop has its own there."""
        loops = {s.name: loop for loop in self.group.loops for s in loop.body if isinstance(s, Reduce)}
        reduces = {s.name: s for s in self.group.statements() if isinstance(s, Reduce)}
        found = {}
        for leader, behind in followers(self.original.loops).items():
            again = [follower_of(reduces[f.reduce.name], loops[f.reduce.name].inner) for f in behind]
            found[leader] = [f for f in again if f is not None]
        return found

    # ------------------------------------------------------------ the whole text

    def build(self) -> Kernel:
        body = self.body_text("program = tl.program_id(0)")
        parameters = [f"p{k}" for k in range(len(self.signature.pointers))]
        parameters += [f"n{k}" for k in range(len(self.signature.sizes))]
        messages = tuple(s.message for s in self.group.statements() if isinstance(s, Check))
        text = f"{_imports(body)}\n\n@triton.jit\ndef K({', '.join(parameters)}):\n{body}\n"
        return self.named(text, messages, self.types())

    def many(self) -> Kernel:
        """One launch for several groups. `table` has, in words, the first program of each and their number in all; then
        a row for each group: addresses, sizes, number of programs."""
        body = self.body_text("program = program - tl.load(table + low).to(tl.int32)")
        lines = [*_SEARCH]
        for k, buffer in enumerate(self.pointers()):
            kind = types.TYPES[buffer.dtype][0] if buffer.dtype is not torch.bool else "int8"
            lines.append(f"p{k} = tl.load(row + {k}).to(tl.pointer_type(tl.{kind}))")
            lines.append(f"p{k} = tl.multiple_of(p{k}, 16)")
        first, width = len(self.signature.pointers), len(self.types()) + 1
        for k, kind in enumerate(self.types()[first:]):
            lines.append(f"n{k} = tl.load(row + {first + k}).to(tl.int{kind[1:3]})")
            lines += [f"n{k} = tl.multiple_of(n{k}, 16)"] if kind.endswith(":16") else []
        head = "".join(f"    {line}\n" for line in lines).replace("WIDTH", str(width))
        text = f"{_imports(head + body)}\n\n@triton.jit\ndef K(table, count):\n{head}{body}\n"
        return replace(self.named(text, (), ("*i64", "i32")), many=True)

    def types(self) -> tuple[str, ...]:
        pointers = [f"*{types.TYPES[b.dtype][1]}" for b in self.pointers()]
        return (*pointers, *map(self.size_type, self.signature.sizes))

    def named(self, text: str, messages: tuple[str, ...], arguments: tuple[str, ...]) -> Kernel:
        launch = GpuLaunch(arguments, self.plan.warps, bool(messages), self.options.numerics == "default")
        key = f"{launch}\n{self.types()}\n{text}"
        symbol = f"k{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        known = (s.value if isinstance(s, (Factor, Shift)) else s for s in self.signature.sizes)
        sizes = (*known, self.plan.programs)
        text = text.replace("def K(", f"def {symbol}(")
        return Kernel(symbol, text, self.pointers(), sizes, messages, joins=not messages, launch=launch)

    def body_text(self, program: str) -> str:
        """The body, after a line that finds the program's number."""
        self.programs(program)
        for loop, axis in zip(self.group.loops, self.plan.inner, strict=True):
            self.loop(loop, axis)
        return "\n".join(self.em.outer.lines)

    def size_type(self, size: Dim | Factor | Shift) -> str:
        divisible = not isinstance(size, (Factor, Shift)) and dims.mod(size, 16) == 0
        return f"{'i64' if self.em.wide else 'i32'}{':16' if divisible else ''}"

    def pointers(self) -> tuple[Buffer, ...]:
        """The original buffers, in the order of the text's pointer arguments."""
        found: dict[str, Buffer] = {}
        for statement in self.original.statements():
            for node in nodes(statement_roots(statement)):
                if isinstance(node, Load):
                    found.setdefault(node.buffer.name, node.buffer)
            if isinstance(statement, Store):
                found.setdefault(statement.buffer.name, statement.buffer)
        device = next(iter(found.values())).device
        for name, param in self.em.numbers.items():
            found[name] = Buffer(name, param.dtype, device, (), (), 0, "number")
        return tuple(found[name] for name in self.signature.pointers)

    # ------------------------------------------------------------ which program, which tile

    def programs(self, program: str) -> None:
        """Indices of the axes and batch ranges from the number of the program."""
        line = self.em.outer.line
        line(f"{program}{'.to(tl.int64)' if self.em.wide else ''}")
        parts = [*((r, None) for r in self.plan.batch), *((None, a) for a in self.plan.axes)]
        for k, (batch, axis) in reversed(list(enumerate(parts))):
            place = "program"
            if k:
                count = extent(batch) if batch is not None else _tiles(axis)  # type: ignore[arg-type]
                size = self.signature.extent(count).lstrip("%")
                line(f"part{k} = program % {size}")
                line(f"program = program // {size}")
                place = f"part{k}"
            if batch is not None:
                self.em.bound[dims.as_symbol(batch)] = place
            else:
                assert axis is not None
                self.axis(self.em.outer, axis, place, self.plan.axes.index(axis))

    def axis(self, scope: Scope, axis: Axis, start: str, position: int) -> None:
        """The indices of a tile that is number `start` along the axis."""
        spread = self.along(axis, position)
        scope.line(f"{axis.name} = {spread}" if start == "0" else f"{axis.name} = {start} * {axis.block} + {spread}")
        self.digits(scope, axis, position)

    def along(self, axis: Axis, position: int) -> str:
        """Numbers from 0, along one side of a tile."""
        shape = ", ".join(":" if k == position else "None" for k in range(self.plan.rank))
        return f"tl.arange(0, {axis.block})" + (f"[{shape}]" if self.plan.rank > 1 else "")

    def digits(self, scope: Scope, axis: Axis, position: int) -> None:
        """The index along each of the axis's ranges, and the mask of what exists."""
        rest = axis.name
        self.em.axes |= dict.fromkeys(symbols_of(axis.ranges), position)
        known = bool(self.narrow) and all(isinstance(r, int) and r > 1 for r in map(extent, axis.ranges[1:]))
        for k in range(len(axis.ranges) - 1, -1, -1):
            symbol = dims.as_symbol(axis.ranges[k])
            if k:
                size = self.signature.extent(symbol.extent).lstrip("%")  # type: ignore[arg-type]
                digit, above = f"{axis.name}_{k}", f"{axis.name}_{k}_"
                if known:
                    divided, left = quotient(self.signature, rest, symbol.extent), f"{rest} - {above} * {size}"
                    if self.aligned(axis):  # as Triton finds out by itself of its own divisions
                        steps = f"[{', '.join('16' if d == position else '1' for d in range(self.plan.rank))}]"
                        divided = f"tl.max_constancy({divided}, {steps})"
                        if rest == axis.name:
                            left = f"tl.max_contiguous(tl.multiple_of({left}, {steps}), {steps})"
                    scope.line(f"{above} = {divided}")
                    scope.line(f"{digit} = {left}")
                else:
                    scope.line(f"{digit} = {rest} % {size}")
                    scope.line(f"{above} = {rest} // {size}")
                self.em.bound[symbol], rest = digit, above
            else:
                self.em.bound[symbol] = rest
        if axis.masked:
            scope.line(f"{axis.name}m = {axis.name} < {self.signature.extent(axis.total).lstrip('%')}")
            for r in axis.ranges:
                self.em.masks[dims.as_symbol(r)] = f"{axis.name}m"

    def aligned(self, axis: Axis) -> bool:
        """Does no row of the fastest range begin or end within 16 indices that lie together in a tile?"""
        return dims.mod(extent(axis.ranges[-1]), 16) == 0 and axis.block % 16 == 0

    # ------------------------------------------------------------ loops

    def loop(self, loop: Loop, axis: Axis | None) -> None:
        em = self.em
        em.ranges = loop.inner
        if axis is None:
            self.body(loop, None)
        elif not axis.looped:
            self.axis(em.outer, axis, "0", self.plan.rank - 1)
            self.body(loop, axis)
        else:
            body = tuple(s for s in loop.body if not (isinstance(s, Reduce) and s.name in self.lanes))
            if body:
                self.tiles(Loop(loop.inner, body), axis)
            for statement in loop.body:
                if isinstance(statement, Reduce) and statement.name in self.lanes:
                    self.join(statement, self.lanes[statement.name], axis)

    def tiles(self, loop: Loop, axis: Axis) -> None:
        """A loop over tiles, and what its reductions come to."""
        em = self.em
        em.inner, em.symbols = Scope("        "), symbols_of(axis.ranges)
        step = em.fresh("s")
        self.axis(em.inner, axis, step, self.plan.rank - 1)
        states = self.body(loop, axis)
        size = self.signature.extent(_tiles(axis)).lstrip("%")
        for name, start in states:
            em.outer.line(f"{name} = {start}")
        em.outer.line(f"for {step} in range({size}):")
        em.outer.lines += em.inner.lines
        em.inner, em.symbols = None, frozenset()
        em.stored = {k: v for k, v in em.stored.items() if not v[1]}
        self.results(loop)

    def body(self, loop: Loop, axis: Axis | None) -> list[tuple[str, str]]:
        """Values first, then stores; gives the accumulators of a looped axis, each with its start."""
        em = self.em
        states: list[tuple[str, str]] = []
        pending: list[tuple[Store, str]] = []
        for statement in loop.body:
            if isinstance(statement, Store):
                value = self.scan(statement, axis) if statement.scan else em.value(statement.value)
                if statement.buffer.kind == "local":
                    em.hold(statement.buffer.name, statement.index[0], value, inside=True)
                else:
                    pending.append((statement, value))
            elif isinstance(statement, Check):
                em.outer.line(f'tl.device_assert({em.value(statement.condition)}, "{statement.message}")')
            elif axis is None:
                em.values[statement.name] = em.value(statement.value)
            elif axis.looped:
                states += self.accumulate(statement, axis)
            else:
                self.reduce(statement, axis)
        for statement, value in pending:
            em.store(statement.buffer, statement.index[0], value)
        return states

    def scan(self, store: Store, axis: Axis | None) -> str:
        """What the store's value comes to, up to each place of a row; those past its end come last and are nobody's."""
        assert axis is not None and not axis.looped
        whole = f"tl.broadcast_to({self.em.value(store.value)}, {self.tile(axis)})"
        name = self.em.fresh("c")
        self.em.outer.line(f"{name} = tl.associative_scan({whole}, {self.plan.rank - 1}, _{store.scan})")
        return name

    # ------------------------------------------------------------ reductions

    def tile(self, axis: Axis) -> str:
        sides = [str(a.block) for a in (*self.plan.axes, axis)]
        return f"({', '.join(sides)}{',' * (len(sides) == 1)})"

    def spread(self, reduce: Reduce, axis: Axis) -> tuple[str, str]:
        """The value over the whole tile, with the identity where nothing exists; and that identity."""
        dtype = _accumulated(reduce)
        value = self.em.value(reduce.value)
        if dtype is not reduce.value.dtype:
            value = f"{value}.to({types.name(dtype)})"
        neutral = types.literal(identity(reduce.kind, dtype), dtype)
        value = f"tl.broadcast_to({value}, {self.tile(axis)})"
        if axis.masked:
            value = f"tl.where({axis.name}m, {value}, {neutral})"
        return value, neutral

    def reduce(self, reduce: Reduce, axis: Axis) -> None:
        """Of a tile that holds all there is."""
        value, _ = self.spread(reduce, axis)
        self.fold(reduce, [value, *self.places(reduce, axis)])

    def places(self, reduce: Reduce, axis: Axis) -> list[str]:
        if not reduce.kind.startswith("arg"):
            return []
        return [f"tl.broadcast_to({axis.name}, {self.tile(axis)}).to(tl.int64)"]

    def accumulate(self, reduce: Reduce, axis: Axis) -> list[tuple[str, str]]:
        """One step of a loop over tiles."""
        em = self.em
        assert em.inner is not None
        value, neutral = self.spread(reduce, axis)
        names = self.state[reduce.name] = [em.fresh("a")]
        states = [(names[0], f"tl.broadcast_to({neutral}, {self.tile(axis)})")]
        if reduce.kind.startswith("arg"):
            names.append(em.fresh("a"))
            states.append((names[1], f"tl.full({self.tile(axis)}, {2**62}, tl.int64)"))
        if reduce.name in self.followers:
            em.inner.line(f"{(given := em.fresh('v'))} = {value}")
            value = given
            for follower in self.followers[reduce.name]:
                states += self.follow(follower, names[0], value, axis)
        given = [value, *self.places(reduce, axis)]
        em.inner.line(f"{', '.join(names)} = _{reduce.kind}({', '.join([*names, *given])})")
        return states

    def results(self, loop: Loop) -> None:
        for statement in loop.body:
            if isinstance(statement, Reduce):
                self.fold(statement, self.state[statement.name])

    # ------------------------------------------------------------ reductions that would wait for others

    def follow(self, follower: Squares | Exponentials, lead: str, value: str, axis: Axis) -> list[tuple[str, str]]:
        """One step for each lane by itself: `lead` is what the leader has come to in it."""
        em, zero = self.em, types.literal(0.0, follower.dtype)
        assert em.inner is not None
        start = f"tl.broadcast_to({zero}, {self.tile(axis)})"
        if isinstance(follower, Exponentials):
            total = em.fresh("e")
            em.inner.line(f"{total} = _exponentials({lead}, {total}, {value})")
            self.lanes[follower.reduce.name] = _Lanes(follower, lead, total)
            return [(total, start)]
        mean, squares, count = em.fresh("m"), em.fresh("q"), em.fresh("n")
        value = f"tl.where({axis.name}m, {value}, {mean})" if axis.masked else value
        em.inner.line(f"{count} += 1.0")
        em.inner.line(f"{mean}, {squares} = _squares({mean}, {squares}, {value}, {count})")
        self.lanes[follower.reduce.name] = _Lanes(follower, mean, squares)
        return [(mean, start), (squares, start), (count, zero)]

    def join(self, reduce: Reduce, lanes: _Lanes, axis: Axis) -> None:
        """What all lanes come to."""
        shift = self.em.value(lanes.follower.shift)
        if isinstance(lanes.follower, Exponentials):
            self.fold(reduce, [f"{lanes.total} * libdevice.exp({lanes.lead} - {shift})"])
            return
        line, size = self.em.outer.line, self.signature.extent(axis.total).lstrip("%")
        count, away = self.em.fresh("n"), self.em.fresh("d")
        line(f"{count} = ({size} + {axis.block - 1} - {self.along(axis, self.plan.rank - 1)}) // {axis.block}")
        line(f"{away} = {lanes.lead} - {shift}")
        self.fold(reduce, [f"{lanes.total} + {count}.to({types.name(reduce.dtype)}) * {away} * {away}"])

    # ------------------------------------------------------------ tiles into one for each outer index

    def fold(self, reduce: Reduce, parts: list[str]) -> None:
        """A tile's values into one for each outer index."""
        em, last = self.em, self.plan.rank - 1
        keep = ", keep_dims=True" if self.plan.rank > 1 else ""
        if reduce.kind.startswith("arg"):
            extreme, name = em.fresh(), em.fresh("r")
            em.outer.line(f"{extreme}, {name} = tl.reduce(({', '.join(parts)}), {last}, _{reduce.kind}{keep})")
        else:
            name = em.fresh("r")
            em.outer.line(f"{name} = tl.reduce({parts[0]}, {last}, _{reduce.kind}{keep})")
            if _accumulated(reduce) is not reduce.dtype:
                em.outer.line(f"{name} = {name}.to({types.name(reduce.dtype)})")
        em.values[reduce.name] = name


def _imports(body: str) -> str:
    """What stands before a kernel: imports, and the functions that it calls."""
    return _HEAD + "".join(HELPERS[name] for name in helpers_of(body))


def _tiles(axis: Axis) -> Dim:
    """How many tiles cover the axis."""
    return dims.floordiv(axis.total + (axis.block - 1), axis.block)


def _accumulated(reduce: Reduce) -> torch.dtype:
    own = reduce.value.dtype if reduce.kind.startswith("arg") else reduce.dtype
    return ACCUMULATED.get(own, own)


__all__ = ["generate"]
