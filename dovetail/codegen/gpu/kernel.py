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

from collections.abc import Iterator
from dataclasses import replace

import torch

from dovetail.codegen.common import ranges
from dovetail.codegen.common.signature import KernelSignature, kernel_symbol
from dovetail.codegen.gpu import types
from dovetail.codegen.gpu.expressions import Expressions, Scope
from dovetail.codegen.gpu.index_width import narrow as is_narrow
from dovetail.codegen.gpu.index_width import reach
from dovetail.codegen.gpu.operators import HELPERS, helpers_of
from dovetail.codegen.gpu.plan import Axis, choose, symbols_of
from dovetail.codegen.gpu.reciprocal import Part, quotient
from dovetail.codegen.gpu.reductions import Reductions
from dovetail.ir import dims, stores
from dovetail.ir.dims import Dim
from dovetail.ir.ends import end
from dovetail.ir.followers import followers
from dovetail.ir.kernel import REPORT, Access, GpuLaunch, Kernel, Limit, report
from dovetail.ir.liveness import buffers, loads_of, nodes, statement_roots
from dovetail.ir.loops import Buffer, Check, Group, Load, Local, Loop, Reduce, Statement, Store
from dovetail.ir.ranges import extent
from dovetail.ir.structure import structure_of
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
    options, structure = options or Options(), structure_of(group)
    device = next(iter(buffers(group).values())).device
    key = (structure.key, options.numerics, options.check_kernels, device, many)
    kernel = MADE.recall(key) or MADE.keep(key, _generate(structure.renamed(), options, many))
    messages = tuple(s.message for s in group.statements() if isinstance(s, Check))
    return kernel.of_buffers(structure.by_number(), messages)


#: Kernels by structure, of the renamed groups.
MADE = stores.Store(2000)


def _generate(group: Group, options: Options, many: bool) -> Kernel:
    made = _Kernel(group, options)
    if made.narrow is not None or many:
        return made.many() if many else made.build()
    wide, short = made.build(), _Kernel(group, options, narrow=True).build()
    assert (wide.pointers, wide.sizes) == (short.pointers, short.sizes), "two versions of a kernel take the same"
    sizes = (*short.sizes[:-1], made.reach, short.sizes[-1])
    return replace(short, sizes=sizes, wide=wide, joins=False)  # type: ignore[arg-type]


