"""What the program shows: print, warnings and logging are called after the graph, in the program's order.

Their arguments must look the same then: text and numbers, and tensors kept as they are now. Which functions are
treated so is the user's choice (`config.reorderable_logging_functions`).
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from typing import Any

import torch

from dovetail.capture.breaks.call_sites import LEVELS, called_at, sites
from dovetail.capture.interpreter.frame import Frame
from dovetail.capture.numbers.graph_numbers import InGraph
from dovetail.capture.outside.wrap import Called
from dovetail.capture.tables.known_callables import CALL_LATER, KNOWN, known
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.callables import KnownValue, MethodValue
from dovetail.capture.values.containers import DictValue, ListValue, SliceValue, TupleValue
from dovetail.capture.values.deferred import DeferredText, Snapshot
from dovetail.capture.values.objects import ExceptionValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Global


def require(s: Session, function: Any) -> None:
    """Break the graph unless the function may be called after it."""
    if function not in s.options.reorderable_logging_functions:
        s.unsupported("logging-call", f"{function.__qualname__} is called where it stands")


@known(CALL_LATER)
def _call_later(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """A user's own function of the setting."""
    function, *rest = args
    s.effects.call(function, [settled(s, function, a) for a in rest], _settled_all(s, function, kwargs))
    return NONE


def settled(s: Session, function: Value, value: Value) -> Value:
    """The value in a form that looks the same after the graph has run."""
    if s.effects.stack is not None or isinstance(value, (Const, KnownValue, DeferredText, InGraph)):
        return value
    if isinstance(value, TensorValue):
        return Snapshot(s, value)
    if isinstance(value, ExceptionValue):
        return _copied(s, function, value)
    copier = COPIERS.get((type(value), value.cls))
    if copier is not None:
        return copier(s, function, value)
    return s.unsupported(
        "late-call", f"{function.describe()} shows {value.describe()}, which may look different after the graph"
    )


def _copied(s: Session, function: Value, error: ExceptionValue) -> ExceptionValue:
    """The exception as it is now: it may be raised again, or get notes."""
    made = ExceptionValue(error.cls, [settled(s, function, a) for a in error.args], error.original)
    made.attrs, made.written = _settled_all(s, function, error.attrs), {**error.written}
    made.cause, made.context = (e and settled(s, function, e) for e in (error.cause, error.context))
    made.suppress, made.raised, made.break_candidates = error.suppress, error.raised, error.break_candidates
    return made


def _settled_all(s: Session, function: Value, kwargs: Kwargs) -> Kwargs:
    return {k: settled(s, function, v) for k, v in kwargs.items()}


def _settled_dict(s: Session, function: Value, value: Any) -> Value:
    made = DictValue()
    made.entries = {n: (k, settled(s, function, v)) for n, (k, v) in zip(value.entries, value.pairs(s))}
    return made


def _sequence(kind: Any) -> Any:
    return lambda s, f, v: kind([settled(s, f, item) for item in v.all(s)], v.cls)


COPIERS: dict[tuple[type, type], Any] = {
    (ListValue, list): _sequence(ListValue),
    (TupleValue, tuple): _sequence(TupleValue),
    (TupleValue, torch.Size): lambda s, f, v: v,
    (DictValue, dict): _settled_dict,
    (SliceValue, slice): lambda s, f, v: v,
}


# ---------------------------------------------------------------- print


