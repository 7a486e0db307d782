"""One frame of the symbolic interpreter.

`run` executes instructions through the handler table until the code returns or yields. An
exception raised by traced code (`Raised`) unwinds to the protected region around the instruction,
as the interpreter does it; see Objects/exception_handling_notes.txt in the CPython sources.
"""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from dovetail.bytecode import Code
from dovetail.bytecode.opcodes import DIALECT
from dovetail.capture.handlers.table import HANDLERS, RETURN, YIELD
from dovetail.capture.scope import Scope
from dovetail.capture.values.base import MISSING, NONE, Const, NotNative, Raised, Value, serial
from dovetail.capture.values.iterators import IteratorValue
from dovetail.capture.values.objects import ExceptionValue, Handling
from dovetail.errors import Location, Unsupported


class Frame:
    """`locals` maps the names of fast locals to values; cells are among them."""

    __slots__ = (
        "s", "code", "scope", "function", "locals", "stack_", "ip", "at", "names", "names_table", "tick", "direct",
        "owner", "_outer",
    )  # fmt: skip

    def __init__(self, s: Any, code: Code, scope: Scope, function: Any) -> None:
        self.s, self.code, self.scope, self.function = s, code, scope, function
        self.locals: dict[str, Any] = {}
        self.stack_: list[Any] = []
        self.ip = 0
        self.at = 0
        self.names: tuple[str, ...] = ()  # keyword names of the next call
        self.names_table: Any = None  # the namespace of a class body
        self.tick = 0  # the number of the running instruction
        self.direct = False  # is what it returns, as it is, the result of its caller's call instruction?
        self.owner: Any = None  # the generator whose body it runs
        self._outer: tuple[Location, ...] | None = None

    # ------------------------------------------------------------ running

    def run_call(self) -> Value:
        outcome, value = self.enter()
        assert outcome is RETURN
        return value

    def enter(self) -> tuple[Any, Value]:
        """Run with this frame on the session's frame stack."""
        frames = self.s.frames
        self._outer = None
        frames.append(self)
        try:
            return self.run()
        except Unsupported as error:
            if not error.places:
                error.places, error.strict = tuple((f.tick, f.direct) for f in frames), self.s.strict
            raise
        finally:
            frames.pop()

    def run(self) -> tuple[Any, Value]:
        instructions, s = self.code.instructions, self.s
        if s.watch is not None:
            instructions = s.watch.instructions(self)
        while True:
            self.at = self.ip
            self.tick = s.tick = s.tick + 1
            if self.tick == s.stop:
                s.end()
            instruction = instructions[self.ip]
            self.ip += 1
            handler = instruction.handler
            if handler is None:
                handler = instruction.handler = HANDLERS.get(instruction.name) or _unknown
            try:
                outcome = handler(self, instruction)
            except Raised as raised:
                self.unwind(raised)
                continue
            except NotNative as missing:
                s.unsupported(
                    "native-value", f"the code needs {_describe(missing)} before the graph has run",
                    "Pass it as a constant.",
                )
            except UNEXPECTED as error:
                if not s.breaks:
                    raise
                s.failure(error)
            if outcome is not None:
                return outcome

    def unwind(self, raised: Raised) -> None:
        """Go to the handler of the innermost protected region, or leave the frame."""
        region = self.code.region(self.at)
        if region is None:
            raised.stack = raised.stack or self.s.stack()
            raise raised
        if isinstance(raised.value, ExceptionValue) and not raised.value.places:
            raised.value.places = (raised.stack or self.s.stack())[len(self.stack()) - 1 :]
        del self.stack_[region.depth :]
        if region.lasti:
            self.stack_.append(Const(self.at))
        self.stack_.append(raised.value)
        self.ip = region.target

    # ------------------------------------------------------------ the stack

    def push(self, value: Any) -> None:
        self.stack_.append(value)

    def pop(self) -> Any:
        return self.stack_.pop()

    def popn(self, count: int) -> list[Any]:
        if not count:
            return []
        values = self.stack_[-count:]
        del self.stack_[-count:]
        return values

    # ------------------------------------------------------------ places

    def line(self) -> int:
        return self.code.position(self.at)[0] or self.code.code.co_firstlineno

    def location(self) -> Location:
        line, _, column, end = self.code.position(self.at)
        code = self.code.code
        known = -1 if column is None or end is None else column
        return Location(code.co_filename, line or code.co_firstlineno, code.co_name, known, -1 if end is None else end)

    def stack(self) -> tuple[Location, ...]:
        """Locations of every frame up to this one, outermost first."""
        if self._outer is None:
            frames = self.s.frames
            index = next((k for k in range(len(frames) - 1, -1, -1) if frames[k] is self), 0)
            self._outer = frames[index - 1].stack() if index else ()
        return (*self._outer, self.location())


# What a mistake in a handler raises; where breaks are allowed, plain Python takes the instruction over.
UNEXPECTED = (AttributeError, TypeError, KeyError, IndexError, ValueError, AssertionError, RecursionError)


def _describe(missing: NotNative) -> str:
    value = missing.args[0] if missing.args else None
    return f"the value of {value.describe()}" if isinstance(value, Value) else "a value of the running program"


