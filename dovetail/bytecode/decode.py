"""Code object → canonical instructions (`instructions.py`).

Inline caches and EXTENDED_ARG vanish, jump targets become instruction indexes, names and constants are resolved, and
what one version of Python has in its own way becomes what all have, so

    118 POP_JUMP_FORWARD_IF_FALSE 12 (to 144)   ->   Instruction("POP_JUMP_IF_FALSE", target=61)

Results are cached by code object.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from opcode import EXTENDED_ARG, opname
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
    Several,
    beginning,
    known,
)
from dovetail.bytecode.pythons import HERE, Python
from dovetail.ir.records import dataclass
from dovetail.ir.stores import Store

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


class Parameters(NamedTuple):
    """Names by the kinds of a signature; `star` and `double` are those of `*args` and `**kwargs`."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    positional_only: int
    star: str | None
    double: str | None


SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # a call runs none of their code


class Code:
    """A decoded code object; `positions(k)` gives instruction k's place in the source."""

    __slots__ = (
        "code", "instructions", "regions", "fast_names", "parameters", "suspended", "_positions", "__weakref__",
    )  # fmt: skip

    def __init__(self, code: CodeType, python: Python | None = HERE, names: Sequence[str] = opname) -> None:
        """`names` are the opcodes of that Python by number."""
        assert python is not None, "a version of Python that is refused"
        self.code = code
        self.fast_names = _fast_names(code)
        self.parameters = _parameters(code)
        self.suspended = bool(code.co_flags & SUSPENDED)
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


_known: weakref.WeakValueDictionary[int, Code] = weakref.WeakValueDictionary()
_latest = Store(5000)


def decode(code: CodeType) -> Code:
    """The decoded form of `code`; the same object as long as anybody has it.

    By address: a decoded form keeps its code alive, and to hash code is to read all of it.
    """
    key = id(code)
    found = _latest.get(key)
    if found is None:
        found = _known.get(key)
        if found is None:
            found = _known[key] = Code(code)
        _latest.keep(key, found)
    return found


def _fast_names(code: CodeType) -> tuple[str, ...]:
    """Names by index of the frame's fast locals; an argument that is a cell has one slot.

    An inlined comprehension may have a variable by the name of a free one: that is two slots, with two names.
    """
    arguments, free = set(code.co_varnames), set(code.co_freevars)
    own = code.co_varnames + tuple(n for n in code.co_cellvars if n not in arguments)
    return tuple(n + INLINED if n in free else n for n in own) + code.co_freevars


def _parameters(code: CodeType) -> Parameters:
    names, count, only = code.co_varnames, code.co_argcount, code.co_kwonlyargcount
    star = bool(code.co_flags & inspect.CO_VARARGS)
    double = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return Parameters(
        names[:count], names[count : count + only], code.co_posonlyargcount,
        names[count + only] if star else None, names[count + only + star] if double else None,
    )  # fmt: skip


Unit = tuple[int, int, str, int]  # a native instruction with EXTENDED_ARG and caches: offset, end, name, argument


def _units(raw: bytes, names: Sequence[str]) -> list[Unit]:
    extended_arg = EXTENDED_ARG if names is opname else names.index("EXTENDED_ARG")
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
    ends = [unit[0] for unit in found[1:]] + [len(raw)]
    return [(offset, end, name, arg) for (offset, name, arg), end in zip(found, ends)]


class _Plan(NamedTuple):
    """How a version of Python's instruction is decoded: of what kind its argument is, and what else there is to do.

    `step`: bytes for each of a jump's units; 0: it is none. `more`: is it anything but itself, its argument resolved?
    """

    kind: int
    step: int
    more: bool
    row: Row
    sequences: tuple[Several, ...]


KINDS = {arg: number for number, arg in enumerate(Arg)}
RAW = KINDS[Arg.RAW]
STEPS = {Arg.JUMP: 2, Arg.JUMP_BACK: -2}


@functools.cache
def _plans(minor: int) -> dict[str, _Plan]:
    sequences = beginning(minor)
    found = {}
    for name, row in ROWS.items():
        step = STEPS.get(row.arg, 0)
        more = bool(row.rewrite or row.becomes is not None or step or row.tests)
        found[name] = _Plan(KINDS[row.arg], step, more, row, sequences.get(name, ()))
    return found


_UNPLANNED = _Plan(RAW, 0, False, UNKNOWN, ())


