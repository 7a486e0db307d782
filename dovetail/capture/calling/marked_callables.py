"""Calls of callables that carry a mark (`ir.marks`): what capture does instead of tracing them.

A handler takes the session, the function's value, the arguments and the mark's detail.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.calling import user_kernels
from dovetail.capture.calling.whole_calls import call_whole
from dovetail.capture.interpreter.comptime import ComptimeContext
from dovetail.capture.process.unguarded_facts import alone, ask
from dovetail.capture.tables.known_callables import STANDINS
from dovetail.capture.values.base import FALSE, MISSING, NONE, Args, Kwargs, NotNative, Session, Value, boolean
from dovetail.capture.values.callables import FunctionValue, KnownValue, MethodValue
from dovetail.capture.values.containers import ListValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.errors import Unsupported
from dovetail.ir import asked
from dovetail.ir.marks import Mark

Handler = Callable[[Any, Any, Args, Kwargs, Any], Value]


def _name(function: Any) -> str:
    """Of a class that is called, its own name and not that of its `__init__`."""
    name = getattr(function, "name", None) or function.describe()
    return function.real.__qualname__.rpartition(".")[0] if name == "__init__" else name


def _allow(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    real = function.real if hasattr(function.real, "__name__") else _with_a_name(function.real)
    standin = STANDINS.get(f"{real.__module__}.{real.__name__}")
    if standin is not None:
        return s.wrap(standin, None).call(s, args, kwargs)
    return s.torch_call(real, args, kwargs)


def _with_a_name(obj: Callable[..., Any]) -> Callable[..., Any]:
    """A function, which a graph's node can be named after, that calls the object."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return obj(*args, **kwargs)

    call.__name__ = call.__qualname__ = type(obj).__name__
    return call


