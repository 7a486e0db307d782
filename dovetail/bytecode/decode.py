"""Code object → version-independent instructions.

Inline caches and EXTENDED_ARG vanish, jump targets become instruction indexes, names and
constants are resolved, synonyms are folded (see `opcodes.SYNONYMS`), so

    118 POP_JUMP_FORWARD_IF_FALSE 12 (to 144)   ->   Instruction("POP_JUMP_IF_FALSE", target=61)

Flag bits are kept apart in `Instruction.flag`. Results are cached by code object.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from opcode import EXTENDED_ARG, opname
from types import CodeType
from typing import Any

from dovetail.bytecode.opcodes import (
    BINARY_OPERATORS,
    COMPARISONS,
    DIALECT,
    OPCODES,
    SYNONYMS,
    TRUTH_TESTS,
    Arg,
)
from dovetail.ir.stores import Store, remembered

Position = tuple[int | None, int | None, int | None, int | None]  # line, end line, column, end column


@dataclass(slots=True)
class Instruction:
    """`value` is the resolved argument: a name, a constant, an operator or the raw number.

    `target` is the index of the instruction jumped to, -1 for none.
    """

    name: str
    arg: int
    value: Any
    flag: int = 0
    target: int = -1
    offset: int = 0
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

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.fast_names = _fast_names(code)
        self.instructions, index_of = _instructions(code, self.fast_names)
        self.regions = _regions(code, index_of)
        self._positions: list[Position] | None = None

    def position(self, index: int) -> Position:
        if self._positions is None:
            self._positions = list(self.code.co_positions())
        return self._positions[self.instructions[index].offset // 2]

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


def _units(code: CodeType) -> list[tuple[int, str, int]]:
    """(offset, opcode name, argument) with EXTENDED_ARG folded in and caches left out."""
    raw = code.co_code
    units = []
    extended, start = 0, -1
    for offset in range(0, len(raw), 2):
        op, arg = raw[offset], raw[offset + 1] | extended
        if op == EXTENDED_ARG:
            extended = arg << 8
            start = offset if start < 0 else start
            continue
        if op != 0:
            units.append((start if start >= 0 else offset, opname[op], arg))
        extended, start = 0, -1
    return units


def _instructions(code: CodeType, fast: tuple[str, ...]) -> tuple[list[Instruction], dict[int, int]]:
    units = _units(code)
    index_of = {offset: k for k, (offset, _, _) in enumerate(units)}
    index_of[len(code.co_code)] = len(units)
    following = [offset for offset, _, _ in units[1:]] + [len(code.co_code)]
    resolve = _Resolver(code, fast)
    out = []
    for (offset, name, arg), after in zip(units, following):
        row = OPCODES.get(name)
        value, flag, target = arg, 0, -1
        if row is not None and row.arg is not Arg.RAW:
            if row.arg is Arg.JUMP:
                target = index_of[after + 2 * arg]
            elif row.arg is Arg.JUMP_BACK:
                target = index_of[after - 2 * arg]
            else:
                value, flag = resolve(name, row.arg, arg)
        out.append(Instruction(SYNONYMS.get(name, name), arg, value, flag, target, offset))
    for instruction in out:
        if instruction.name == "FOR_ITER":
            instruction.target = _after_loop(out, instruction.target)
    for instruction, following_one in pairwise(out):
        if following_one.name in TRUTH_TESTS:
            _leave_unconverted(instruction)
    return out, index_of


def _leave_unconverted(instruction: Instruction) -> None:
    """Let the truth test that follows convert, so that a branch on a tensor is one instruction on every Python."""
    if instruction.name == "TO_BOOL":
        instruction.name = "NOP"
    elif instruction.name == "COMPARE_OP":
        instruction.flag = 0


def _after_loop(instructions: list[Instruction], target: int) -> int:
    """Where an exhausted loop goes on, its iterator popped."""
    for name in DIALECT.loop_end:
        assert instructions[target].name == name, instructions[target].name
        target += 1
    return target


class _Resolver:
    def __init__(self, code: CodeType, fast: tuple[str, ...]) -> None:
        self.code, self.fast = code, fast
        self.table: dict[Arg, Callable[[str, int], tuple[Any, int]]] = {
            Arg.CONST: lambda n, a: (code.co_consts[a], 0),
            Arg.NAME: lambda n, a: (code.co_names[a], 1 if n == "LOAD_METHOD" else 0),
            Arg.NAME_BIT: self.name_bit,
            Arg.NAME_TWO_BITS: lambda n, a: (code.co_names[a >> 2], a & 3),
            Arg.LOCAL: lambda n, a: (fast[a], 0),
            Arg.TWO_LOCALS: lambda n, a: ((fast[a >> 4], fast[a & 15]), 0),
            Arg.COMPARE: lambda n, a: (COMPARISONS[a >> DIALECT.compare_shift], a & DIALECT.compare_flag),
            Arg.BINARY: lambda n, a: (BINARY_OPERATORS[a], 0),
        }

    def __call__(self, name: str, kind: Arg, arg: int) -> tuple[Any, int]:
        return self.table[kind](name, arg)

    def name_bit(self, name: str, arg: int) -> tuple[Any, int]:
        if name == "LOAD_ATTR" and not DIALECT.method_bit:
            return self.code.co_names[arg], 0
        return self.code.co_names[arg >> 1], arg & 1


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
