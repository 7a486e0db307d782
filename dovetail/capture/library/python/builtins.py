"""Built-in functions and types."""

from __future__ import annotations

import functools
import itertools
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dovetail.capture.calling.calls import fold
from dovetail.capture.containers import hashing, varying_keys
from dovetail.capture.containers.hashing import set_entries
from dovetail.capture.containers.iteration import each
from dovetail.capture.cpython import special_results
from dovetail.capture.handlers.stack import super_parts
from dovetail.capture.interpreter.frame import GeneratorValue
from dovetail.capture.interpreter.tail_calls import OPERATOR, of_attribute, of_next, of_setter, within
from dovetail.capture.library.python.class_creation import make_class
from dovetail.capture.numbers import input_numbers, unbacked_sizes
from dovetail.capture.outside.definitions import computes_class
from dovetail.capture.polyfills.protocols import advance_or, discard, exists, fetch_or
from dovetail.capture.process import unguarded_facts
from dovetail.capture.process.trusted_code import trusted
from dovetail.capture.protocols.attributes import NATIVE_ATTRIBUTES
from dovetail.capture.protocols.subscripts import NO_INTEGER, as_index, backwards
from dovetail.capture.tables.known_callables import INLINE, known
from dovetail.capture.values.base import (
    FALSE,
    MISSING,
    NONE,
    Args,
    Const,
    Kwargs,
    LateConst,
    Raised,
    Value,
    boolean,
    is_singleton,
)
from dovetail.capture.values.callables import (
    ClassValue,
    FunctionValue,
    KnownValue,
    MethodValue,
    SuperValue,
)
from dovetail.capture.values.containers import (
    ListValue,
    SequenceValue,
    SetValue,
    SliceValue,
    TupleValue,
    copied,
)
from dovetail.capture.values.iterators import Calling, Enumerating, Filtering, IteratorValue, Mapping, Zipping
from dovetail.capture.values.objects import ModuleValue, ObjectValue
from dovetail.capture.values.scalar import ScalarValue
from dovetail.capture.values.tensor import ChosenTensor, TensorValue, refuse_choice
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Computed

if TYPE_CHECKING:
    from dovetail.capture.session import Session

FUNCTION = types.FunctionType


