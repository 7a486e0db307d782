"""One frame of the symbolic interpreter.

`run` executes instructions through the handler table until the code returns or yields. An
exception raised by traced code (`Raised`) unwinds to the protected region around the instruction,
as the interpreter does it; see Objects/exception_handling_notes.txt in the CPython sources.
"""

from __future__ import annotations

import weakref
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from dovetail.bytecode import ROWS, Code
from dovetail.capture.interpreter import generator_lifetime
from dovetail.capture.outside import growing_state
from dovetail.capture.polyfills.protocols import HIDDEN
from dovetail.capture.state.module_globals import ModuleGlobals
from dovetail.capture.tables.known_callables import ITERATORS
from dovetail.capture.tables.opcode_handlers import HANDLERS, RETURN, YIELD
from dovetail.capture.values.base import MISSING, NONE, Const, NotNative, Raised, Session, Value, serial
from dovetail.capture.values.iterators import IteratorValue
from dovetail.capture.values.objects import ExceptionValue, Handling
from dovetail.errors import Location, Unsupported


class Frame:
    """`locals` maps the names of fast locals to values; cells are among them."""

    __slots__ = (
        "s", "code", "scope", "function", "locals", "stack_", "ip", "at", "names_table", "tick", "direct", "awaits",
        "_owner", "_outer",
    )  # fmt: skip

    def __init__(self, s: Session, code: Code, scope: ModuleGlobals, function: Any) -> None:
        self.s, self.code, self.scope, self.function = s, code, scope, function
        self.locals: dict[str, Any] = {}
        self.stack_: list[Any] = []
        self.ip = 0
        self.at = 0
        self.names_table: Any = None  # the namespace of a class body
        self.tick = 0  # the number of the running instruction
        self.awaits: Any = None  # whose result is that of the running instruction: see `tail_calls`
        self.direct = False  # is what it returns, as it is, the result of its caller's call instruction?
        self._owner: Any = None
        self._outer: tuple[Location, ...] | None = None

    @property
    def owner(self) -> Any:
        """The generator whose body it runs: it holds the frame, not the other way round."""
        return None if self._owner is None else self._owner()

    @owner.setter
    def owner(self, generator: Any) -> None:
        self._owner = weakref.ref(generator)

    # ------------------------------------------------------------ running

    def run_call(self) -> Value:
        """Run a function's frame to its end; gives what it returns."""
        outcome, value = self.enter()
        assert outcome is RETURN
        return value

    def enter(self) -> tuple[Any, Value]:
        """Run with this frame on the session's frame stack."""
        frames = self.s.frames
        self._outer = None
        if frames:
            frames[-1].awaits = None
        frames.append(self)
        try:
            result = self.run()
            if self.s.growing.stored:
                growing_state.check(self.s)
            return result
        except Unsupported as error:
            if not error.break_candidates:
                error.break_candidates, error.strict = self.s.break_candidates(), self.s.ends.strict
            raise
        finally:
            frames.pop()

    def run(self) -> tuple[Any, Value]:
        """Run instructions until the frame returns or yields."""
        instructions, s = self.code.instructions, self.s
        ends = s.ends
        waiting = s.waiting
        stop = ends.stop
        if s.watch is not None:
            instructions = s.watch.instructions(self)
        while True:
            self.at = self.ip
            self.awaits = None
            if waiting:
                generator_lifetime.close(s)
            self.tick = ends.tick = ends.tick + 1
            if self.tick == stop:
                ends.end(s)
            instruction = instructions[self.ip]
            self.ip += 1
            handler = instruction.handler
            if handler is None:
                handler = instruction.handler = HANDLERS.get(instruction.name) or _unknown
            try:
                outcome = handler(self, instruction)
            except Raised as raised:
                if not self.unwind(raised):
                    raise
                continue
            except NotNative as missing:
                s.unsupported(
                    "native-value", f"the code needs {_describe(missing)} before the graph has run",
                    "Pass it as a constant.",
                )
            except RecursionError:
                s.unsupported(
                    "recursion", "calls nest too deeply for what Python's own limit leaves",
                    "Compile the inner function instead.",
                )
            except UNEXPECTED as error:
                if not s.ends.breaks or s.options.strict:
                    raise
                s.failure(error)
            if outcome is not None:
                if waiting and outcome[0] is RETURN:
                    generator_lifetime.leave(s, self)
                return outcome

    def unwind(self, raised: Raised) -> bool:
        """Go to the handler of the innermost protected region; False if there is none, so that the frame is left."""
        region = self.code.region(self.at)
        if region is None:
            raised.stack = raised.stack or self.s.stack()
            if self.s.waiting and isinstance(raised.value, ExceptionValue):
                raised.value.left.append(self.locals)
            return False
        if isinstance(raised.value, ExceptionValue):
            way = (raised.stack or self.s.stack())[len(self.stack()) - 1 :]
            raised.value.break_candidates = (*(way[:-1] if raised.again else way), *raised.value.break_candidates)
        del self.stack_[region.depth :]
        if region.lasti:
            self.stack_.append(Const(self.at))
        self.stack_.append(raised.value)
        self.ip = region.target
        return True

    # ------------------------------------------------------------ the stack

    def takes_result(self) -> bool:
        """Does the instruction that makes a call push its result?"""
        return not ROWS[self.code.instructions[self.at].name].drops

    def push(self, value: Any) -> None:
        """Put the value on top of the stack."""
        self.stack_.append(value)

    def pop(self) -> Any:
        """Take the topmost value."""
        return self.stack_.pop()

    def popn(self, count: int) -> list[Any]:
        """Take the topmost values; the topmost is the last."""
        if not count:
            return []
        values = self.stack_[-count:]
        del self.stack_[-count:]
        return values

    # ------------------------------------------------------------ where it is

    def line(self) -> int:
        """The line of the instruction."""
        return self.code.position(self.at)[0] or self.code.code.co_firstlineno

    def location(self) -> Location:
        """The place of the instruction, for messages."""
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
        return self._outer if id(self.code.code) in HIDDEN else (*self._outer, self.location())