@known(print)
def _print(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`print` shows the text of its arguments, and that can be made now."""
    require(s, print)
    function = KnownValue(print)
    texts = [s.to_string(a, "") for a in args]
    named = {k: v if k == "file" else settled(s, function, v) for k, v in kwargs.items()}
    file = kwargs.get("file")
    if file is not None and not isinstance(file, Const) and not issubclass(file.cls, io.IOBase):
        s.unsupported("late-call", f"print writes to {file.describe()}", "Print to a file or to the screen.")
    s.effects.call(function, texts, named)
    return NONE


def _stream_call(cls: Any, name: str, result: Any) -> Any:
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        stream, rest = args[0], args[1:]
        if not isinstance(stream.source, Global) or not all(isinstance(a, (Const, DeferredText)) for a in rest):
            s.unsupported("stream", f"{stream.describe()}.{name} changes a stream")
        require(s, print)
        s.effects.call(MethodValue(KnownValue(getattr(cls, name)), stream), rest, kwargs, f"{cls.__name__}.{name}")
        return result(rest)

    return handler


for _cls in (io.TextIOWrapper, io.StringIO):
    KNOWN[_cls.write] = _stream_call(_cls, "write", lambda rest: Const(len(rest[0].native())))
KNOWN[io.TextIOWrapper.flush] = _stream_call(io.TextIOWrapper, "flush", lambda rest: NONE)


# ---------------------------------------------------------------- logging


def _log(name: str) -> None:
    """For a method of loggers, and for the module's function, which gives the root logger a handler if it has none."""
    method, function = getattr(logging.Logger, name), getattr(logging, name)

    def level(args: Args, kwargs: Kwargs) -> int:
        return LEVELS[name] or (kwargs.get("level") or args[0]).native()

    def of_logger(s: Session, args: Args, kwargs: Kwargs) -> Value:
        logger, *rest = args
        if _enabled(s, logger, level(rest, kwargs)):
            require(s, method)
            _log_later(s, MethodValue(KnownValue(method), logger), rest, kwargs, method.__qualname__)
        return NONE

    def of_root(s: Session, args: Args, kwargs: Kwargs) -> Value:
        root = s.wrap(logging.root, s.bind(logging.root, "logger None"))
        wanted = _enabled(s, root, level(args, kwargs))
        if wanted or not _has_handlers(s, root):
            require(s, method)
            _log_later(s, KnownValue(function), args, kwargs, f"logging.{name}")
        return NONE

    known(method)(of_logger)
    known(function)(of_root)


def _log_later(s: Session, function: Value, args: Args, kwargs: Kwargs, name: str) -> None:
    """The record has the place that the call stands at, and the exception that is being handled there."""
    shown = kwargs.get("exc_info", Const(name.endswith("exception")))
    if isinstance(shown, Const) and shown.value and s.current_exception is not None:
        kwargs = {**kwargs, "exc_info": s.current_exception}
    values = [settled(s, function, a) for a in args]
    at = KnownValue(sites(s.stack())), NONE, function
    s.effects.call(KnownValue(called_at), [*at, *values], _settled_all(s, function, kwargs), name)


def _has_handlers(s: Session, logger: Value) -> bool:
    found = logger.native().hasHandlers()
    if found:
        assert logger.source is not None
        s.guard(Called(logger.source, ".hasHandlers()"), GuardKind.ID, True)
    return bool(found)


def _enabled(s: Session, logger: Value, level: int) -> bool:
    real = logger.native()
    found = real.isEnabledFor(level)
    s.guard(Called(logger.source or s.bind(real, "logger"), f".isEnabledFor({level})"), GuardKind.ID, found)
    return bool(found)


for _name in LEVELS:
    _log(_name)
known(logging.Logger.isEnabledFor)(lambda s, args, kwargs: boolean(_enabled(s, args[0], args[1].native())))
known(logging.Logger.getEffectiveLevel)(lambda s, args, kwargs: _effective_level(s, args[0]))


def _effective_level(s: Session, logger: Value) -> Value:
    real = logger.native()
    source = Called(logger.source or s.bind(real, "logger"), ".getEffectiveLevel()")
    return s.wrap(real.getEffectiveLevel(), source)


@known(logging.getLogger)
def _get_logger(s: Session, args: Args, kwargs: Kwargs) -> Value:
    name = args[0].native() if args else None
    logger = logging.getLogger(name)
    return s.wrap(logger, s.bind(logger, f"logger {name!r}"))


# ---------------------------------------------------------------- warnings

MUTATED: Any = warnings._filters_mutated  # type: ignore[attr-defined]
known(MUTATED)(lambda s, args, kwargs: NONE)  # traced code that changes the filters puts them back


@known(warnings.warn)
def _warn(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """Replayed as `warn_explicit`: the place it names is the program's, not the generated code's."""
    message, category, level = _warning_parts(s, args, kwargs)
    frames = s.user_frames()
    if not frames:  # what was compiled is a function with a handler, and has no frame: its caller's is unknown
        s.effects.call(KnownValue(warnings.warn), [message, KnownValue(category)], {}, "warnings.warn")
        return NONE
    frame = frames[max(len(frames) - level, 0)]
    table, code = frame.scope.table, frame.code.code
    changed = s.scope(warnings.__dict__, "warnings").values.get("filters")
    if isinstance(changed, ListValue) and changed.source is None and not _wanted(s, changed, message, category, frame):
        return NONE
    require(s, warnings.warn)
    registry = table.setdefault("__warningregistry__", {})
    values = [message, KnownValue(category), Const(code.co_filename), Const(frame.line())]
    named: Kwargs = {"module": Const(table.get("__name__") or "<unknown>"), "registry": KnownValue(registry)}
    at = KnownValue(sites(s.stack())), NONE, KnownValue(warnings.warn_explicit)
    s.effects.call(KnownValue(called_at), [*at, *values], named, "warnings.warn")
    return NONE


def _warning_parts(s: Session, args: Args, kwargs: Kwargs) -> tuple[Value, type, int]:
    named = {**dict(zip(("message", "category", "stacklevel", "source"), args)), **kwargs}
    message, category = named["message"], named.get("category", NONE)
    if isinstance(category, Const) and category.value is None:
        category = KnownValue(message.cls if issubclass(message.cls, Warning) else UserWarning)
    if not isinstance(message, (Const, DeferredText)):
        message = s.to_string(message, "")
    return message, category.native(), named.get("stacklevel", Const(1)).native()


def _wanted(s: Session, filters: ListValue, message: Value, category: type, frame: Frame) -> bool:
    """Do the filters that traced code has put in force let it through? Only "ignore" is decided here."""
    for row in filters.all(s):
        action, pattern, wanted, module, line = (v.native() for v in s.unpack(row))
        fits = issubclass(category, wanted) and line in (0, frame.line())
        if fits and pattern is not None:
            fits = re.match(pattern, message.native()) is not None
        if fits and module is not None:
            fits = re.match(module, frame.scope.table.get("__name__", "")) is not None
        if fits:
            if action != "ignore":
                s.unsupported("warning-filters", f"a warning is shown under filters set inside ({action!r})")
            return False
    return True

