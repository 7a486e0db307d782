"""functools and types: caches, dispatch by type, ordering, methods and functions as objects."""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
from typing import Any

from dovetail.capture.calling.cached_functions import ASKED, Changes, call_key
from dovetail.capture.outside.wrap import Called
from dovetail.capture.process import unguarded_facts
from dovetail.capture.protocols.attributes import NATIVE_ATTRIBUTES
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import MISSING, NONE, Args, Const, Kwargs, Session, Value, is_singleton
from dovetail.capture.values.callables import MethodValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.errors import NOWHERE, Unsupported
from dovetail.ir import asked
from dovetail.ir.guard import GuardKind

# ---------------------------------------------------------------- functions and methods as objects


known(types.MethodType)(lambda s, args, kwargs: MethodValue(args[0], args[1]))


@known(types.SimpleNamespace.__init__)
def _namespace(s: Session, args: Args, kwargs: Kwargs) -> Value:
    for name, value in kwargs.items():
        args[0].set_instance_attr(s, name, value)
    return NONE


@known(types.FunctionType.__get__)
def _bind(s: Session, args: Args, kwargs: Kwargs) -> Value:
    function, receiver = args[0], args[1]
    unbound = isinstance(receiver, Const) and receiver.value is None
    return function if unbound else MethodValue(function, receiver)


def _cell_contents(s: Session, cell: Any) -> Value:
    found = cell.load(s)
    return found if found is not None else s.throw(ValueError, "Cell is empty")


NATIVE_ATTRIBUTES[(types.CellType, "cell_contents")] = _cell_contents


@known(functools.update_wrapper)
def _update_wrapper(s: Session, args: Args, kwargs: Kwargs) -> Value:
    wrapper, wrapped = args[0], kwargs.get("wrapped") or args[1]
    if not isinstance(wrapper, ObjectValue) or wrapper.real is not MISSING:
        return s.unsupported("function-changed", f"{wrapper.describe()} is given another function's name")
    for name in functools.WRAPPER_ASSIGNMENTS:
        found = s.try_attr(wrapped, name)
        if found is not None:
            wrapper.set_instance_attr(s, name, found)
    if isinstance(wrapped, ObjectValue):
        for own in wrapped.attr_names(s):
            wrapper.set_instance_attr(s, own, wrapped.instance_attr(s, own))  # type: ignore[arg-type]
    wrapper.set_instance_attr(s, "__wrapped__", wrapped)
    return wrapper


# ---------------------------------------------------------------- caches

CACHE = type(functools.lru_cache(lambda: None))


@known(CACHE)
def _make_cache(s: Session, args: Args, kwargs: Kwargs) -> Value:
    made = ObjectValue(CACHE)
    made.attrs["__wrapped__"] = args[0]
    made.made_by = {}
    return made


