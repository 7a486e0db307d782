"""A place in the middle of running functions, as data and as a Python function.

A `Continuation` is a chain of suspended frames, outermost first. The innermost goes on at its instruction; what it
returns is pushed on the stack of the frame outside it, which goes on after its call, and so on. Its parameters are
the live variables, cells and stack values of all frames. Capture traces it by making the frames anew
(`entry.trace_continuation`); eager runs functions assembled here.

A resume function is the original code object with a prologue in front: jumps are relative, so the original
instructions stay as they are, byte for byte. Its fast locals have the original's indexes: local variables and their
cells are all positional arguments, and the stack values are passed in further cells behind the free variables.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

from dovetail.bytecode import decode, entrance
from dovetail.bytecode.decode import exception_table
from dovetail.capture.breaks.call_sites import placed, under
from dovetail.capture.breaks.messages import as_called, shown
from dovetail.capture.polyfills.protocols import HIDDEN
from dovetail.errors import Location
from dovetail.ir.captured import EMPTY, HANDLED, VALUE, Continuation, Point
from dovetail.ir.records import dataclass
from dovetail.ir.stores import remembered
from dovetail.ir.walks import native

VARARGS = 4 | 8
GENERATORS = 0x20 | 0x80 | 0x200
NO_LOCATION = 15


@remembered(5000)
def assembled(point: Point) -> CodeType:
    """The code object that goes on at `point`."""
    code = point.code
    arguments = code.co_varnames + tuple(n for n in code.co_cellvars if n not in code.co_varnames)
    names = code.co_freevars + tuple(f"stack {k}" for k in range(point.given))
    prologue = _prologue(code, point, len(arguments) + len(code.co_freevars), len(names))
    return code.replace(
        co_code=prologue + code.co_code,
        co_argcount=len(arguments),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_nlocals=len(arguments),
        co_varnames=arguments,
        co_freevars=names,
        co_consts=(*code.co_consts, None),
        co_flags=code.co_flags & ~VARARGS,
        co_stacksize=code.co_stacksize + len(point.stack) + 2,
        co_linetable=_locations(len(prologue) // 2) + code.co_linetable,
        co_exceptiontable=_guarded(code, point, len(prologue) // 2) + _shifted(code, len(prologue) // 2),
    )


def _prologue(code: CodeType, point: Point, first_stack: int, free: int) -> bytes:
    out = bytearray()
    if free:
        _emit(out, "COPY_FREE_VARS", free)
    if code.co_flags & GENERATORS:
        _emit(out, "RETURN_GENERATOR", 0)
        _emit(out, "POP_TOP", 0)
    _emit(out, "RESUME", 0)
    bound = {*point.locals, *point.cells}
    for index, name in enumerate(decode(code).fast_names[: len(code.co_varnames)]):
        if name not in bound:
            _emit(out, "DELETE_FAST", index)
    used = first_stack
    for kind in point.stack:
        if kind == EMPTY:
            _emit(out, "PUSH_NULL", 0)
            continue
        _emit(out, "LOAD_DEREF", used)
        used += 1
        if kind == HANDLED:
            _emit(out, "PUSH_EXC_INFO", 0)
            _emit(out, "POP_TOP", 0)
    first, target = entrance(decode(code), point.index)
    for name, argument in (*_yielding(code, point), *first):
        _emit(out, name, argument)
    _emit(out, "JUMP_FORWARD", target // 2)
    return bytes(out)


def _yielding(code: CodeType, point: Point) -> list[tuple[str, int]]:
    """For a generator that waits at a yield: wait first, as it does there."""
    at = decode(code).instructions[point.at]
    if at.name != "YIELD_VALUE":
        return []
    after = decode(code).instructions[point.at + 1]
    return [("LOAD_CONST", len(code.co_consts)), ("YIELD_VALUE", at.arg), (after.name, after.arg)]


def _caches() -> dict[str, int]:
    table: Any = dis._inline_cache_entries  # type: ignore[attr-defined]
    return table if isinstance(table, dict) else {n: table[k] for n, k in dis.opmap.items() if k < len(table)}


CACHES = _caches()  # units behind an instruction that Python keeps what it has learned in: nothing, at first


def _emit(out: bytearray, name: str, arg: int) -> None:
    for shift in (24, 16, 8):
        if arg >> shift:
            out += bytes((dis.EXTENDED_ARG, arg >> shift & 255))
    out += bytes((dis.opmap[name], arg & 255)) + bytes(2 * CACHES.get(name, 0))


def _locations(units: int) -> bytes:
    """Location table entries without a place, of at most eight code units each."""
    out = bytearray()
    while units > 0:
        count = min(units, 8)
        out.append(0x80 | NO_LOCATION << 3 | count - 1)
        units -= count
    return bytes(out)


def _shifted(code: CodeType, units: int) -> bytes:
    """The exception table with every place `units` code units later."""
    out = bytearray()
    for start, length, target, depth in exception_table(code):
        for k, number in enumerate((start + units, length, target + units, depth)):
            out += _varint(number, first=k == 0)
    return bytes(out)


def _guarded(code: CodeType, point: Point, units: int) -> bytes:
    """What is thrown at the prologue's yield goes where it would have gone at the user's."""
    decoded = decode(code)
    region = decoded.region(point.at)
    if region is None or decoded.instructions[point.at].name != "YIELD_VALUE":
        return b""
    target = decoded.instructions[region.target].offset // 2 + units
    entry = (0, units, target, region.depth << 1 | region.lasti)
    return b"".join(_varint(n, first=k == 0) for k, n in enumerate(entry))


def _varint(value: int, first: bool) -> bytes:
    digits = [value & 63]
    while value := value >> 6:
        digits.append(value & 63 | 64)
    digits.reverse()
    if first:
        digits[0] |= 128
    return bytes(digits)


@dataclass(frozen=True)
class Waiting:
    """One frame of an eager continuation."""

    point: Point
    scope: dict[str, Any]
    count: int

    def run(self, values: tuple, returned: tuple) -> Any:
        """Run the rest of the frame in plain Python."""
        point, code = self.point, assembled(self.point)
        names = dict(zip((*point.locals, *point.cells), values))
        held = values[len(point.locals) + len(point.cells) :]
        stack = (*map(native, held), *returned)
        count, own = len(point.code.co_varnames), decode(point.code).fast_names[: len(code.co_varnames)]
        arguments = [names.get(n) for n in own[:count]]
        arguments += [names[n] if n in names else CellType() for n in own[count:]]
        real_cells = code.co_freevars[: len(code.co_freevars) - len(stack)]
        closure = (*(names[n] if n in names else CellType() for n in real_cells), *map(CellType, stack))
        function = FunctionType(code, self.scope, code.co_name, None, closure or None)
        return function(*arguments)

    def handle(self, values: tuple, error: BaseException) -> Any:
        """Deliver an exception that the awaited call raised."""
        point, code = self.point, decode(self.point.code)
        region = code.region(point.at)
        if region is None:
            raise placed(error, self.places())
        kept = replace(point, stack=point.stack[: region.depth])
        fixed = len(point.locals) + len(point.cells)
        lasti = (code.instructions[point.at].offset // 2,) if region.lasti else ()
        handler = replace(point, index=region.target, stack=(*kept.stack, *(VALUE for _ in lasti), VALUE))
        return Waiting(handler, self.scope, 0).run(values[: fixed + kept.given], (*lasti, error))

    def handled(self, values: tuple) -> BaseException | None:
        """The exception that the frame is handling."""
        kinds = [kind for kind in self.point.stack if kind != EMPTY]
        first = len(self.point.locals) + len(self.point.cells)
        return next((values[first + k] for k in range(len(kinds) - 1, -1, -1) if kinds[k] == HANDLED), None)

    def places(self) -> tuple[Location, ...]:
        """Its line in a traceback."""
        code = decode(self.point.code)
        if id(code.code) in HIDDEN:
            return ()
        place = Location(code.code.co_filename, code.position(self.point.at)[0] or 0, code.code.co_name)
        return (place,)


def finish(frames: list[tuple[Waiting, tuple]], outside: BaseException | None = None) -> Any:
    """Run the frames from the innermost outwards, handing on what each returns or raises.

    `outside` is an exception that is being handled around them.
    """
    returned: tuple = ()
    error: BaseException | None = None
    while frames:
        frame, given = frames.pop()
        handled = next((h for f, v in reversed(frames) if (h := f.handled(v)) is not None), outside)
        taken = returned if frame.point.result else ()
        enter = partial(frame.run, given, taken) if error is None else partial(frame.handle, given, error)
        try:
            returned, error = (under(handled, enter),), None
        except BaseException as raised:
            error = raised
    if error is not None:
        raise error
    return returned[0]


@remembered(5000)
def _counts(continuation: Continuation) -> tuple[Waiting, ...]:
    return tuple(
        Waiting(point, scope, len(point.locals) + len(point.cells) + point.given - point.result)
        for point, scope in zip(continuation.points, continuation.scopes)
    )


def waiting_frames(continuation: Continuation, values: tuple) -> list[tuple[Waiting, tuple]]:
    """Each frame, outermost first, with its share of the continuation's arguments."""
    position, found = 0, []
    for frame in _counts(continuation):
        found.append((frame, values[position : position + frame.count]))
        position += frame.count
    return found


def native_generator(point: Point, scope: dict[str, Any], values: tuple) -> Any:
    """The generator of a function that has been called but has not started."""
    code = point.code
    plain = code.replace(
        co_argcount=len(point.locals), co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~VARARGS
    )
    cells = values[len(point.locals) :]
    return FunctionType(plain, scope, code.co_name, None, cells or None)(*values[: len(point.locals)])


def eager(continuation: Continuation) -> Callable[..., Any]:
    """A function of the continuation's parameters that runs the rest in plain Python."""

    def resume(*values: Any) -> Any:
        return finish(waiting_frames(continuation, values))

    point = shown(continuation)
    code = point.code
    resume.__name__ = code.co_name if code.co_name.isidentifier() else "resumed"
    resume.__qualname__ = f"{code.co_qualname} (resumed)"
    resume._dovetail_continuation = continuation  # type: ignore[attr-defined]
    line = decode(code).position(point.at)[0] or code.co_firstlineno
    resume._dovetail_place = f"{code.co_filename}:{line}"  # type: ignore[attr-defined]
    resume._dovetail_words = partial(as_called, continuation)  # type: ignore[attr-defined]
    return resume