# What a mistake in a handler raises; where breaks are allowed, plain Python takes the instruction over.
UNEXPECTED = (AttributeError, TypeError, KeyError, IndexError, ValueError, AssertionError)


def _describe(missing: NotNative) -> str:
    value = missing.args[0] if missing.args else None
    return f"the value of {value.describe()}" if isinstance(value, Value) else "a value of the running program"


def _unknown(frame: Frame, instruction: Any) -> None:
    frame.s.unsupported("opcode", f"the instruction {instruction.name} cannot be captured yet")


def run_frames(s: Session, suspended: list[Frame]) -> tuple[Any, Value]:
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
                    if not frame.unwind(error):
                        raise error
                    del error  # whose traceback holds this frame
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
            if frames[-1].takes_result():
                frames[-1].stack_.append(value)
            del value
    except Unsupported as error:
        if not error.break_candidates:
            error.break_candidates, error.strict = s.break_candidates(), s.ends.strict
        raise
    finally:
        del frames[base:]


KINDS = {0x80: CoroutineType, 0x200: AsyncGeneratorType}  # by the code's flags


class GeneratorValue(IteratorValue):
    """A generator whose frame runs one step at a time: made inside, or left behind by a graph break.

    `state` is "new", "waiting" (at a yield), "inside" (a step has begun, `inner` frames in it), "running" or "done".
    """

    __slots__ = ("__weakref__", "born", "frame", "inner", "real", "result", "state")

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
        """What the program sees: a stand-in's is that of the iterator that it stands for."""
        found = None if self.frame is None else ITERATORS.get(self.frame.code.code)
        return self.kind if found is None else found

    @property
    def kind(self) -> type:
        """The type of it: a generator or a coroutine."""
        if self.frame is None:
            return type(self.real)
        flags = self.frame.code.code.co_flags
        return next((kind for bit, kind in KINDS.items() if flags & bit), GeneratorType)

    def step(self, s: Session) -> Value | None:
        """The next item; None at the end."""
        return self.send(s, NONE)

    def send(self, s: Session, value: Value) -> Value | None:
        """Resume; the yielded value, or None at the end, when `result` is what it returned."""
        if self.state == "done":
            self.result = NONE
            return None
        if self.state == "running":
            s.throw(ValueError, "generator already executing")
        if self.state != "inside":
            self.frame.push(value)
        return self._resume(s)

    def throw(self, s: Session, error: Value) -> Value | None:
        """Raise at the point where the generator waits, or where what it waits for does."""
        if self.state != "waiting":
            self.state = "done"
            self._changed(s)
            raise Raised(error)
        self.state = "running"
        try:
            got, finished = delegate(s, self.frame, error)
        except Raised as raised:
            return self._raise_here(s, raised)
        except BaseException:
            self.state = "done"
            raise
        if got is not None:
            self.state = "waiting"
            return got
        return self._resume(s) if finished else self._raise_here(s, Raised(error))

    def _raise_here(self, s: Session, raised: Raised) -> Value | None:
        self.state = "running"
        if not self.frame.unwind(raised):
            self.state = "done"
            self._changed(s)
            raise self._outside(raised) from None
        return self._resume(s)

    def close(self, s: Session) -> Value | None:
        """Raise GeneratorExit inside; gives what a generator yields that ignores it."""
        try:
            return self.throw(s, ExceptionValue(GeneratorExit, []))
        except Raised as raised:
            if not issubclass(raised.value.cls, (GeneratorExit, StopIteration)):
                raise
            return None

    def _changed(self, s: Session) -> None:
        """Where one from outside stands has to be replayed."""
        (s.effects.tell if self.source is None else s.effects.touch)(self)

    def _outside(self, raised: Raised) -> Raised:
        """A StopIteration may not leave a generator by accident."""
        error = raised.value
        if error.cls is not StopIteration:
            return raised
        made = ExceptionValue(RuntimeError, [Const("generator raised StopIteration")])
        made.cause = made.context = error
        made.suppress = True
        return Raised(made)

    def _resume(self, s: Session) -> Value | None:
        self.state = "running"
        generator_lifetime.running(s, self)
        self._changed(s)
        self.frame.direct = s.awaited() is self
        frames, self.inner = [self.frame, *self.inner], []
        outside = s.current_exception
        slots = [value for frame in frames for value in frame.stack_]
        own = next((v.error for v in reversed(slots) if isinstance(v, Handling)), None)
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
            generator_lifetime.waits(s, self)
            return value
        self.state, self.result = "done", value
        return None