@known(CACHE.__call__)
def _call_cached(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cache, *given = args
    real = getattr(cache, "real", MISSING)
    if real is not MISSING:
        if cache.source is not None:
            s.guard(cache.source, GuardKind.ID, real)
        return _inlined(s, cache, given, kwargs)
    assert isinstance(cache, ObjectValue)
    key = (tuple(s.hashable(a) for a in given), tuple((k, s.hashable(v)) for k, v in kwargs.items()))
    if key not in cache.made_by:
        cache.made_by[key] = cache.attrs["__wrapped__"].call(s, given, kwargs)
    return cache.made_by[key]


def _inlined(s: Session, cache: Value, args: Args, kwargs: Kwargs) -> Value:
    """A cache from outside: its function is inlined; but one that shows something (a warning given once) is called
    itself: its cache knows whether to."""
    later, known = s.effects.calls, s.cached.results
    before, key, places = len(later), call_key(s, cache, args, kwargs), s.break_candidates()
    if cache.native() in ASKED:
        _ask(s, cache)
    if key in known:
        return known[key]
    changes, variables = Changes(), dict(s.effects.globals)
    s.effects.watchers.append(changes)
    try:
        result = s.wrap(cache.native().__wrapped__, None).call(s, args, kwargs)
    finally:
        s.effects.watchers.remove(changes)
    changed = changes.found or s.effects.globals != variables
    settled = not any(isinstance(a, TensorValue) for a in (*args, *kwargs.values()))
    if len(later) > before and settled and is_singleton(result, None) and not changed:
        del later[before:]
        s.effects.call(cache, args, kwargs)
        return result
    if len(later) > before or changed:
        ASKED.add(cache.native())
        _ask(s, cache)
    s.cached.add(s, key, [*args, *kwargs.values()], result, (cache.native(), places))
    return result


def _ask(s: Session, cache: Value) -> None:
    name = getattr(cache.native(), "__name__", "a function")
    s.unsupported("cache-state", f"{name} has a cache, which has to say whether it runs and what it gives")


@known(CACHE.cache_info)
def _info(s: Session, args: Args, kwargs: Kwargs) -> Value:
    reason = "the code asks how often a cache was used, which calls of the graph do not show"
    raise Unsupported("cache-state", reason, stack=s.stack(), break_candidates=NOWHERE)


@known(CACHE.cache_clear)
def _clear(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cache = args[0]
    if getattr(cache, "real", MISSING) is not MISSING:
        s.unsupported("cache-state", "the code clears a cache")
    assert isinstance(cache, ObjectValue)
    cache.made_by.clear()
    return NONE


# ---------------------------------------------------------------- dispatch by type, ordering


@functools.singledispatch
def _example(value: Any) -> Any:
    return value


def _dispatch(s: Session, function: Value, cls: type) -> Value:
    return s.wrap(unguarded_facts.ask(s, asked.dispatched, function.native(), cls), None)


@known(_example.__code__)  # type: ignore[attr-defined]
def _single_dispatch(s: Session, args: Args, kwargs: Kwargs) -> Value:
    function, *given = args
    if not given:
        s.throw(TypeError, f"{function.native().__name__} requires at least 1 positional argument")
    return _dispatch(s, function, given[0].type).call(s, given, kwargs)


@known(functools.singledispatchmethod.__get__)
def _dispatch_method(s: Session, args: Args, kwargs: Kwargs) -> Value:
    made = ObjectValue(DispatchMethod)
    made.attrs = {"table": s.get_attr(args[0], "dispatcher"), "receiver": args[1]}
    return made


class DispatchMethod:
    """A bound single-dispatch method."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


@known(DispatchMethod.__call__)
def _call_dispatch_method(s: Session, args: Args, kwargs: Kwargs) -> Value:
    made, *given = args
    chosen = _dispatch(s, made.attrs["table"], given[0].type)  # type: ignore[attr-defined]
    bound = s.bind_descriptor(made.attrs["receiver"], chosen.native(), "")  # type: ignore[attr-defined]
    return bound.call(s, given, kwargs)


class Key:
    """What `cmp_to_key` makes of a value."""

    def __init__(self, value: Any, compare: Any) -> None:
        self.value, self.compare = value, compare

    def __lt__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) < 0

    def __gt__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) > 0

    def __eq__(self, other: object) -> Any:
        return self.compare(self.value, other.value) == 0  # type: ignore[attr-defined]

    def __le__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) <= 0

    def __ge__(self, other: Any) -> Any:
        return self.compare(self.value, other.value) >= 0

    __hash__ = None  # type: ignore[assignment]


def key_of(compare: Any) -> Any:
    return lambda value: Key(value, compare)


known(functools.cmp_to_key)(lambda s, args, kwargs: s.call(s.wrap(key_of, None), *args, *kwargs.values()))


# ---------------------------------------------------------------- classes that library functions make


MAKE_DATACLASS: Any = dataclasses._process_class  # type: ignore[attr-defined]


@known(MAKE_DATACLASS)
def _dataclass(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """What `dataclass`, with options or without, ends at."""
    cls, *options = (a.native() for a in args)
    if cls not in s.classes.made:
        s.unsupported("class-changed", f"dataclass changes {cls.__name__} from outside")
    try:
        made = MAKE_DATACLASS(cls, *options)
    except (TypeError, ValueError) as error:
        s.throw_native(error)
    s.classes.forget()
    if made is cls:
        return args[0]
    s.classes.made[made] = s.classes.made[cls]  # with slots it is another class
    if cls in s.classes.cells:
        s.classes.cells[made] = s.classes.cells[cls]
        s.classes.cells[made].contents = s.wrap(made, None)
    return s.wrap(made, None)


# ---------------------------------------------------------------- identity of the thread

known(threading.get_ident)(
    lambda s, args, kwargs: s.wrap(threading.get_ident(), Called(s.bind(threading.get_ident, "get_ident"), "()"))
)
