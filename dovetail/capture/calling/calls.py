"""Calling: what happens when traced code calls something.

    call_function   a Python function: a table row, a node of the graph, or inlined
    call_known      a C function or other known object: a table row, a node, or folded
    call_object     an instance: its `__call__`
"""

from __future__ import annotations

import decimal
import re
from types import FunctionType, GenericAlias
from typing import Any, NoReturn

import numpy
import torch

from dovetail.bytecode import decode
from dovetail.bytecode.decode import Parameters
from dovetail.capture.calling.marked_callables import call_marked
from dovetail.capture.calling.nn_modules import call_module
from dovetail.capture.calling.scripted_functions import call_scripted
from dovetail.capture.cpython.native_arguments import fitted, led
from dovetail.capture.interpreter.frame import Frame, GeneratorValue
from dovetail.capture.numbers import dispatch
from dovetail.capture.outside import stable_arguments
from dovetail.capture.outside.definitions import rely_on_function
from dovetail.capture.outside.wrap import function_parts
from dovetail.capture.process import unguarded_facts
from dovetail.capture.process.trusted_code import intact
from dovetail.capture.tables.graph_functions import graph_functions, tensor_methods
from dovetail.capture.tables.known_callables import (
    BY_TYPE,
    CALL_LATER,
    CLOSURES,
    FOLDED,
    FOLDED_METHOD_TYPES,
    INLINE,
    KNOWN,
    STANDINS,
)
from dovetail.capture.values.array import ArrayValue
from dovetail.capture.values.base import MISSING, NOT_IMPLEMENTED, NotNative, Session, Value
from dovetail.capture.values.callables import FunctionValue, KnownValue
from dovetail.capture.values.containers import DictValue, TupleValue
from dovetail.capture.values.objects import ModuleValue, ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.errors import NOWHERE, Unsupported
from dovetail.ir import marks, recursion_limit
from dovetail.ir.guard import GuardKind
from dovetail.ir.literals import in_words

GROWN = 16  # frames at a time, for which there is room from the beginning


