"""Jumps, loops, generators, exceptions, `with` and `match`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.capture.handlers.stack import decided
from dovetail.capture.interpreter.exception_groups import match_group, to_raise
from dovetail.capture.interpreter.frame import stopped_with
from dovetail.capture.interpreter.tail_calls import ONLY_LISTED, of_protocol, of_special, protocol, streamed
from dovetail.capture.polyfills.protocols import HIDDEN, Ahead, ahead
from dovetail.capture.tables.opcode_handlers import YIELD, op
from dovetail.capture.values.base import NONE, Const, Raised, Session, Value, boolean, is_singleton
from dovetail.capture.values.callables import ClassValue
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.iterators import IteratorValue
from dovetail.capture.values.objects import ExceptionValue, Handling, ObjectValue

if TYPE_CHECKING:
    from dovetail.bytecode.decode import Instruction
    from dovetail.capture.interpreter.frame import Frame


@op("JUMP")
def jump(f: Frame, i: Instruction) -> None:
    f.ip = i.target


@op("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def pop_jump_if(f: Frame, i: Instruction) -> None:
    if decided(f, f.stack_.pop()) == i.name.endswith("TRUE"):
        f.ip = i.target


@op("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_none(f: Frame, i: Instruction) -> None:
    if is_singleton(f.stack_.pop(), None) != ("NOT" in i.name):
        f.ip = i.target


@op("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(f: Frame, i: Instruction) -> None:
    if f.s.truth(f.stack_[-1]) == ("TRUE" in i.name):
        f.ip = i.target
    else:
        f.stack_.pop()


@op("GET_ITER", "GET_YIELD_FROM_ITER")
def get_iter(f: Frame, i: Instruction) -> None:
    if sys.getrefcount(f.stack_[-1]) == ONLY_LISTED:
        f.stack_[-1] = streamed(f.s, f.stack_[-1])
    value = f.stack_.pop()
    f.awaits = of_special(f.s, value, "__iter__")
    f.stack_.append(f.s.iterate(value))


@op("FOR_ITER")
def for_iter(f: Frame, i: Instruction) -> None:
    iterator = f.stack_[-1]
    if type(iterator) is ObjectValue:
        value = _advanced(f, iterator)
    else:
        f.awaits = iterator
        value = f.s.step(iterator)
    iterator = None
    if value is None:
        f.stack_.pop()
        f.ip = i.target
    else:
        f.stack_.append(value)


def _advanced(f: Frame, iterator: Any) -> Any:
    """The next item of a user's iterator; after a graph break in there the instruction is made again."""
    if iterator.cls is Ahead:
        value, f.stack_[-1] = f.s.get_attr(iterator, "value"), f.s.get_attr(iterator, "rest")
        return value
    if of_special(f.s, iterator, "__next__") is None:
        return f.s.step(iterator)
    method: Any = f.s.find_special(iterator, "__next__")
    after, f.ip = f.ip, f.at
    f.stack_.pop()
    try:
        found: Any = protocol(f.s, ahead, [method, iterator], True)
    finally:
        f.stack_.append(iterator)
        f.ip = after
    return found.attrs["value"] if found.cls is Ahead else None


# ---------------------------------------------------------------- generators


@op("RETURN_GENERATOR")
def return_generator(f: Frame, i: Instruction) -> None:
    """The value sent to start the generator is on the stack already."""


@op("YIELD_VALUE")
def yield_value(f: Frame, i: Instruction) -> Any:
    return YIELD, f.stack_.pop()


@op("SEND")
def send(f: Frame, i: Instruction) -> None:
    """Stack: receiver, value; a finished receiver gives way to its result."""
    value = f.stack_.pop()
    receiver = f.awaits = f.stack_[-1]
    if hasattr(receiver, "send"):
        got = receiver.send(f.s, value)
        result = receiver.result
    else:
        got, result = _sent(f.s, receiver, value)
    if got is not None:
        f.stack_.append(got)
        return
    f.stack_[-1] = result
    f.ip = i.target


def _sent(s: Session, receiver: Any, value: Any) -> tuple[Any, Any]:
    """What an iterator that is no generator yields, or None and what it returns at its end."""
    if isinstance(receiver, IteratorValue):
        return receiver.step(s), NONE
    try:
        if is_singleton(value, None):
            return s.step_or_raise(receiver), NONE
        return s.call_method(receiver, "send", value), NONE
    except Raised as raised:
        return None, stopped_with(raised)


@op("STOPITERATION_ERROR")
def stopiteration_error(f: Frame, i: Instruction) -> None:
    if f.stack_[-1].cls is StopIteration:
        f.stack_[-1] = ExceptionValue(RuntimeError, [Const("generator raised StopIteration")])


# ---------------------------------------------------------------- exceptions


@op("PUSH_EXC_INFO")
def push_exc_info(f: Frame, i: Instruction) -> None:
    error = f.stack_.pop()
    f.stack_.append(Handling(error, f.s.current_exception))
    f.stack_.append(error)
    f.s.current_exception = error


@op("POP_EXCEPT")
def pop_except(f: Frame, i: Instruction) -> None:
    f.s.current_exception = f.stack_.pop().previous


@op("CHECK_EXC_MATCH")
def check_exc_match(f: Frame, i: Instruction) -> None:
    wanted = f.stack_.pop()
    f.stack_.append(boolean(issubclass(f.stack_[-1].cls, wanted.native())))