def delegate(s: Session, frame: Frame, error: Value) -> tuple[Value | None, bool]:
    """Raise in what the frame waits for in `yield from` or `await`.

    Gives what that yields, and whether it has ended and the frame goes on behind. Neither: raise it in the frame.
    """
    before = frame.code.instructions[frame.at - 1]
    if before.name != "SEND":
        return None, False
    receiver = frame.stack_[-1]
    if issubclass(error.cls, GeneratorExit):
        if isinstance(receiver, IteratorValue):
            if isinstance(receiver, GeneratorValue) and receiver.state == "waiting" and receiver.close(s) is not None:
                s.throw(RuntimeError, "generator ignored GeneratorExit")
        elif (closing := s.try_attr(receiver, "close")) is not None:
            s.call(closing)
        return None, False
    try:
        if hasattr(receiver, "throw"):
            got, result = receiver.throw(s, error), receiver.result
        elif not isinstance(receiver, IteratorValue) and (throwing := s.try_attr(receiver, "throw")) is not None:
            got, result = s.call(throwing, error), NONE
        else:
            return None, False
    except Raised as raised:
        got, result = None, stopped_with(raised)
    if got is not None:
        return got, False
    frame.stack_[-1] = result
    frame.ip = before.target
    return None, True


def stopped_with(raised: Raised) -> Value:
    """What an iterator returned, if StopIteration is what it raised; any other exception goes on."""
    if not issubclass(raised.value.cls, StopIteration):
        raise raised
    args = getattr(raised.value, "args", ())
    return args[0] if args else NONE
