"""Standard-library functions that need more than tracing: operator, functools, copy, contextlib, logging."""

from __future__ import annotations

import builtins
import contextvars
import copy
import dataclasses
import functools
import inspect
import operator
import time
import types
import typing
import weakref
from typing import Any, NoReturn

import torch

from dovetail.capture.calling.classes import ALLOCATORS, allocate
from dovetail.capture.outside.distinct_objects import rely_on_number
from dovetail.capture.outside.wrap import Called
from dovetail.capture.process.trusted_code import HEAP_TYPE
from dovetail.capture.state.thread_state import VariableSet
from dovetail.capture.tables.known_callables import FOLDED, KNOWN, Handler, known
from dovetail.capture.tables.operator_names import BINARY, COMPARE, UNARY
from dovetail.capture.values.array import ArrayValue
from dovetail.capture.values.base import MISSING, NONE, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.callables import KnownValue, PyModuleValue
from dovetail.capture.values.containers import LITERALS, DictValue, Entries, ListValue, SliceValue, TupleValue
from dovetail.capture.values.objects import ExceptionValue, ModuleValue, ObjectValue, OpaqueValue
from dovetail.capture.values.sets import SetEntries, SetValue
from dovetail.capture.values.tensor import TensorValue, as_tensor
from dovetail.ir.guard import GuardKind


def _operation(method: str, name: str) -> Handler:
    return lambda s, args, kwargs: getattr(s, method)(name, *args)


KNOWN.update((function, _operation("binary", name)) for name, function in BINARY.items())
KNOWN.update((row[0], _operation("compare", sign)) for sign, row in COMPARE.items())
KNOWN.update((row[0], _operation("unary", name)) for name, row in UNARY.items())
KNOWN[operator.inv] = KNOWN[operator.invert]
KNOWN[operator.not_] = lambda s, args, kwargs: boolean(not s.truth(args[0]))
KNOWN[operator.truth] = lambda s, args, kwargs: boolean(s.truth(args[0]))
KNOWN[operator.is_] = lambda s, args, kwargs: boolean(s.same(*args))
KNOWN[operator.is_not] = lambda s, args, kwargs: boolean(not s.same(*args))
KNOWN[operator.getitem] = lambda s, args, kwargs: s.get_item(*args)
KNOWN[operator.setitem] = lambda s, args, kwargs: s.set_item(*args) or NONE
KNOWN[operator.delitem] = lambda s, args, kwargs: s.del_item(*args) or NONE
FOLDED.update((operator.itemgetter, operator.attrgetter, operator.methodcaller))
FOLDED.update((operator.itemgetter.__reduce__, operator.attrgetter.__reduce__))


@known(operator.methodcaller.__call__)
def _call_method(s: Session, args: Args, kwargs: Kwargs) -> Value:
    maker, given = args[0].native().__reduce__()
    name, *rest = given if maker is operator.methodcaller else (maker.args[0], *given)
    named = {} if maker is operator.methodcaller else maker.keywords
    method = s.get_attr(args[1], name)
    return method.call(s, [s.from_native(v) for v in rest], {k: s.from_native(v) for k, v in named.items()})


def _new(new: Any) -> Any:
    return lambda s, args, kwargs: allocate(s, args[0].native(), new, args[1:])


for _new_method in ALLOCATORS:
    KNOWN.setdefault(_new_method, _new(_new_method))


EXCEPTIONS = tuple(c for c in vars(builtins).values() if isinstance(c, type) and issubclass(c, BaseException))


@known(*(c.__init__ for c in EXCEPTIONS))
def _exception_init(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], ExceptionValue):
        args[0].args = list(args[1:])
    return NONE


@known(BaseException.__str__)
def _exception_str(s: Session, args: Args, kwargs: Kwargs) -> Value:
    values = args[0].args  # type: ignore[attr-defined]
    if not values:
        return Const("")
    return s.to_string(values[0] if len(values) == 1 else TupleValue(values), "")


known(BaseException.with_traceback)(lambda s, args, kwargs: args[0])


@known(functools.partial)
def _partial(s: Session, args: Args, kwargs: Kwargs) -> Value:
    function, given = args[0], args[1:]
    made, keywords = ObjectValue(functools.partial), DictValue()
    if _flattened(function):
        inner = function.attrs  # type: ignore[attr-defined]
        function, given = inner["func"], [*s.unpack(inner["args"]), *given]
        keywords.entries = {k.native(): (k, v) for k, v in inner["keywords"].pairs(s)}
    keywords.entries |= {n: (Const(n), v) for n, v in kwargs.items()}
    made.attrs = {"func": function, "args": TupleValue(given), "keywords": keywords}
    return made


def _flattened(function: Value) -> bool:
    """Python makes one partial of two, unless somebody may have noted something on the inner one."""
    if function.cls is not functools.partial:
        return False
    real = getattr(function, "real", MISSING)
    noted = real is not MISSING and bool(real.__reduce__()[2][3])
    return not noted and function.attrs.keys() == {"func", "args", "keywords"}  # type: ignore[attr-defined]


