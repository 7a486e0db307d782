"""Code object → canonical instructions (`instructions.py`).

Inline caches and EXTENDED_ARG vanish, jump targets become instruction indexes, names and constants are resolved, and
what one version of Python has in its own way becomes what all have, so

    118 POP_JUMP_FORWARD_IF_FALSE 12 (to 144)   ->   Instruction("POP_JUMP_IF_FALSE", target=61)

Results are cached by code object.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from opcode import opname
from types import CodeType
from typing import Any, NamedTuple

from dovetail.bytecode.instructions import (
    BINARY_OPERATORS,
    COMMON_CONSTANTS,
    COMPARISONS,
    INTRINSICS_1,
    INTRINSICS_2,
    ROWS,
    TESTS,
    UNKNOWN,
    Arg,
    Native,
    Part,
    Row,
    beginning,
    known,
)
from dovetail.bytecode.pythons import HERE, Python
from dovetail.ir.records import dataclass
from dovetail.ir.stores import Store, remembered

Position = tuple[int | None, int | None, int | None, int | None]  # line, end line, column, end column


@dataclass(slots=True)
class Instruction:
    """`value` is the resolved argument: a name, a constant, an operator or the raw number.

    `target` is the index of the instruction jumped to, -1 for none. `offset` is where the native instruction begins
    that it stands for, or the first of several, and `end` where the last of them ends.
    """

    name: str
    arg: int
    value: Any
    offset: int
    end: int
    target: int = -1
    handler: Any = None


@dataclass(frozen=True, slots=True)
class Region:
    """Instructions `[start, end)` are protected: an exception unwinds the stack to `depth` and goes to `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


INLINED = " (inlined)"  # ends the name of a comprehension's variable where a free variable has that name


class Code:
    """A decoded code object; `positions(k)` gives instruction k's place in the source."""

    __slots__ = ("code", "instructions", "regions", "fast_names", "_positions", "_lines", "__weakref__")

    def __init__(self, code: CodeType, python: Python | None = HERE, names: Sequence[str] = opname) -> None:
        """`names` are the opcodes of that Python by number."""
        assert python is not None, "a version of Python that is refused"
        self.code = code
        self.fast_names = _fast_names(code)
        decoder = _Decoder(code, self.fast_names, python, names)
        self.instructions = decoder.decoded()
        self.regions = _regions(code, decoder.index_of | decoder.borders)
        self._positions: list[Position] | None = None

    def position(self, index: int) -> Position:
        if self._positions is None:
            self._positions = list(self.code.co_positions())
        return self._positions[self.instructions[index].end // 2 - 1]

    def region(self, index: int) -> Region | None:
        """The innermost protected region around instruction `index`."""
        for region in self.regions:
            if region.start <= index < region.end:
                return region
        return None


_known: weakref.WeakValueDictionary[CodeType, Code] = weakref.WeakValueDictionary()
_latest = Store(5000)


def decode(code: CodeType) -> Code:
    """The decoded form of `code`; the same object as long as anybody has it."""
    found = _known.get(code)
    if found is None:
        found = _known[code] = Code(code)
    return _latest.keep(code, found)


def _fast_names(code: CodeType) -> tuple[str, ...]:
    """Names by index of the frame's fast locals; an argument that is a cell has one slot.

    An inlined comprehension may have a variable by the name of a free one: that is two slots, with two names.
    """
    arguments, free = set(code.co_varnames), set(code.co_freevars)
    own = code.co_varnames + tuple(n for n in code.co_cellvars if n not in arguments)
    return tuple(n + INLINED if n in free else n for n in own) + code.co_freevars


class _Unit(NamedTuple):
    """A native instruction with its EXTENDED_ARG and caches: `[offset, end)`."""

    offset: int
    end: int
    name: str
    arg: int


def _units(raw: bytes, names: Sequence[str]) -> list[_Unit]:
    extended_arg = names.index("EXTENDED_ARG")
    found: list[tuple[int, str, int]] = []
    extended, start = 0, -1
    for offset in range(0, len(raw), 2):
        op, arg = raw[offset], raw[offset + 1] | extended
        if op == extended_arg:
            extended = arg << 8
            start = offset if start < 0 else start
            continue
        if op != 0:
            found.append((start if start >= 0 else offset, names[op], arg))
        extended, start = 0, -1
    ends = [offset for offset, _, _ in found[1:]] + [len(raw)]
    return [_Unit(offset, end, name, arg) for (offset, name, arg), end in zip(found, ends)]


JUMPS = {Arg.JUMP: 2, Arg.JUMP_BACK: -2}


class _Decoder:
    """One decoding: `out` grows by what each native instruction, or several at once, stands for."""

    def __init__(self, code: CodeType, fast: tuple[str, ...], python: Python, names: Sequence[str]) -> None:
        self.code, self.python = code, python
        self.units = _units(code.co_code, names)
        self.resolve = _Resolver(code, fast, python).table
        self.out: list[Instruction] = []
        self.index_of: dict[int, int] = {}  # offset -> the first instruction that is there or later
        self.borders: dict[int, int] = {}  # offset -> the same, where that of a protected region is another one
        self.jumps: list[tuple[Instruction, int]] = []  # an instruction, and the offset that it jumps to

    def decoded(self) -> list[Instruction]:
        sequences = beginning(self.python.minor)
        units, k = self.units, 0
        while k < len(units):
            for sequence in sequences.get(units[k].name, ()):
                count = len(sequence.names)
                if sequence.names == tuple(unit.name for unit in units[k : k + count]):
                    self._several(units[k : k + count], sequence.rewrite)
                    k += count
                    break
            else:
                self._one(units[k])
                k += 1
        self.index_of[len(self.code.co_code)] = len(self.out)
        for instruction, offset in self.jumps:
            instruction.target = self.index_of[offset]
        return self.out

    def _one(self, unit: _Unit) -> None:
        self.index_of[unit.offset] = len(self.out)
        name, arg = unit.name, unit.arg
        row = ROWS.get(name, UNKNOWN)
        step = JUMPS.get(row.arg)
        if row.rewrite is not None:
            for part in row.rewrite(self.python, (self._native(unit, row),)):
                self._add(part, unit.offset, unit.end)
        elif step is not None:
            made = self._add((row.becomes[0] if row.becomes else name, arg, arg), unit.offset, unit.end)
            self.jumps.append((made, unit.end + step * arg))
        else:
            value: Any = arg if row.arg is Arg.RAW else self.resolve[row.arg](arg)[0]
            if row.becomes is None:
                self._add((name, arg, value), unit.offset, unit.end)
                return
            values: tuple[Any, ...] = value if row.arg is Arg.TWO_LOCALS else (value,) * len(row.becomes)
            for each, part_value in zip(row.becomes, values):
                self._add((each, arg, part_value), unit.offset, unit.end)

    def _several(self, units: list[_Unit], rewrite: Callable[..., tuple[Part, ...]]) -> None:
        for unit in units:
            self.index_of[unit.offset] = len(self.out)
        natives = tuple(self._native(unit, ROWS[unit.name]) for unit in units)
        for part in rewrite(self.python, natives):
            self._add(part, units[0].offset, units[-1].end)

    def _native(self, unit: _Unit, row: Row) -> Native:
        value, flag = (unit.arg, 0) if row.arg is Arg.RAW else self.resolve[row.arg](unit.arg)
        return Native(unit.name, unit.arg, value, flag)

    def _add(self, part: Part, offset: int, end: int) -> Instruction:
        name, arg, value = part
        out = self.out
        if name in TESTS and out and out[-1].name == "TO_BOOL":
            out.pop()  # what tests for truth converts: so a branch on a tensor is one instruction on every Python
            self.index_of[offset], self.borders[offset] = len(out), len(out) + 1  # it raises what converting raises
        made = Instruction(name, arg, value, offset, end)
        out.append(made)
        return made


Resolve = Callable[[int], tuple[Any, int]]  # argument -> value, flag bits


class _Resolver:
    """What the arguments of a code object's instructions stand for."""

    def __init__(self, code: CodeType, fast: tuple[str, ...], python: Python) -> None:
        consts, names = code.co_consts, code.co_names
        bit = 1 if python.attribute_bit else 0
        shift, wants_bool = python.compare_shift, python.compare_bool
        self.table: dict[Arg, Resolve] = {
            Arg.CONST: lambda a: (consts[a], 0),
            Arg.COMMON: lambda a: (COMMON_CONSTANTS[a], 0),
            Arg.NAME: lambda a: (names[a], 0),
            Arg.NAME_BIT: lambda a: (names[a >> 1], a & 1),
            Arg.ATTRIBUTE: lambda a: (names[a >> bit], a & bit),
            Arg.NAME_TWO_BITS: lambda a: (names[a >> 2], a & 3),
            Arg.LOCAL: lambda a: (fast[a], 0),
            Arg.TWO_LOCALS: lambda a: ((fast[a >> 4], fast[a & 15]), 0),
            Arg.COMPARE: lambda a: (COMPARISONS[a >> shift], a & wants_bool),
            Arg.BINARY: lambda a: (BINARY_OPERATORS[a], 0),
            Arg.INTRINSIC_1: lambda a: (INTRINSICS_1.get(a), 0),
            Arg.INTRINSIC_2: lambda a: (INTRINSICS_2.get(a), 0),
        }


def entrance(code: Code, index: int) -> tuple[list[tuple[str, int]], int]:
    """How Python goes on at instruction `index` with the stack as it is then: native instructions, then an offset.

    The instructions are what is left of a native one of which `index` is a part, and the conversion that a truth test
    takes for granted in the versions where the instruction before it makes it.
    """
    here, found = code.instructions[index], []
    if index and code.instructions[index - 1].offset == here.offset:
        for part in code.instructions[index:]:
            if part.offset != here.offset:
                break
            found.append((part.name, part.arg))
        return found, here.end
    if here.name in TESTS and known("TO_BOOL"):
        found.append(("TO_BOOL", 0))
    return found, here.offset


def _regions(code: CodeType, index_of: dict[int, int]) -> tuple[Region, ...]:
    """The exception table, innermost regions first.

    Format: Objects/exception_handling_notes.txt in the CPython sources.
    """
    table = iter(code.co_exceptiontable)
    regions = []
    offsets = sorted(index_of)
    for first in table:
        start = _varint(first, table) * 2
        length = _varint(next(table), table) * 2
        target = _varint(next(table), table) * 2
        depth_lasti = _varint(next(table), table)
        begin, end = _index(index_of, offsets, start), _index(index_of, offsets, start + length)
        regions.append(Region(begin, end, index_of[target], depth_lasti >> 1, bool(depth_lasti & 1)))
    return tuple(sorted(regions, key=lambda r: r.end - r.start))


def _index(index_of: dict[int, int], offsets: list[int], offset: int) -> int:
    """The first instruction at or after `offset`; a region may end inside inline caches."""
    found = index_of.get(offset)
    return found if found is not None else index_of[next(o for o in offsets if o >= offset)]


def _varint(first: int, rest: Any) -> int:
    value, byte = first & 63, first
    while byte & 64:
        byte = next(rest)
        value = value << 6 | byte & 63
    return value


@remembered(5000)
def flags(code: CodeType) -> tuple[bool, bool, bool]:
    """(*args?, **kwargs?, generator or coroutine?)"""
    bits = code.co_flags
    return bool(bits & 4), bool(bits & 8), bool(bits & (0x20 | 0x80 | 0x100 | 0x200))