def _disallow(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    return s.unsupported("disallowed-function", f"{_name(function)} is marked with disallow_in_graph")


def _disable(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    words, _ = detail
    why = f": {words}" if words else ""
    return s.unsupported("disabled-function", f"{_name(function)} is marked not to be compiled{why}")


def _real(s: Session, value: Value) -> Any:
    """What the function is given: a tensor from outside as it is, while the graph has changed none."""
    origin = value.origin if isinstance(value, TensorValue) else None
    changed = origin is not None and any(node.meta.get("mutates") for node in s.root.nodes)
    return value.native() if origin is None or changed else origin


def _constant(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    """Call it now, once for each set of arguments, however often this part of the program is captured."""
    try:
        native = [_real(s, a) for a in args]
        named = {k: _real(s, v) for k, v in kwargs.items()}
    except NotNative:
        return s.unsupported(
            "constant-of-traced-value", f"{_name(function)} is marked as constant, but its arguments are computed here"
        )
    alone(s, f"what {_name(function)}, which is marked as constant, gives elsewhere is not known")
    key = (function.real, tuple(map(id, native)), tuple((k, id(v)) for k, v in named.items()))
    if key not in s.constants:
        try:
            with _disable_current_modes():  # it may make tensors
                s.constants[key] = (function.real(*native, **named), native, named)
        except Exception as error:  # the program's own: eager raises it at this call
            return s.throw_native(error)
    return s.wrap(s.constants[key][0], None)


def _instead(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    real = getattr(function, "real", MISSING)
    return s.wrap(detail if real is MISSING else ask(s, asked.instead, real), None).call(s, args, kwargs)


def _of_pytorch(s: Session) -> bool:
    """Is the caller PyTorch's own code? What it asks for is advice to PyTorch's compiler."""
    return bool(s.frames[-1].scope.table.get("__name__", "").partition(".")[0] == "torch")


def _break(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    if _of_pytorch(s):  # as its optimizers do
        return NONE
    words = _message(args, kwargs)
    return s.unsupported("explicit-break", f"the code calls graph_break({words!r})" if words else "the code calls "
                         "graph_break()")  # fmt: skip


def _message(args: Args, kwargs: Kwargs) -> str:
    given = [*args, *kwargs.values()]
    value = getattr(given[0], "value", "") if given else ""
    return value if isinstance(value, str) else ""


def _skip(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    """No break inside the calling function: the graph ends before the call of that function, or nothing is compiled."""
    error = Unsupported("skipped-frame", "the code calls skip_frame()", "", s.stack())
    error.break_candidates = tuple((f.tick, f.direct) for f in s.frames[:-1]) or ((0, True),)
    raise error


def _outside(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    if _of_pytorch(s) and _name(function) == "mark_static":  # as its flex_attention does for numbers of heads
        return NONE
    return s.unsupported("compiler-switch", f"{_name(function)} changes how code is compiled")


def _decorate(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    """`allow_in_graph(f)` inside: the mark is put on f now. What was made inside is traced as it is."""
    (target,) = args if len(args) == 1 else (None,)
    real = getattr(target, "real", MISSING)
    if target is None or kwargs or (real is MISSING and not isinstance(target, FunctionValue)):
        return _outside(s, function, args, kwargs, detail)
    if real is not MISSING:
        function.real(real)
    return target


def _strict_enter(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    """As `ErrorOnGraphBreak.__enter__`, on the flag of this capture; the manager's own book is kept in step."""
    before = s.try_attr(args[0], "prev_error_on_graph_break")
    if isinstance(before, ListValue):
        s.call_method(before, "append", s.from_native(s.ends.strict))
    else:  # PyTorch before 2.13 keeps one value
        s.set_attr(args[0], "prev_error_on_graph_break", s.from_native(s.ends.strict))
    s.ends.strict = s.get_attr(args[0], "error_on_graph_break").native()
    return NONE


def _strict_exit(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    kept = s.get_attr(args[0], "prev_error_on_graph_break")
    before = (s.call_method(kept, "pop") if isinstance(kept, ListValue) else kept).native()
    s.ends.strict = s.ends.strict if before is None else before
    return FALSE


# ---------------------------------------------------------------- comptime


def _comptime(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    """Call the function given with the state of this capture."""
    given = next((a for a in (*args, *kwargs.values()) if isinstance(a, FunctionValue)), None)
    if given is None:
        return s.unsupported("comptime-argument", "comptime takes a Python function of the compile-time context")
    alone(s, "the program has code to be run while compiling")
    try:
        if s.comptime:
            native(given)(ComptimeContext(s))
    except NotNative:
        return s.unsupported("comptime-argument", "the function given to comptime uses variables computed here")
    return NONE


def _compile(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    """`compile(f)` inside: a function that calls f, and is traced where it is called."""
    check, calling = detail
    model, options = args[0] if args else kwargs.get("model", NONE), {k: v for k, v in kwargs.items() if k != "model"}
    try:
        native_options = {k: v.native() for k, v in options.items()}
    except NotNative:
        return _outside(s, function, args, kwargs, detail)
    if len(args) > 1 or not (model is NONE or isinstance(model, (FunctionValue, MethodValue, KnownValue))):
        return _outside(s, function, args, kwargs, detail)
    try:
        check(**native_options)
    except Exception as error:  # eager raises it at this call
        return s.throw_native(error)
    return s.call(s.wrap(calling, None), model, boolean(native_options.get("disable", False)))


def native(function: FunctionValue) -> Any:
    """The function itself; one made inside is made for real, if its cells hold native values. Raises NotNative."""
    if function.real is not MISSING:
        return function.real
    cells = tuple(CellType(_contents(cell)) for cell in function.closure)
    defaults = tuple(d.native() for d in function.defaults)
    made = FunctionType(function.code, function.globals, function.name, defaults or None, cells or None)
    made.__kwdefaults__ = {k: v.native() for k, v in function.kwdefaults.items()} or None
    return made


def _contents(cell: Any) -> Any:
    if cell.contents is None:
        return inspect.Parameter.empty if cell.real is MISSING else cell.real.cell_contents
    return cell.contents.native()


HANDLERS: dict[Mark, Handler] = {
    Mark.ALLOW: _allow,
    Mark.DISALLOW: _disallow,
    Mark.DISABLE: _disable,
    Mark.CONSTANT: _constant,
    Mark.INSTEAD: _instead,
    Mark.WHOLE: lambda s, function, args, kwargs, detail: call_whole(s, function.real, args, kwargs),
    Mark.BREAK: _break,
    Mark.SKIP: _skip,
    Mark.OUTSIDE: _outside,
    Mark.DECORATE: _decorate,
    Mark.COMPTIME: _comptime,
    Mark.COMPILE: _compile,
    Mark.LAUNCH: user_kernels.launch,
    Mark.ITSELF: lambda s, function, args, kwargs, detail: args[0],
    Mark.NOTHING: lambda s, function, args, kwargs, detail: NONE,
    Mark.STRICT_ENTER: _strict_enter,
    Mark.STRICT_EXIT: _strict_exit,
}


def call_marked(s: Session, function: Any, args: Args, kwargs: Kwargs, found: Any) -> Value:
    """Call what the user has marked, as the mark says."""
    return HANDLERS[found.mark](s, function, args, kwargs, found.detail)