known(typing.cast)(lambda s, args, kwargs: args[1])
known(inspect.unwrap)(lambda s, args, kwargs: args[0])
known(types.MappingProxyType)(lambda s, args, kwargs: args[0])


# ---------------------------------------------------------------- copies


known(copy.copy)(lambda s, args, kwargs: copied(s, args[0], None))


#: Copies by the ids of what they are of; None: what a value holds is not copied.
Memo = dict[int, Value] | None


@known(copy.deepcopy)
def _deepcopy(s: Session, args: Args, kwargs: Kwargs) -> Value:
    memo: dict[int, Value] = {}
    made = copied(s, args[0], memo)
    outside = (v for v in s.objects.by_identity.values() if type(v) in _COPIED and v.source is not None)
    rely_on_number(s, [v for v in outside if id(v) in memo])
    return made


def copied(s: Session, value: Value, memo: Memo) -> Value:
    """A copy of a value; with a memo, a deep one."""
    if memo is not None and id(value) in memo:
        return memo[id(value)]
    if isinstance(value, TensorValue):
        return _copy_tensor(s, value, memo)
    special = "__deepcopy__" if memo is not None else "__copy__"
    if type(s.static(value.cls, special)) is types.FunctionType:
        return s.call_method(value, special, *([DictValue()] if memo is not None else []))
    copier = next((c for kind, c in COPIERS.items() if isinstance(value, kind)), None)
    return copier(s, value, memo) if copier is not None else value


def _copy_array(s: Session, value: ArrayValue, memo: Memo) -> Value:
    made = value if value.scalar else s.call_method(value, "copy", Const("K"))
    if memo is not None:
        memo[id(value)] = made
    return made


def _copy_native(s: Session, value: Value, memo: Memo) -> Value:
    """By Python, if it never changes, as what is hashed by its value does not: itself, or an equal one."""
    cls = value.cls
    if issubclass(cls, _ATOMS):
        return value
    if cls.__hash__ in (None, object.__hash__):
        return _by_python(s, value)
    made = copy.copy(value.native()) if memo is None else copy.deepcopy(value.native())
    found = value if made is value.native() else s.from_native(made)
    if memo is not None:
        memo[id(value)] = found
    return found


def _copy_const(s: Session, value: Value, memo: Memo) -> Value:
    """A number from outside is not looked at: it is itself."""
    return value if value.cls in LITERALS else _copy_native(s, value, memo)


def _copy_slice(s: Session, value: SliceValue, memo: Memo) -> Value:
    if memo is None or copy.deepcopy(ONE_SLICE) is ONE_SLICE:
        return value
    start, stop, step = (copied(s, part, memo) for part in value.parts())
    memo[id(value)] = SliceValue(start, stop, step)
    return memo[id(value)]


ONE_SLICE = slice(1)


_ATOMS = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, property, weakref.ref)


def _by_python(s: Session, value: Value) -> NoReturn:
    s.unsupported("deepcopy", f"{value.describe()} is copied")


def _copy_tensor(s: Session, value: TensorValue, memo: Memo) -> Value:
    """A new tensor, deeply a leaf like the original; tensors copied together that share memory are left to Python."""
    fake, deep = value.fake, memo is not None
    if deep and s.get_attr(value, "grad_fn") is not NONE:
        s.throw(RuntimeError, "Only Tensors created explicitly by the user support the deepcopy protocol")
    others = [] if memo is None else [v for v in memo.values() if isinstance(v, TensorValue)]
    known = value.cls is torch.Tensor and (deep or not fake.requires_grad) or deep and value.cls is torch.nn.Parameter
    kept = deep and value.cls is torch.Tensor and s.get_attr(value, "grad") is not NONE
    whole = not deep or not fake._is_view() or not others and _dense(fake)
    if not known or kept or value.written or not whole or deep and any(v.fake._is_view() for v in others):
        s.unsupported(
            "deepcopy", f"{value.describe()} is copied with its history or its memory shared", "Use clone()."
        )
    if memo is None:
        return s.torch_method("detach", [value], {})
    made = s.torch_method("clone", [s.torch_method("detach", [value], {})], {})
    if as_tensor(made).fake.stride() != fake.stride():
        s.unsupported("deepcopy", f"{value.describe()} is copied with the gaps in its memory", "Use clone().")
    if value.cls is torch.nn.Parameter:
        made = s.call(s.wrap(torch.nn.Parameter, None), made, Const(fake.requires_grad))
    elif fake.requires_grad:
        made = s.torch_method("requires_grad_", [made], {})
    memo[id(value)] = made
    memo[-1 - id(value)] = value  # kept: what else is copied may be a view of the same memory
    return made


def _dense(fake: Any) -> bool:
    return bool(fake.is_contiguous() and fake.held == fake.numel() * fake.itemsize)


def _inner(s: Session, value: Value, memo: Memo) -> Value:
    return value if memo is None else copied(s, value, memo)


def _copy_attributes(s: Session, value: ObjectValue, made: ObjectValue, memo: Memo) -> Value:
    if memo is not None:
        memo[id(value)] = made
    for name in value.attr_names(s):
        found = value.instance_attr(s, name)
        if found is not None:
            made.attrs[name] = _inner(s, found, memo)
            made.written[name] = None
    return made