@op("CHECK_EG_MATCH")
def check_eg_match(f: Frame, i: Instruction) -> None:
    wanted = f.stack_.pop().native()
    match, rest = match_group(f.s, f.stack_[-1], wanted)
    f.stack_[-1] = rest or NONE
    f.stack_.append(match or NONE)
    if match is not None:
        f.s.current_exception = match


@op("PREP_RERAISE_STAR")
def prep_reraise_star(f: Frame, i: Instruction) -> None:
    raised = f.stack_.pop()
    f.stack_[-1] = to_raise(f.s, f.stack_[-1], raised.all(f.s)) or NONE


@op("CLEANUP_THROW")
def cleanup_throw(f: Frame, i: Instruction) -> None:
    """Stack: receiver, value last sent, exception; a finished receiver's result goes on as SEND's does."""
    error = f.stack_.pop()
    if error.cls is not StopIteration:
        raise Raised(error)
    f.stack_[-2:] = [f.s.get_attr(error, "value")]


def _again(f: Frame, error: Value) -> Raised:
    """Its traceback has this frame already, unless it is one that tracebacks never have."""
    return Raised(error, again=id(f.code.code) not in HIDDEN)


@op("RERAISE")
def reraise(f: Frame, i: Instruction) -> None:
    raise _again(f, f.stack_.pop())


@op("RAISE_VARARGS")
def raise_varargs(f: Frame, i: Instruction) -> None:
    cause = f.stack_.pop() if i.arg == 2 else None
    if i.arg == 0:
        error = f.s.current_exception
        if error is None:
            f.s.throw(RuntimeError, "No active exception to reraise")
        raise _again(f, error)
    error = f.stack_.pop()
    if isinstance(error, ClassValue):
        error = f.s.call(error)
    if not issubclass(error.cls, BaseException):
        f.s.throw(TypeError, "exceptions must derive from BaseException")
    if isinstance(cause, ClassValue):
        cause = f.s.call(cause)
    if isinstance(error, ExceptionValue):
        if cause is not None:
            error.cause, error.suppress = None if is_singleton(cause, None) else cause, True
    elif cause is not None or f.s.current_exception not in (None, error):
        f.s.unsupported("outside-exception", f"raising {error.describe()} changes its __context__ or __cause__")
    raise f.s.raising(error)


# ---------------------------------------------------------------- with


@op("BEFORE_WITH")
def before_with(f: Frame, i: Instruction) -> None:
    enter = entering(f, "__enter__", "__exit__", "context manager")
    f.awaits = of_protocol(enter)
    f.stack_.append(f.s.call(enter))


def entering(f: Frame, first: str, last: str, kind: str) -> Any:
    """What enters the manager on the stack, in whose place is what leaves it."""
    manager = f.stack_.pop()
    leave, enter = f.s.find_special(manager, last), f.s.find_special(manager, first)
    if leave is None or enter is None:
        f.s.throw(TypeError, f"{manager.cls.__name__!r} object does not support the {kind} protocol")
    f.stack_.append(leave)
    return enter


@op("WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction) -> None:
    error = f.stack_[-1]
    leave = f.stack_[-i.arg]
    f.awaits = of_protocol(leave)
    f.stack_.append(f.s.call(leave, f.s.wrap(error.cls, None), error, NONE))


# ---------------------------------------------------------------- match


@op("GET_LEN")
def get_len(f: Frame, i: Instruction) -> None:
    f.stack_.append(f.s.length(f.stack_[-1]))


@op("MATCH_MAPPING")
def match_mapping(f: Frame, i: Instruction) -> None:
    f.stack_.append(boolean(issubclass(f.stack_[-1].cls, Mapping)))


@op("MATCH_SEQUENCE")
def match_sequence(f: Frame, i: Instruction) -> None:
    cls = f.stack_[-1].cls
    f.stack_.append(boolean(issubclass(cls, Sequence) and not issubclass(cls, (str, bytes, bytearray))))


@op("MATCH_KEYS")
def match_keys(f: Frame, i: Instruction) -> None:
    keys, subject = f.stack_[-1], f.stack_[-2]
    found = []
    for key in keys.all(f.s):
        if not f.s.contains(subject, key):
            f.stack_.append(NONE)
            return
        found.append(f.s.get_item(subject, key))
    f.stack_.append(TupleValue(found))


@op("MATCH_CLASS")
def match_class(f: Frame, i: Instruction) -> None:
    subject, cls, names = f.popn(3)
    f.push(_match_class(f.s, subject, cls.native(), [n.native() for n in names.all(f.s)], i.arg) or NONE)


def _match_class(s: Session, subject: Any, cls: type, names: list[str], positional: int) -> Any:
    if not issubclass(subject.type, cls):
        return None
    found = []
    if positional:
        if cls in SELF_MATCHING:
            found.append(subject)
        else:
            known = getattr(cls, "__match_args__", ())
            if positional > len(known):
                plural = "" if len(known) == 1 else "s"
                message = f"{cls.__name__}() accepts {len(known)} positional sub-pattern{plural} ({positional} given)"
                s.throw(TypeError, message)
            names = [*known[:positional], *names]
    for name in names:
        value = s.try_attr(subject, name)
        if value is None:
            return None
        found.append(value)
    return TupleValue(found)


SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