def call_function(s: Session, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a Python function: marked ones, those with a handler, or a new frame."""
    real = function.real
    closure = CLOSURES.get(id(function.code))
    if closure is not None:
        _load_parts(s, function)
        return closure(s, function, args, kwargs)
    if real is not MISSING:
        found = marks.of_function(real)
        if found is not None:
            return call_marked(s, function, args, kwargs, found)
        if function.unlisted:
            return call_python(s, function, args, kwargs)
        handler = KNOWN.get(real)
        if handler is not None:
            result = handler(s, *(led(real, args, kwargs) if kwargs else (args, kwargs)))
            if result is not INLINE:
                return result
        if real in s.options.reorderable_logging_functions:
            return KNOWN[CALL_LATER](s, [function, *args], kwargs)
        if real in graph_functions() and intact(s, real):
            return s.torch_call(real, args, kwargs)
        standin = STANDINS.get(real)
        if standin is not None:
            return s.wrap(standin, None).call(s, args, kwargs)
        name = tensor_methods().get(real)
        if name is not None:
            return s.torch_method(name, args, kwargs)
        if real in FOLDED:
            return fold(s, real, args, kwargs)
        if real.__module__ in OPAQUE_MODULES:
            return _opaque(s, function)
        inner = PEER_WRAPPERS.get((real.__module__, real.__name__))
        if inner is not None:
            cells = dict(zip(real.__code__.co_freevars, real.__closure__, strict=True))
            return s.call(s.wrap(cells[inner].cell_contents, None), *args, **kwargs)
        original = marks.original_of(real)
        if original is not real:  # a compiled function inside another is traced as what it was made from
            return s.call(s.wrap(original, s.attr_source(function, "_dovetail_original")), *args, **kwargs)
        by_code = KNOWN.get(real.__code__) if real.__dict__ else None
        if by_code is not None:
            return by_code(s, [function, *args], kwargs)
        function.unlisted = handler is None
    return call_python(s, function, args, kwargs)


def listed(real: FunctionType) -> bool:
    """Is there a row for the function, by which calls of it do something else than to run its code?"""
    tables = (KNOWN, STANDINS, FOLDED, graph_functions(), tensor_methods())
    return id(real.__code__) in CLOSURES or any(real in table for table in tables)


#: Modules whose functions look at the running program or leave it: they are called, not traced.
OPAQUE_MODULES = frozenset(("traceback", "linecache", "pdb", "bdb", "subprocess", "tempfile", "faulthandler"))

#: torch.compile, once used in a process, wraps methods of nn.Module with book-keeping of its own: the
#: free variable that holds the method itself.
PEER_WRAPPERS = {
    ("torch._dynamo.mutation_guard", "patched_init"): "init",
    ("torch._dynamo.mutation_guard", "patched_setstate"): "setstate",
}


def call_python(s: Session, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Inline a call: run the function's bytecode in a frame of its own."""
    _load_parts(s, function)
    return run_frame(s, function, _bound(s, function, args, kwargs))


def _load_parts(s: Session, function: FunctionValue) -> None:
    if function.real is not MISSING and not function.parts_loaded:
        function_parts(s, function)
        if not function.anew:
            rely_on_function(s, function.real)
        function.parts_loaded = True


def run_frame(s: Session, function: FunctionValue, values: dict[str, Any]) -> Value:
    """Run a function whose parameters are bound; a generator function gives its generator."""
    depth, limit = len(s.frames), recursion_limit.of_program()
    if depth >= limit:
        reason = f"calls nest deeper than the {limit} frames that Python allows the program"
        raise Unsupported("recursion", reason, stack=s.stack(), break_candidates=NOWHERE)
    if depth % GROWN == GROWN - 1:
        recursion_limit.grow(GROWN)
    code = decode(function.code)
    frame = Frame(s, code, s.scope(function.globals, function.globals.get("__name__")), function)
    frame.locals = values
    if function.closure:
        values.update(zip(code.code.co_freevars, function.closure))
    frame.direct = s.awaited() is function.code and not code.suspended
    return GeneratorValue(frame) if code.suspended else frame.run_call()


def _bound(s: Session, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Any]:
    """The values of the parameters, by Python's rules."""
    parameters = decode(function.code).parameters
    positional, keyword_only, _, star, double = parameters
    count = len(positional)
    out: dict[str, Any] = dict(zip(positional, args))
    if len(args) > count and star is None:
        _refuse_arguments(s, function, args, kwargs)
    extra = _bind_keywords(parameters, kwargs, out) if kwargs else {}
    if extra is None:
        _refuse_arguments(s, function, args, kwargs)
    first_default = count - len(function.defaults)
    for k in range(len(args), count):
        name = positional[k]
        if name in out:
            continue
        if k < first_default:
            _refuse_arguments(s, function, args, kwargs)
        out[name] = function.defaults[k - first_default]
    for name in keyword_only:
        if name not in out:
            if name not in function.kwdefaults:
                _refuse_arguments(s, function, args, kwargs)
            out[name] = function.kwdefaults[name]
    if star is not None:
        out[star] = TupleValue(args[count:])
    if double is not None:
        out[double] = DictValue.named(extra)
    return out


def _refuse_arguments(s: Session, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> NoReturn:
    """Raise what Python raises: an empty function of the same signature is called in vain."""
    code = function.code
    hollow = code.replace(
        co_code=EMPTY.co_code, co_consts=EMPTY.co_consts, co_names=(), co_cellvars=(), co_freevars=(),
        co_exceptiontable=b"", co_linetable=EMPTY.co_linetable, co_stacksize=1, co_flags=code.co_flags & (3 | 4 | 8),
    )  # fmt: skip
    native = FunctionType(hollow, {}, code.co_name, tuple(map(id, function.defaults)))
    native.__kwdefaults__ = dict.fromkeys(function.kwdefaults)
    if function.real is not MISSING:
        native.__qualname__ = function.real.__qualname__
    try:
        native(*args, **kwargs)
    except TypeError as error:
        s.throw_native(error)
    raise AssertionError(f"the arguments of {function.name} fit after all")


EMPTY = (lambda: None).__code__


def _bind_keywords(parameters: Parameters, kwargs: dict[str, Value], out: dict[str, Any]) -> dict[str, Value] | None:
    """Assign keyword arguments; what is left over goes to **kwargs. None: they do not fit."""
    positional, keyword_only, posonly, _, double = parameters
    extra = {}
    for name, value in kwargs.items():
        if name in positional[posonly:] or name in keyword_only:
            if name in out:
                return None
            out[name] = value
        elif double is None:
            return None
        else:
            extra[name] = value
    return extra


def call_known(s: Session, function: KnownValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an object from outside that is known by its identity, such as a built-in function."""
    real = function.real
    found = marks.of_native(real)
    if found is not None:
        return call_marked(s, function, args, kwargs, found)
    try:
        handler = KNOWN.get(real)
    except TypeError:
        handler = None
    else:
        if handler is not None or real in STANDINS:
            return by_table(s, real, args, kwargs)
        if real in graph_functions() or isinstance(real, OPERATORS):
            return s.torch_call(real, args, kwargs)
        name = tensor_methods().get(real)
        if name is not None:
            return s.torch_method(name, args, kwargs)
        if real in FOLDED or getattr(real, "__objclass__", None) in FOLDED_METHOD_TYPES:
            return fold(s, real, args, kwargs)
    if isinstance(real, GenericAlias):
        return s.call(s.wrap(real.__origin__, None), *args, **kwargs)
    if isinstance(real, torch._C.ScriptFunction):
        return call_scripted(s, real, args, kwargs)
    call = s.static(type(real), "__call__")
    known = type(call).__hash__ is not None and (call in STANDINS or call in KNOWN)
    if known or type(call).__name__ == "function":
        return s.wrap(call, None).call(s, [function, *args], kwargs)
    return _opaque(s, function)


def by_table(s: Session, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call what has a handler, or Python in its place."""
    args, kwargs = fitted(s, real, args, kwargs)
    return KNOWN[real](s, args, kwargs) if real in KNOWN else s.wrap(STANDINS[real], None).call(s, args, kwargs)


OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


PYBIND = re.compile(r"pybind11_detail_function_record\w*\.")  # what its functions are methods of


def _opaque(s: Session, function: Value) -> Value:
    name = getattr(getattr(function, "real", None), "__qualname__", None) or function.describe()
    module = getattr(getattr(function, "real", None), "__module__", None)
    name = PYBIND.sub("", f"{module}.{name}" if module else name)
    return s.unsupported(
        "opaque-call", f"{name} is code that capture cannot look into",
        "Call it outside the compiled function.",
    )


def fold(s: Session, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a pure native function now; every argument must be known."""
    made = None if kwargs else dispatch.call(s, real, args)
    if made is not None:
        return made
    try:
        native_args = [_folded(s, real, a) for a in args]
        native_kwargs = {k: _folded(s, real, v) for k, v in kwargs.items()}
    except NotNative:
        if len(args) == 2 and not kwargs and _may_refuse(real, args[-1]) and _known(args[0]):
            return NOT_IMPLEMENTED  # an operator of a number or string does not know the other operand
        name = getattr(real, "__qualname__", None) or in_words(real)
        return s.unsupported(
            "native-call-on-traced-value",
            f"{name} is native code and got a value that exists only in the graph, or an object that may change",
            "Use the torch function that does the same, or pass numbers and strings.",
        )
    try:
        result = real(*native_args, **native_kwargs)
    except Exception as error:  # the traced program's own exception
        return s.throw_native(error)
    unguarded_facts.folded(s, real, native_args, native_kwargs, result)
    return s.from_native(result)


def _known(value: Value) -> bool:
    try:
        value.native()
    except NotNative:
        return False
    return True


def _folded(s: Session, real: Any, value: Value) -> Any:
    by_type = real in BY_TYPE or getattr(real, "__objclass__", None) is type
    return value.native() if by_type else stable_arguments.native(s, value)


def _may_refuse(real: Any, other: Value) -> bool:
    """Is it an operator that leaves other operands to their own classes? Sequences ask theirs for an index instead.

    NumPy's numbers make arrays of objects that are none, and a decimal number looks for a numerator.
    """
    name, cls = getattr(real, "__name__", None), getattr(real, "__objclass__", object)
    if name not in OF_TWO_OPERANDS or issubclass(cls, decimal.Decimal):
        return False
    if issubclass(cls, numpy.generic):
        return isinstance(other, (ArrayValue, TensorValue))
    return issubclass(cls, (int, float, complex)) or name not in ASKING_FOR_AN_INDEX


#: Methods that may answer that the other operand's class is to be asked.
OF_TWO_OPERANDS = frozenset(
    f"__{reflected}{sign}__"
    for sign in "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split()
    for reflected in ("", "r")
) | {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}
ASKING_FOR_AN_INDEX = frozenset(("__mul__", "__rmul__", "__mod__"))


def call_object(s: Session, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`value(*args, **kwargs)` of an object, by the `__call__` of its class."""
    if isinstance(value, ModuleValue):
        return call_module(s, value, args, kwargs)
    if isinstance(value, ObjectValue) and value.source is not None:
        found = marks.of_native(value.real)
        if found is not None:
            s.guard(value.source, GuardKind.ID, value.real)
            return call_marked(s, value, args, kwargs, found)
    handler = KNOWN.get(value.cls.__call__) if "__call__" in dir(value.cls) else None
    if handler is not None:
        return handler(s, [value, *args], kwargs)
    method = s.find_special(value, "__call__")
    if method is None:
        return s.throw(TypeError, f"{value.cls.__name__!r} object is not callable")
    return method.call(s, args, kwargs)


__all__ = ["call_function", "call_known", "call_object", "call_python", "fold"]