class _Decoder:
    """One decoding: `out` grows by what each native instruction, or several at once, stands for."""

    def __init__(self, code: CodeType, fast: tuple[str, ...], python: Python, names: Sequence[str]) -> None:
        self.python = python
        self.size = len(code.co_code)
        self.units = _units(code.co_code, names)
        self.plans = _plans(python.minor)
        self.resolve = _resolvers(code, fast, python)
        self.out: list[Instruction] = []
        self.index_of: dict[int, int] = {}  # offset -> the first instruction that is there or later
        self.borders: dict[int, int] = {}  # offset -> the same, where that of a protected region is another one
        self.jumps: list[tuple[Instruction, int]] = []  # an instruction, and the offset that it jumps to

    def decoded(self) -> list[Instruction]:
        units, out, index_of, plans, resolve = self.units, self.out, self.index_of, self.plans, self.resolve
        k = 0
        while k < len(units):
            offset, end, name, arg = units[k]
            kind, step, more, row, sequences = plans.get(name, _UNPLANNED)
            taken = self._several(k, sequences) if sequences else 0
            if taken:
                k += taken
                continue
            k += 1
            index_of[offset] = len(out)
            if not more:
                value = arg if kind == RAW else resolve[kind](arg)[0]
                out.append(Instruction(name, arg, value, offset, end))
            elif step:
                made = self._add((row.becomes[0] if row.becomes else name, arg, arg), offset, end)
                self.jumps.append((made, end + step * arg))
            else:
                self._rewritten((offset, end, name, arg), row)
        index_of[self.size] = len(out)
        for instruction, offset in self.jumps:
            instruction.target = index_of[offset]
        return out

    def _rewritten(self, unit: Unit, row: Row) -> None:
        offset, end, name, arg = unit
        if row.rewrite is not None:
            for part in row.rewrite(self.python, self._native(unit)):
                self._add(part, offset, end)
            return
        value = self._native(unit).value
        names = (name,) if row.becomes is None else row.becomes
        values: tuple = value if row.arg is Arg.TWO_LOCALS else (value,) * len(names)
        for part_name, part_value in zip(names, values):
            self._add((part_name, arg, part_value), offset, end)

    def _several(self, k: int, sequences: tuple[Several, ...]) -> int:
        """Decode the sequence that begins at unit `k`; how many units it has, 0 if there is none."""
        for sequence in sequences:
            count = len(sequence.names)
            units = self.units[k : k + count]
            if tuple(unit[2] for unit in units) == sequence.names:
                self.index_of |= {unit[0]: len(self.out) for unit in units}
                for part in sequence.rewrite(*map(self._native, units)):
                    self._add(part, units[0][0], units[-1][1])
                return count
        return 0

    def _native(self, unit: Unit) -> Native:
        _, _, name, arg = unit
        kind = self.plans[name].kind
        return Native(name, arg, *((arg, 0) if kind == RAW else self.resolve[kind](arg)))

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


def _resolvers(code: CodeType, fast: tuple[str, ...], python: Python) -> list[Resolve]:
    """What arguments of the code's instructions stand for, by the number of their kind: in the order of `Arg`."""
    consts, names = code.co_consts, code.co_names
    bit = 1 if python.attribute_bit else 0
    shift, wants_bool = python.compare_shift, python.compare_bool
    raw: Resolve = lambda a: (a, 0)
    return [
        raw,
        lambda a: (consts[a], 0),
        lambda a: (COMMON_CONSTANTS[a], 0),
        lambda a: (names[a], 0),
        lambda a: (names[a >> 1], a & 1),
        lambda a: (names[a >> bit], a & bit),
        lambda a: (names[a >> 2], a & 3),
        lambda a: (fast[a], 0),
        lambda a: ((fast[a >> 4], fast[a & 15]), 0),
        raw,
        raw,
        lambda a: (COMPARISONS[a >> shift], a & wants_bool),
        lambda a: (BINARY_OPERATORS[a], 0),
        lambda a: (INTRINSICS_1.get(a), 0),
        lambda a: (INTRINSICS_2.get(a), 0),
    ]


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
    """The exception table, innermost regions first."""
    regions = []
    offsets = sorted(index_of)
    for start, length, target, depth_lasti in exception_table(code):
        begin, end = (_index(index_of, offsets, 2 * unit) for unit in (start, start + length))
        regions.append(Region(begin, end, index_of[2 * target], depth_lasti >> 1, bool(depth_lasti & 1)))
    return tuple(sorted(regions, key=lambda r: r.end - r.start))


def _index(index_of: dict[int, int], offsets: list[int], offset: int) -> int:
    """The first instruction at or after `offset`; a region may end inside inline caches."""
    found = index_of.get(offset)
    return found if found is not None else index_of[next(o for o in offsets if o >= offset)]


def exception_table(code: CodeType) -> Iterator[tuple[int, ...]]:
    """Its entries: start, length and target in code units; the depth, shifted by a bit that says whether to push lasti.

    Format: Objects/exception_handling_notes.txt in the CPython sources.
    """
    numbers, number = [], 0
    for byte in code.co_exceptiontable:
        number = number << 6 | byte & 63
        if not byte & 64:
            numbers.append(number)
            number = 0
    return zip(*[iter(numbers)] * 4)
