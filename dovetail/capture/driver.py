"""`capture`: one call of a Python callable → graph, guards and residual code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import torch

from dovetail.bytecode.decode import SUSPENDED
from dovetail.capture.breaks.messages import as_called
from dovetail.capture.breaks.trace_rest import trace_continuation
from dovetail.capture.call_target import CallTarget, take_apart, trace_call, underlying
from dovetail.capture.containers import from_outside
from dovetail.capture.handlers import build, call, coroutines, flow, stack
from dovetail.capture.higher_order import (
    autograd_function,
    branches,
    checkpoint,
    flex_attention,
    func_transforms,
    functional_call,
    loops,
    plain_calls,
)
from dovetail.capture.higher_order.function_graphs import BackwardOpaque
from dovetail.capture.interpreter.tracing_log import Watch
from dovetail.capture.library import all as _known
from dovetail.capture.numbers.specialization import SizesConstant
from dovetail.capture.numbers.tensor_numbers import TensorNumbers
from dovetail.capture.outside.growing_state import StateGrows
from dovetail.capture.outside.unstable_facts import CODE
from dovetail.capture.residual.completion import finish, returning
from dovetail.capture.residual.graph_break import Stopped
from dovetail.capture.residual.graph_break import stop as stop_here
from dovetail.capture.residual.one_call import FirstChange
from dovetail.capture.session import Session
from dovetail.capture.state.ledgers import Compiling
from dovetail.capture.state.thread_state import preserved
from dovetail.capture.tensors.assertions import Blocks
from dovetail.capture.tensors.new_leaves import LeafSeen
from dovetail.capture.values.base import Raised, RestartCapture
from dovetail.errors import InternalError, Location, Unsupported
from dovetail.ir import marks
from dovetail.ir.captured import Break, Captured
from dovetail.ir.literals import in_words
from dovetail.ir.records import dataclass
from dovetail.ir.varying import CONSTANT, Varying
from dovetail.ops.fake import FakeMode
from dovetail.ops.fake.masks import masks_given_back

#: Imported to fill the tables.
TABLES = (
    build, call, coroutines, flow, stack, autograd_function, checkpoint, branches, loops, func_transforms,
    flex_attention, functional_call, plain_calls, _known, from_outside,
)  # fmt: skip


@dataclass
class AttemptState:
    """What the attempts at one capture share: what varies, results of functions marked as constant, autograd functions
    whose backward cannot be traced, and who watches. `reshapes`: the graph ends where a tensor gets another shape.
    `leaves`: it may make some that nobody sees. `prepared`: optimizers that were given their state;
    None if none may be.

    Only the first attempt runs what the program asks for with comptime; the others repeat a part of it.
    """

    varying: Varying
    constants: dict = field(default_factory=dict)
    opaque: set[type] = field(default_factory=set)
    watch: Watch | None = None
    comptime: bool = True
    reshapes: bool = False
    compiling: Compiling = field(default_factory=Compiling)
    growing: frozenset[Any] = frozenset()
    blocks: Blocks = field(default_factory=Blocks)
    held: TensorNumbers = field(default_factory=TensorNumbers)
    leaves: bool = True
    lasting: bool = False  # is a region of no use that fits one call?
    prepared: list | None = None


def capture(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], options: Any,
    varying: Varying = CONSTANT, watch: Watch | None = None, prepares: bool = False,
) -> Captured:  # fmt: skip
    """Trace `fn(*args, **kwargs)` without running it; raises `Unsupported` where that is impossible.

    Tensors among the arguments are only looked at, never computed with. `varying` says which numbers and sizes are
    inputs of the graph instead of constants. `prepares`: an optimizer may be given the state of its first step.
    """
    state = AttemptState(_varying(varying, options), watch=watch, prepared=[] if prepares else None)
    return _without_seen_leaves(state, lambda: _capture(fn, args, kwargs, options, -1, state))


def _varying(varying: Varying, options: Any) -> Varying:
    return {None: varying, True: replace(varying, everything=True), False: CONSTANT}[options.dynamic]


def capture_with_breaks(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], options: Any,
    varying: Varying = CONSTANT, watch: Watch | None = None, lasting: bool = False, prepares: bool = False,
) -> Captured:  # fmt: skip
    """The same, but what cannot be part of the graph ends it: the residual does it and hands over the rest.

    Raises `Unsupported` where no such break is possible either. `lasting`: and MadeForOneCall as soon as it is certain
    that no other call will be like this one. `prepares`: see `capture`.
    """
    prepared: list | None = [] if prepares else None
    state = AttemptState(_varying(varying, options), watch=watch, lasting=lasting, prepared=prepared)
    return _without_seen_leaves(state, lambda: _with_breaks(fn, args, kwargs, options, state))


def capture_whole(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], options: Any,
    varying: Varying = CONSTANT, watch: Watch | None = None, prepares: bool = False,
) -> Captured:  # fmt: skip
    """The same in one graph, but for hooks of the module itself that are marked not to be compiled, as those that
    `fully_shard` gives a compiled layer: they come before it and behind it."""
    if getattr(fn, "_dovetail_continuation", None) is None:
        try:
            return capture(fn, args, kwargs, options, varying, watch, prepares)
        except Unsupported as error:
            if not _at_own_hook(error):
                raise
    captured = capture_with_breaks(fn, args, kwargs, options, varying, watch, prepares=prepares)
    for found in captured.breaks:
        if not _at_own_hook(found):
            raise Unsupported(found.code, found.reason, found.remedy, stack=found.stack)
    return captured


_CALL = torch.nn.Module._call_impl.__code__.co_filename


def _at_own_hook(found: Unsupported | Break) -> bool:
    """Is it in what calls a module, outside its forward?"""
    return found.code == "disabled-function" and all(place.filename == _CALL for place in found.stack)


def _without_seen_leaves(state: AttemptState, attempt: Callable[[], Captured]) -> Captured:
    """The attempt, again where a leaf that it makes was seen: it makes none then."""
    try:
        return attempt()
    except LeafSeen:
        state.leaves = False
        return attempt()


def _with_breaks(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any], options: Any, state: AttemptState
) -> Captured:
    watch = state.watch
    try:
        return _capture(fn, args, kwargs, options, 0, state)
    except Unsupported as error:
        if error.code == "user-exception" or error.strict:
            raise
        state.reshapes = error.code == "metadata-mutation"
        for tick in _break_places(error):
            if watch is not None:
                watch.again(f"the graph ends at instruction {tick}: [{error.code}] {error.reason}")
            try:
                captured = _capture(fn, args, kwargs, options, tick, state)
            except Unsupported as refusal:
                error.refusals += (_refused(refusal),)
                continue  # not here: end the graph one call further out
            reason = Break(error.code, error.reason, error.remedy, error.stack, error.refusals)
            return replace(captured, breaks=(reason,))
        if error.code == CODE:  # better one more entry than none
            relying = replace(state.varying, unstable=frozenset())
            return capture_with_breaks(fn, args, kwargs, options, relying, watch, prepares=state.prepared is not None)
        raise


def _refused(error: Unsupported) -> str:
    where = f" in {error.stack[-1].function}, line {error.stack[-1].line}" if error.stack else ""
    return f"[{error.code}] {error.reason}{where}"


def _break_places(error: Unsupported) -> list[int]:
    """Instructions that the graph can end at: in the frame that failed, then in its callers."""
    places = error.break_candidates
    reach = next((k for k, (_, direct) in enumerate(places) if k and not direct), len(places))
    inside = list(itertools.takewhile(bool, (tick for tick, _ in reversed(places[:reach]))))
    return list(dict.fromkeys(inside))  # frames that wait for a continuation's inner ones have executed nothing: 0


def _capture(
    fn: Any, args: tuple, kwargs: Mapping[str, Any], options: Any, stop: int, state: AttemptState
) -> Captured:
    """`stop`: the instruction to end at, 0 to go as far as possible, -1 if the graph must not break at all."""
    while True:
        try:
            return _attempt(fn, args, kwargs, options, stop, state)
        except SizesConstant as found:
            if state.varying.constant.keys() >= set(found.names):
                raise InternalError("capture", f"{', '.join(found.names)} did not become constant") from None
            state.varying = state.varying.without(found.names, found.reason)
        except StateGrows as found:
            state.growing |= found.found
        except BackwardOpaque as found:
            state.opaque.add(found.cls)
        except LeafSeen:  # the graph may end at another place, now that it ends before the leaf is made
            raise
        except RestartCapture:
            pass  # what it has learned it has written down already
        except Unsupported as error:
            if state.held.allowed and state.held.made and stop <= 0:
                state.held.allowed = False
                continue
            told = state.compiling.asked and state.compiling.answer
            if error.code != "user-exception" or not told or stop > 0:
                raise
            state.compiling.answer = False  # the program may raise only since it was told


def _attempt(
    fn: Any, args: tuple, kwargs: Mapping[str, Any], options: Any, stop: int, state: AttemptState
) -> Captured:
    rest = getattr(fn, "_dovetail_continuation", None)
    target = take_apart(fn)
    function = target.function or underlying(target.root)
    space = getattr(function, "__globals__", {}) if rest is None else rest.scopes[0]
    session = Session(space, options, state.varying, stop_here)
    session.ends.stop, session.ends.breaks = stop or -1, stop >= 0
    session.constants, session.watch, session.comptime = state.constants, state.watch, state.comptime
    session.compiling, session.gradients.opaque, session.prepared = state.compiling, state.opaque, state.prepared
    session.gradients.reshapes, session.growing.known = state.reshapes, state.growing
    session.ends.around, state.blocks.checked = state.blocks, False
    session.taken.held, state.held.made = state.held, False
    session.gradients.leaves = [] if state.leaves else None
    session.effects.watchers += [FirstChange(session)] if state.lasting else []
    state.comptime = False
    if rest is None:
        _refuse_disabled(target)
        _refuse_generators(target)
    try:
        with preserved(session), masks_given_back(), FakeMode() as session.tensors.fakes:
            return _traced(session, target, rest, args, kwargs)
    except Unsupported as error:
        error.reason = error.reason if rest is None else as_called(rest, error.reason)
        error.stack = error.stack or _definition(function)  # of what is found out when the code has been traced
        raise
    finally:
        vars(session).clear()  # its values refer to it and to the caller's objects, which must not wait for the gc


def _definition(function: Any) -> tuple[Location, ...]:
    code = getattr(function, "__code__", None)
    return () if code is None else (Location(code.co_filename, code.co_firstlineno, code.co_qualname),)


def _traced(s: Session, target: CallTarget, rest: Any, args: tuple, kwargs: Mapping[str, Any]) -> Captured:
    function = target.function or underlying(target.root)
    try:
        result = trace_continuation(s, rest, args) if rest is not None else trace_call(s, target, args, kwargs)
    except Raised as raised:
        raise _escaped(raised) from getattr(raised.value, "original", None)
    except Stopped:
        return finish(s, s.ends.ending, function)
    return finish(s, returning(s, result), function)


def _refuse_disabled(target: CallTarget) -> None:
    """The compiled function may itself be marked, as the forward of a class of modules may be."""
    function = target.function
    found = marks.of_function(function) if function is not None else None
    if function is not None and found is not None and found.mark is marks.Mark.DISABLE:
        raise Unsupported("disabled-function", f"{function.__qualname__} is marked not to be compiled")


def _refuse_generators(target: CallTarget) -> None:
    """A call of a generator function runs nothing of it: its body runs when somebody asks for the values."""
    function = target.function
    if function is not None and function.__code__.co_flags & SUSPENDED:
        raise Unsupported(
            "generator-function", f"{function.__qualname__} yields or awaits, and calling it runs none of its code",
            stack=_definition(function),
        )


def _escaped(raised: Raised) -> Unsupported:
    """The program raises for these arguments: eager runs it, so that the user sees the real error."""
    error = raised.value
    given = [getattr(a, "value", ...) for a in getattr(error, "args", ())]
    words = [v if isinstance(v, str) else "..." if v is ... else in_words(v) for v in given]
    return Unsupported(
        "user-exception", f"the code raises {error.cls.__name__}: {', '.join(words)}", stack=raised.stack
    )