@known(len)
def _len(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.length(args[0])


@known(isinstance)
def _isinstance(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value, spec = args
    if isinstance(value, SuperValue):
        return FALSE
    return boolean(any(_instance_of(s, value, c) for c in _classes(s, spec)))


def _classes(s: Session, spec: Value) -> list[Any]:
    if isinstance(spec, TupleValue):
        return [c for item in spec.all(s) for c in _classes(s, item)]
    native = spec.native()
    return list(native.__args__) if not isinstance(native, type) and hasattr(native, "__args__") else [native]


def _instance_of(s: Session, value: Value, cls: Any) -> bool:
    if cls is torch.nn.Parameter:
        return isinstance(value, TensorValue) and issubclass(value.cls, torch.nn.Parameter)
    if isinstance(value, TensorValue):
        own = _plain_meta(cls) or isinstance(cls, type) and issubclass(cls, torch.Tensor)
        return issubclass(value.cls, cls) if own else isinstance(value.fake, cls)
    if isinstance(value, (Const, KnownValue)):  # of what is late, the type is guarded
        native = value.real if isinstance(value, LateConst) else value.native()
        found = isinstance(native, cls)
        unguarded_facts.subclass(s, type(native), cls, found)
        return found
    check = _own_check(s, cls, "__instancecheck__")
    if check is not None:
        return value.type is cls or s.truth(s.call(check, value))
    return _is_subclass(s, value.type, cls) or any(_is_subclass(s, c, cls) for c in _claimed(s, value))


def _plain_meta(cls: Any) -> bool:
    return type(cls).__instancecheck__ is type.__instancecheck__


def _own_check(s: Session, cls: Any, name: str) -> Value | None:
    """What the program's own metaclass has to say."""
    check = s.static(type(cls), name)
    own = type(check) is FUNCTION and not trusted(check.__globals__.get("__name__") or "")
    return MethodValue(s.wrap(check, None), s.wrap(cls, None)) if own else None


def _is_subclass(s: Session, cls: Any, other: Any) -> bool:
    own = _own_check(s, other, "__subclasscheck__")
    if own is not None:
        return s.truth(s.call(own, s.wrap(cls, None)))
    try:
        found = issubclass(cls, other)
        unguarded_facts.subclass(s, cls, other, found)
        return found
    except TypeError as error:
        return s.throw_native(error)


def _claimed(s: Session, value: Value) -> list[type]:
    """The class that an object says it has, where that is computed."""
    if type(s.static(value.cls, "__getattribute__")) is not FUNCTION and not computes_class(s, value):
        return []
    found = s.try_attr(value, "__class__")
    return [found.real] if isinstance(found, ClassValue) and found.real is not value.type else []


@known(issubclass)
def _issubclass(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return boolean(any(_is_subclass(s, args[0].native(), c) for c in _classes(s, args[1])))


@known(type)
def _type(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return s.wrap(args[0].type, None)
    return make_class(s, args, kwargs)


@known(super)
def _super(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return SuperValue(*super_parts(args[0], args[1]))


@known(callable)
def _callable(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, (FunctionValue, MethodValue, ClassValue)):
        return Const(True)
    return boolean(callable(value.real) if isinstance(value, KnownValue) else has_call(s, value))


def has_call(s: Session, value: Value) -> bool:
    return s.static(value.cls, "__call__") is not MISSING


@known(id)
def _id(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, ChosenTensor):
        refuse_choice(s, "asks for the id of a tensor")
    if isinstance(value, TensorValue) and value.origin is not None and value.source is not None:
        return ScalarValue(s, id(value.origin), Computed("id({})", (value.source,)), True)
    real = getattr(value, "real", MISSING)
    if real is MISSING:
        return Const(id(value))
    if isinstance(value, ModuleValue):
        value.native()
    elif value.source is not None and not isinstance(value, (KnownValue, FunctionValue)):
        s.guard(value.source, GuardKind.ID, real)
    return Const(id(real))


@known(hash)
def _hash(s: Session, args: Args, kwargs: Kwargs) -> Value:
    method = s.static(args[0].cls, "__hash__")
    if type(method) is type(_hash):
        return special_results.result(s, args[0], "__hash__", s.call_special(args[0], "__hash__"))
    if any(isinstance(part, TensorValue) for part in hashing.identified(s, args[0])):
        s.unsupported("tensor-hash", "the code hashes a tuple of tensors, which has their addresses in it")
    key = s.hashable(args[0])
    unguarded_facts.text_order(s, [key])
    return Const(hash(key))


def _name(s: Session, value: Value) -> str:
    """The name of an attribute, as the built-in functions take it."""
    if not issubclass(value.cls, str):
        s.throw(TypeError, f"attribute name must be string, not {value.cls.__name__!r}")
    return value.native()


@known(getattr)
def _getattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    found = varying_keys.attribute(s, args[0], args[1])
    if found is not None:
        return found
    name, awaited = _name(s, args[1]), _awaited(s, of_attribute, args)
    if len(args) == 2:
        s.expected = awaited
        return s.get_attr(args[0], name)
    load = functools.partial(s.get_attr, args[0], name)
    found = _unless(AttributeError, lambda: within(s, fetch_or, {"default": args[2]}, awaited, load))
    return args[2] if found is None else found


def _unless(error: type, call: Callable[[], Value]) -> Value | None:
    """The result of a call; None where it raises that."""
    try:
        return call()
    except Raised as raised:
        if not issubclass(raised.value.cls, error):
            raise
        return None


@known(hasattr)
def _hasattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    name, awaited = _name(s, args[1]), _awaited(s, of_attribute, args)
    load = functools.partial(s.get_attr, args[0], name)
    return boolean(_unless(AttributeError, lambda: within(s, exists, {}, awaited, load)) is not None)


@known(setattr)
def _setattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    name, awaited = _name(s, args[1]), _awaited(s, of_setter, args)
    within(s, discard, {}, awaited, lambda: s.set_attr(args[0], name, args[2]) or NONE)
    return NONE


def _awaited(s: Session, find: Any, args: Args) -> Any:
    """What the attribute's function is, if the running instruction does nothing else than calling the built-in one."""
    instruction, s.expected = s.expected is OPERATOR, None
    return find(s, args[0], _name(s, args[1])) if instruction else None


@known(object.__setattr__)
def _object_setattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    s.object_set_attr(args[0], _name(s, args[1]), args[2])
    return NONE


@known(delattr)
def _delattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    s.del_attr(args[0], _name(s, args[1]))
    return NONE


@known(object.__delattr__)
def _object_delattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    s.object_del_attr(args[0], _name(s, args[1]))
    return NONE


@known(object.__getattribute__)
def _object_getattribute(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.object_get_attr(args[0], _name(s, args[1]))


@known(torch.nn.Module.__getattr__)
def _module_getattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.module_member(args[0], args[1].native()) if isinstance(args[0], ModuleValue) else INLINE


@known(object.__init__, object.__init_subclass__, object.__dict__["__init_subclass__"])
def _object_init(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return NONE


@known(object.__eq__)
def _object_eq(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return boolean(True) if s.same(*args) else Const(NotImplemented)


@known(object.__ne__)
def _object_ne(s: Session, args: Args, kwargs: Kwargs) -> Value:
    result = s.call_method(args[0], "__eq__", args[1])
    return result if is_singleton(result, NotImplemented) else boolean(not s.truth(result))


@known(vars)
def _vars(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        s.unsupported("locals", "vars() gives the local variables of its caller")
    return s.get_attr(args[0], "__dict__")


@known(dir)
def _dir(s: Session, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, ObjectValue) and type(s.static(value.cls, "__dir__")) is not type(_dir):
        own = value.attr_names(s) if value.cls.__dictoffset__ or isinstance(value, FunctionValue) else []
        return ListValue([Const(n) for n in sorted({*dir(value.cls), *own})])
    return ListValue([Const(n) for n in dir(value.native())])


# ---------------------------------------------------------------- conversions


@known(bool)
def _bool(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return unbacked_sizes.claimed(s, args[0]) or boolean(s.truth(args[0])) if args else FALSE


def _number(cls: type, special: str) -> Any:
    def convert(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if args and isinstance(args[0], TensorValue):
            number = s.torch_method("item", [args[0]], {})
            return input_numbers.call(s, cls, [number]) or fold(s, cls, [number], {})
        if args and isinstance(args[0], ObjectValue):
            method = s.find_special(args[0], special)
            if method is not None:
                return special_results.result(s, args[0], special, s.call(method))
        return fold(s, cls, args, kwargs)

    return convert


known(int)(_number(int, "__int__"))
known(float)(_number(float, "__float__"))
known(complex)(_number(complex, "__complex__"))


@known(str)
def _str(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1:
        return fold(s, str, args, kwargs)
    return s.to_string(args[0], "") if args else Const("")


@known(repr)
def _repr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.to_string(args[0], "", repr)


@known(ascii)
def _ascii(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return Const(s.to_string(args[0], "", repr).native().encode("ascii", "backslashreplace").decode())


@known(format)
def _format(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return s.to_string(args[0], args[1].native() if len(args) > 1 else "", format)


@known(list)
def _list(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], SequenceValue) and args[0].divisible:
        return copied(s, args[0], ListValue)
    return ListValue(s.unpack(args[0]) if args else [])


@known(tuple)
def _tuple(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    if args and isinstance(args[0], SequenceValue) and args[0].divisible:
        return copied(s, args[0], TupleValue)
    return TupleValue(s.unpack(args[0]) if args else [])


@known(torch.Size)
def _size(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(s.unpack(args[0]) if args else [], torch.Size)


def _make_set(cls: type) -> Any:
    def make(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if cls is frozenset and args and isinstance(args[0], SetValue) and args[0].cls is frozenset:
            return args[0]
        made = SetValue(cls)
        if args:
            made.entries.take_in(set_entries(s, args[0]))
        return made

    return make


known(set)(_make_set(set))
known(frozenset)(_make_set(frozenset))


@known(slice)
def _slice(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return SliceValue(NONE, args[0], NONE)
    return SliceValue(args[0], args[1], args[2] if len(args) > 2 else NONE)


# ---------------------------------------------------------------- iteration


@known(iter)
def _iter(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return s.iterate(args[0])
    if not s.truth(_callable(s, args[:1], {})):
        s.throw(TypeError, "iter(v, w): v must be callable")
    return Calling(args[0], args[1])


@known(next)
def _next(s: Session, args: Args, kwargs: Kwargs) -> Value:
    iterator, instruction, s.expected = args[0], s.expected is OPERATOR, None
    awaited = of_next(s, iterator) if instruction else None
    advance = functools.partial(_advanced, s, iterator)
    if len(args) > 1:
        parts = {"default": args[1]}
        return _unless(StopIteration, lambda: within(s, advance_or, parts, awaited, advance)) or args[1]
    s.expected = awaited
    return advance()


def _advanced(s: Session, iterator: Value) -> Value:
    if not isinstance(iterator, IteratorValue):
        return s.step_or_raise(iterator)
    found = iterator.step(s)
    return _exhausted(s, iterator) if found is None else found


def _exhausted(s: Session, iterator: Value) -> Any:
    """StopIteration, with what a generator returned."""
    result = getattr(iterator, "result", NONE)
    return s.throw(StopIteration, *([] if isinstance(result, Const) and result.value is None else [result]))


@known(enumerate)
def _enumerate(s: Session, args: Args, kwargs: Kwargs) -> Value:
    iterator = s.iterate(args[0])
    start = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    return Enumerating(iterator, as_index(s, start, NO_INTEGER), TupleValue)


@known(zip)
def _zip(s: Session, args: Args, kwargs: Kwargs) -> Value:
    strict = "strict" in kwargs and s.truth(kwargs["strict"])
    return Zipping([s.iterate(a) for a in args], TupleValue, strict)


@known(map)
def _map(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return Mapping(args[0], [s.iterate(a) for a in args[1:]])


@known(filter)
def _filter(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return Filtering(args[0], s.iterate(args[1]))


@known(reversed)
def _reversed(s: Session, args: Args, kwargs: Kwargs) -> Value:
    method = s.find_special(args[0], "__reversed__")
    if method is not None and type(s.static(args[0].cls, "__reversed__")) is type(_reversed):
        return s.call(method)
    return backwards(s, args[0])


@known(any)
def _any(s: Session, args: Args, kwargs: Kwargs) -> Value:
    iterator = s.iterate(args[0])
    while (value := s.step(iterator)) is not None:
        if s.truth(value):
            return Const(True)
    return FALSE


@known(all)
def _all(s: Session, args: Args, kwargs: Kwargs) -> Value:
    iterator = s.iterate(args[0])
    while (value := s.step(iterator)) is not None:
        if not s.truth(value):
            return FALSE
    return Const(True)


@known(sum)
def _sum(s: Session, args: Args, kwargs: Kwargs) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", Const(0))
    numbers: Args | None = [] if _plain_number(total) else None
    for value in each(s, args[0]):
        if numbers is not None and _plain_number(value):
            numbers.append(value)
            continue
        total = input_numbers.added(s, numbers, total) if numbers else total
        numbers, total = None, s.binary("add", total, value)
    return input_numbers.added(s, numbers, total) if numbers else total


def _plain_number(value: Value) -> bool:
    return isinstance(value, Const) and value.cls in (int, float, bool)


# ---------------------------------------------------------------- generators


def _sent(s: Session, generator: GeneratorValue, found: Value | None) -> Value:
    return found if found is not None else _exhausted(s, generator)


GENERATOR = types.GeneratorType
COROUTINE = types.CoroutineType


@known(GENERATOR.send, COROUTINE.send)
def _generator_send(s: Session, args: Args, kwargs: Kwargs) -> Value:
    generator = args[0]
    return _sent(s, generator, generator.send(s, args[1]))  # type: ignore[arg-type, attr-defined]


@known(GENERATOR.__next__)
def _generator_next(s: Session, args: Args, kwargs: Kwargs) -> Value:
    return _sent(s, args[0], s.step(args[0]))  # type: ignore[arg-type]


ITERATORS = (
    type(iter([])), type(iter(())), type(iter(range(0))), type(iter({})), type(iter({}.values())),
    type(iter({}.items())), type(iter(set())), type(iter("")), type(iter(b"")), enumerate, zip, map, filter, reversed,
    type(reversed([])), type(iter(int, 0)), type(iter(deque())), type(reversed(deque())), type(iter(OrderedDict())),
    *(type(reversed(getattr({}, kind)())) for kind in ("keys", "values", "items")), type(itertools.tee(())[0]),
    *(cls for cls in vars(itertools).values() if isinstance(cls, type) and hasattr(cls, "__next__")),
)  # fmt: skip


@known(*(cls.__next__ for cls in ITERATORS))  # type: ignore[attr-defined]
def _iterator_next(s: Session, args: Args, kwargs: Kwargs) -> Value:
    found = s.step(args[0])
    return found if found is not None else s.throw(StopIteration)


known(*(cls.__iter__ for cls in (*ITERATORS, GENERATOR)))(lambda s, args, kwargs: args[0])  # type: ignore[attr-defined]


known(range.__iter__, str.__iter__, bytes.__iter__)(lambda s, args, kwargs: s.iterate(args[0]))


@known(GENERATOR.throw, COROUTINE.throw)
def _generator_throw(s: Session, args: Args, kwargs: Kwargs) -> Value:
    generator, error = args[0], args[-1] if not isinstance(args[-1], ClassValue) else s.call(args[-1])
    if len(args) > 2 and isinstance(args[2], ObjectValue):
        error = args[2]
    return _sent(s, generator, generator.throw(s, error))  # type: ignore[arg-type, attr-defined]


for _kind in (GENERATOR, COROUTINE):
    NATIVE_ATTRIBUTES[(_kind, "__name__")] = lambda s, v: Const(v.frame.code.code.co_name)
    NATIVE_ATTRIBUTES[(_kind, "__qualname__")] = lambda s, v: Const(v.frame.code.code.co_qualname)


@known(GENERATOR.close, COROUTINE.close)
def _generator_close(s: Session, args: Args, kwargs: Kwargs) -> Value:
    found = args[0].close(s)  # type: ignore[attr-defined]
    return NONE if found is None else s.throw(RuntimeError, "generator ignored GeneratorExit")