def _copy_list(s: Session, value: Any, memo: Memo) -> Value:
    made = ListValue([], value.cls)
    made.maxlen = value.maxlen
    _copy_attributes(s, value, made, memo)
    made.items = [_inner(s, v, memo) for v in value.all(s)]
    return made


def _copy_tuple(s: Session, value: TupleValue, memo: Memo) -> Value:
    """Of other classes a copy is made whatever they hold."""
    items = value.all(s)
    made = [_inner(s, v, memo) for v in items]
    if memo is not None and id(value) in memo:  # it holds what holds it
        return memo[id(value)]
    if value.cls is tuple and all(map(operator.is_, made, items)):
        return value
    return _copy_attributes(s, value, TupleValue(made, value.cls), memo)


def _copy_dict(s: Session, value: Any, memo: Memo) -> Value:
    made = DictValue(value.cls)
    made.default_factory = value.default_factory
    _copy_attributes(s, value, made, memo)
    entries = Entries()
    for native_key, (key, _) in value.entries.items():
        copy_of_key, item = _inner(s, key, memo), value.get(s, native_key)
        entries[s.hashable(copy_of_key) if copy_of_key is not key else native_key] = copy_of_key, _inner(s, item, memo)
    made.entries = entries
    return made


def _copy_set(s: Session, value: SetValue, memo: Memo) -> Value:
    if memo is not None:
        memo[id(value)] = s.call(s.wrap(value.cls, None), ListValue([copied(s, v, memo) for v in s.unpack(value)]))
        return memo[id(value)]
    if value.cls is frozenset:
        return value
    made = SetValue(value.cls)
    made.entries = SetEntries(value.entries, value.entries.order.copy())
    return made


def _copy_object(s: Session, value: ObjectValue, memo: Memo) -> Value:
    if type(value) not in (ObjectValue, ModuleValue):
        return value
    if not value.cls.__flags__ & HEAP_TYPE:  # a generator, for one
        _by_python(s, value)
    return _copy_attributes(s, value, ObjectValue(value.cls), memo)


#: What is copied once however often it is met; of modules and tensors from outside that is known anyway.
_COPIED = (ListValue, DictValue, SetValue, ObjectValue)

COPIERS: dict[type, Any] = {
    ArrayValue: _copy_array,
    OpaqueValue: _copy_native,
    Const: _copy_const,
    SliceValue: _copy_slice,
    PyModuleValue: lambda s, value, memo: _by_python(s, value),
    KnownValue: _copy_native,
    ListValue: _copy_list,
    TupleValue: _copy_tuple,
    DictValue: _copy_dict,
    SetValue: _copy_set,
    ObjectValue: _copy_object,
}


# ---------------------------------------------------------------- dataclasses, context variables


@known(contextvars.ContextVar.get)
def _context_get(s: Session, args: Args, kwargs: Kwargs) -> Value:
    variable = args[0].native()
    changed = next((v for v in reversed(s.modes.variables) if v.variable is variable), None)
    if changed is not None:
        return changed.value
    source = Called(s.bind(variable, variable.name), f".get({s.bind(MISSING).expr()})")
    found = variable.get(MISSING)
    if found is not MISSING:
        return s.wrap(found, source)
    s.guard(source, GuardKind.ID, MISSING)
    if len(args) > 1:
        return args[1]
    try:
        return s.wrap(variable.get(), Called(s.bind(variable, variable.name), ".get()"))
    except LookupError as error:
        return s.throw_native(error)


@known(contextvars.ContextVar.set)
def _context_set(s: Session, args: Args, kwargs: Kwargs) -> Value:
    variable = args[0].native()
    token = ObjectValue(contextvars.Token)
    s.modes.variables.append(VariableSet(variable, args[1], token))
    return token


@known(contextvars.ContextVar.reset)
def _context_reset(s: Session, args: Args, kwargs: Kwargs) -> Value:
    variable = args[0].native()
    found = next((k for k, v in enumerate(s.modes.variables) if v.token is args[1]), None)
    if found is None or s.modes.variables[found].variable is not variable:
        s.unsupported("context-variable", f"the code resets {variable.name!r} to what it was before this graph")
    s.modes.variables[found:] = [v for v in s.modes.variables[found:] if v.variable is not variable]
    return NONE


# ---------------------------------------------------------------- effects on the outside world


known(time.time, time.perf_counter, time.monotonic, time.perf_counter_ns, time.time_ns)(
    lambda s, args, kwargs: s.unsupported("clock", "the code reads the clock")
)


def _class_of(value: Value) -> Any:
    return value.native() if isinstance(value, KnownValue) else value.cls


known(dataclasses.is_dataclass)(lambda s, args, kwargs: boolean(dataclasses.is_dataclass(_class_of(args[0]))))


@known(dataclasses.fields)
def _fields(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls = _class_of(args[0])
    return TupleValue([ObjectValue(dataclasses.Field, f) for f in dataclasses.fields(cls)])