class _Kernel:
    """`narrow`: are indices held in 32 bits, whatever sizes come to?"""

    def __init__(self, group: Group, options: Options, narrow: bool = False) -> None:
        self.original, self.options = group, options
        self.group = ranges.simplify(group)
        self.plan = choose(self.group)
        self.signature = KernelSignature()
        self.reach = reach(self.group, self.plan)
        self.narrow = is_narrow(self.reach)
        self.em = Expressions(self.signature, not (narrow or self.narrow), options.check_kernels)
        self.reductions = Reductions(self.em, self.plan, followers(group.loops), self.group)

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
        name = kernel_symbol(self.group, key)
        known = (s.value if isinstance(s, Part) else s for s in self.signature.sizes)
        sizes = (*known, self.plan.programs)
        text = text.replace("def K(", f"def {name}(")
        pointers, touched = self.pointers(), buffers(self.original)
        accesses = tuple(Access(touched[name], stores) for name, stores in self.em.words or ())
        return Kernel(name, text, pointers, sizes, messages, not messages, launch=launch, accesses=accesses)

    def body_text(self, program: str) -> str:
        """The body, after a line that finds the program's number."""
        self.programs(program)
        if any(axis is not None and axis.looped and axis.block == 1 for axis in self.plan.inner):
            self.read_ahead()
        for loop, axis in zip(self.group.loops, self.plan.inner, strict=True):
            self.loop(loop, axis)
        return "\n".join(self.em.outer.lines)

    def size_type(self, size: Dim | Part | Limit) -> str:
        if isinstance(size, Limit):
            return "i64"
        divisible = not isinstance(size, Part) and dims.mod(size, 16) == 0
        return f"{'i64' if self.em.wide else 'i32'}{':16' if divisible else ''}"

    def pointers(self) -> tuple[Buffer, ...]:
        """The original buffers, in the order of the text's pointer arguments."""
        found = buffers(self.original)
        device = next(iter(found.values())).device
        for name, param in self.em.numbers.items():
            found[name] = Buffer(name, param.dtype, device, (), (), 0, "number")
        found[REPORT] = report(device)
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
        spread = self.plan.along(axis, position)
        scope.line(f"{axis.name} = {spread}" if start == "0" else f"{axis.name} = {start} * {axis.block} + {spread}")
        self.digits(scope, axis, position)

    def digits(self, scope: Scope, axis: Axis, position: int) -> None:
        """The index along each of the axis's ranges, and the mask of what exists."""
        rest = axis.name
        self.em.axes |= dict.fromkeys(symbols_of(axis.ranges), position)
        known = bool(self.narrow) and all(isinstance(r, int) and r > 1 for r in map(extent, axis.ranges[1:]))
        for k in range(len(axis.ranges) - 1, 0, -1):
            size, digit, above = extent(axis.ranges[k]), f"{axis.name}_{k}", f"{axis.name}_{k}_"
            divisor = self.signature.extent(size).lstrip("%")
            if known:
                whole, left = quotient(self.signature, rest, size), f"{rest} - {above} * {divisor}"  # type: ignore[arg-type]
                whole, left = self.hinted(axis, position, whole, left, first=rest == axis.name)
            else:
                whole, left = f"{rest} // {divisor}", f"{rest} % {divisor}"
            scope.line(f"{above} = {whole}")
            scope.line(f"{digit} = {left}")
            self.em.bound[dims.as_symbol(axis.ranges[k])], rest = digit, above
        if axis.ranges:
            self.em.bound[dims.as_symbol(axis.ranges[0])] = rest
        if axis.masked:
            scope.line(f"{axis.name}m = {axis.name} < {self.signature.extent(axis.total).lstrip('%')}")
            for r in axis.ranges:
                self.em.masks[dims.as_symbol(r)] = f"{axis.name}m"

    def hinted(self, axis: Axis, position: int, whole: str, left: str, first: bool) -> tuple[str, str]:
        """Quotient and rest with what Triton finds out by itself of its own divisions: no row of the fastest range
        begins or ends within 16 indices that lie together in a tile. `first`: is the rest the place in that range?"""
        if dims.mod(extent(axis.ranges[-1]), 16) != 0 or axis.block % 16 != 0:
            return whole, left
        steps = f"[{', '.join('16' if d == position else '1' for d in range(self.plan.rank))}]"
        if first:
            left = f"tl.max_contiguous(tl.multiple_of({left}, {steps}), {steps})"
        return f"tl.max_constancy({whole}, {steps})", left

    # ------------------------------------------------------------ loops

    def read_ahead(self) -> None:
        """Ask for what is read behind loops of few steps in front of them: each of their steps waits for memory. What
        says where others lie comes last, since a program waits for that at once."""
        written: set[str] = set()
        found: dict[Load, None] = {}
        for loop in self.group.loops:
            for statement in loop.body:
                ahead = () if loop.inner else _independent(statement)
                found |= dict.fromkeys(load for load in ahead if not {i.buffer.name for i in load.loads} & written)
                if isinstance(statement, Store):
                    written.add(statement.buffer.name)
        for load in sorted(found, key=lambda load: len(load.loads)):
            self.em.value(load)

    def loop(self, loop: Loop, axis: Axis | None) -> None:
        em = self.em
        em.ranges = loop.inner
        if axis is None:
            self.body(loop, None)
        elif not axis.looped:
            self.axis(em.outer, axis, "0", self.plan.rank - 1)
            self.body(loop, axis)
        else:
            waiting = [s for s in loop.body if isinstance(s, Reduce) and s.name in self.reductions.lanes]
            body = tuple(s for s in loop.body if s not in waiting)
            if body:
                self.tiles(Loop(loop.inner, body), axis)
            for reduce in waiting:
                self.reductions.join(reduce, axis)

    def tiles(self, loop: Loop, axis: Axis) -> None:
        """A loop over tiles, and what its reductions come to."""
        em = self.em
        em.inner, em.symbols = Scope("        "), symbols_of(axis.ranges)
        step = em.fresh("s")
        self.axis(em.inner, axis, step, self.plan.rank - 1)
        states = self.body(loop, axis)
        size = self.steps(loop, axis)
        for name, start in states:
            em.outer.line(f"{name} = {start}")
        em.outer.line(f"for {step} in range({size}):")
        em.outer.lines += em.inner.lines
        em.inner, em.symbols = None, frozenset()
        em.stored = {k: v for k, v in em.stored.items() if not v[1]}
        self.reductions.results(loop)

    def steps(self, loop: Loop, axis: Axis) -> str:
        """How many tiles a loop takes: all of the axis, or those until its end, the last one of the tile's."""
        every, last = self.signature.extent(_tiles(axis)).lstrip("%"), end(loop)
        if last is None or axis.block > 1:
            return every
        text = self.em.value(last)
        if last.symbols & self.em.axes.keys():
            for side in reversed(range(self.plan.rank)):
                text = f"tl.reduce({text}, {side}, _max)"
        return f"tl.minimum({text}, {every})" + ("" if self.em.wide else ".to(tl.int32)")

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
                em.check(statement)
            elif axis is None:
                em.values[statement.name] = em.value(statement.value)
            elif axis.looped:
                states += self.reductions.accumulate(statement, axis)
            else:
                self.reductions.whole(statement, axis)
        for statement, value in pending:
            em.store(statement.buffer, statement.index[0], value)
        return states

    def scan(self, store: Store, axis: Axis | None) -> str:
        """What the store's value comes to, up to each place of a row; those past its end come last and are nobody's."""
        assert axis is not None and not axis.looped
        whole = f"tl.broadcast_to({self.em.value(store.value)}, {self.plan.tile(axis)})"
        name = self.em.fresh("c")
        self.em.outer.line(f"{name} = tl.associative_scan({whole}, {self.plan.rank - 1}, _{store.scan})")
        return name


def _independent(statement: Statement) -> Iterator[Load]:
    """Loads that wait for no reduction of the group."""
    for load in loads_of(statement_roots(statement)):
        if not any(isinstance(node, Local) for node in nodes([load])):
            yield load


def _imports(body: str) -> str:
    """What stands before a kernel: imports, and the functions that it calls."""
    return _HEAD + "".join(HELPERS[name] for name in helpers_of(body))


def _tiles(axis: Axis) -> Dim:
    """How many tiles cover the axis."""
    return dims.floordiv(axis.total + (axis.block - 1), axis.block)


__all__ = ["generate"]