def _unknown(frame: Frame, instruction: Any) -> None:
    frame.s.unsupported("opcode", f"the instruction {instruction.name} cannot be captured yet")


def run_frames(s: Any, suspended: list[Frame]) -> tuple[Any, Value]:
    """Run frames that wait for one another from the innermost outwards: each gets the result or exception of the next.

    Gives how the outermost one was left, and with what.
    """
    frames, base = s.frames, len(s.frames)
    for frame in suspended:
        frame._outer = None
    frames += suspended
    raised: Raised | None = None
    try:
        while True:
            frame = frames[-1]
            try:
                if raised is not None:
                    error, raised = raised, None
                    frame.unwind(error)
                outcome, value = frame.run()
            except Raised as error:
                raised = error
                if len(frames) == base + 1:
                    raise
                frames.pop()
                continue
            if len(frames) == base + 1:
                return outcome, value
            frames.pop()
            frames[-1].push(value)
    except Unsupported as error:
        if not error.places:
            error.places, error.strict = tuple((f.tick, f.direct) for f in frames), s.strict
        raise
    finally:
        del frames[base:]


KINDS = {0x80: CoroutineType, 0x200: AsyncGeneratorType}  # by the code's flags


class GeneratorValue(IteratorValue):
    """A generator whose frame runs one step at a time: made inside, or left behind by a graph break.

    `state` is "new", "waiting" (at a yield), "inside" (a step has begun, `inner` frames in it), "running" or "done".
    """

    __slots__ = ("born", "frame", "inner", "real", "result", "state")

    def __init__(self, frame: Frame | None, state: str = "new", source: Any = None, real: Any = MISSING) -> None:
        super().__init__(source)
        self.real, self.state, self.born = real, state, serial()
        self.inner: list[Frame] = []
        self.result: Value = NONE
        self.frame: Any = frame
        if frame is not None:
            frame.owner = self

    def adopt(self, frames: list[Frame]) -> None:
        """The frames that it was suspended with, its own first."""
        self.frame, *self.inner = frames
        self.frame.owner = self

    @property
    def cls(self) -> type:  # type: ignore[override]
        flags = self.frame.code.code.co_flags if self.frame is not None else 0
        return next((kind for bit, kind in KINDS.items() if flags & bit), GeneratorType)

    def step(self, s: Any) -> Value | None:
        return self.send(s, NONE)

    def send(self, s: Any, value: Value) -> Value | None:
        """Resume; the yielded value, or None at the end, when `result` is what it returned."""
        if self.state == "done":
            self.result = NONE
            return None
        if self.state == "running":
            s.throw(ValueError, "generator already executing")
        if self.state != "inside":
            self.frame.push(value)
        return self._resume(s)

    def throw(self, s: Any, error: Value) -> Value | None:
        """Raise at the point where the generator waits."""
        if self.state != "waiting":
            self.state = "done"
            s.effects.touch(self)
            raise Raised(error)
        raised = Raised(error)
        self.state = "running"
        try:
            inner = self._awaits()
            if inner is not None:
                return self._delegate(s, inner, error)
            self.frame.unwind(raised)
        except Raised as left:
            self.state = "done"
            s.effects.touch(self)
            raise self._outside(left) from None
        return self._resume(s)

    def _awaits(self) -> Any:
        """The generator that this one waits for in `yield from` or `await`."""
        frame = self.frame
        waits = frame.code.instructions[frame.ip].arg & 3 >= 2
        return frame.stack_[-1] if waits and isinstance(frame.stack_[-1], GeneratorValue) else None

    def _delegate(self, s: Any, inner: GeneratorValue, error: Value) -> Value | None:
        """The exception goes to the generator waited for; what that one does then is what this one sees."""
        try:
            found = inner.throw(s, error)
        except Raised as raised:
            self.frame.unwind(raised)
            return self._resume(s)
        if found is not None:
            self.state = "waiting"
            s.effects.touch(self)
            return found
        frame = self.frame
        start = next(k for k in range(frame.at, -1, -1) if frame.code.instructions[k].name == "SEND")
        frame.ip = frame.code.instructions[start].target
        if DIALECT.send_keeps_receiver:
            frame.push(inner.result)
        else:
            frame.stack_[-1] = inner.result
        return self._resume(s)

    def _outside(self, raised: Raised) -> Raised:
        """A StopIteration may not leave a generator by accident."""
        error = raised.value
        if error.cls is not StopIteration:
            return raised
        made = ExceptionValue(RuntimeError, [Const("generator raised StopIteration")])
        made.cause = made.context = error
        made.suppress = True
        return Raised(made)

    def _resume(self, s: Any) -> Value | None:
        self.state = "running"
        s.effects.touch(self)
        self.frame.direct, s.expected = s.expected is self, None
        frames, self.inner = [self.frame, *self.inner], []
        outside = s.current_exception
        own = next((v.error for v in reversed(self.frame.stack_) if isinstance(v, Handling)), None)
        s.current_exception = own or outside
        try:
            outcome, value = run_frames(s, frames)
        except Raised as raised:
            self.state = "done"
            raise self._outside(raised) from None
        except BaseException:
            self.state = "done"
            raise
        finally:
            s.current_exception = outside
        if outcome is YIELD:
            self.state = "waiting"
            return value
        self.state, self.result = "done", value
        return None
