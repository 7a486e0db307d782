"""Classes that traced code makes or changes.

A class statement runs as a traced frame. The class itself is a real one, private to the trace, so that Python's own
rules (method resolution, slots, metaclasses of the library, `dataclass`) apply to it; what it holds are stand-ins:
real functions whose code and cells are those of the traced ones, and placeholders for values that only tracing knows.
`Session.cache` leads from a stand-in back to its value. Stores to classes from outside lie in an overlay
(`Session.class_stores`) that `Session.static` looks at first, and are replayed.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from dovetail.bytecode import decode
from dovetail.capture.interpreter.frame import Frame
from dovetail.capture.process.trusted_code import trusted
from dovetail.capture.protocols.class_lookup import class_set_attr, stand_in
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.base import NONE, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.callables import CellValue, ClassValue, FunctionValue, SuperValue
from dovetail.capture.values.containers import DictValue, TupleValue
from dovetail.capture.values.descriptors import quiet_class

# ---------------------------------------------------------------- class statements


@known(builtins.__build_class__)
def _build_class(s: Session, args: Args, kwargs: Kwargs) -> Value:
    body, name, *given = args
    bases = _resolved(s, given)
    kwargs = dict(kwargs)
    meta = kwargs.pop("metaclass", None)
    natives = tuple(b.native() for b in bases)
    cls = _metaclass(s, type if meta is None else meta.native(), natives)
    table: dict[str, Value] = {}
    cell = _run_body(s, body, table)
    table.pop("__classcell__", None)
    if tuple(given) != tuple(bases):
        table["__orig_bases__"] = TupleValue(given)
    made = _construct(s, cls, name.native(), bases, table, kwargs)
    if isinstance(cell, CellValue) and isinstance(made, ClassValue):
        cell.contents = made
        s.classes.cells[made.real] = cell
    return made


def _resolved(s: Session, given: Args) -> Args:
    """The bases after `__mro_entries__`."""
    out: Args = []
    natives = tuple(v.native() for v in given)
    for value, base in zip(given, natives):
        if isinstance(base, type) or not hasattr(base, "__mro_entries__"):
            out.append(value)
        else:
            out += [s.wrap(b, None) for b in base.__mro_entries__(natives)]
    return out


def _metaclass(s: Session, meta: Any, bases: tuple) -> type:
    try:
        return types.prepare_class("_", bases, {"metaclass": meta})[0]
    except TypeError as error:
        return s.throw_native(error)


def _run_body(s: Session, body: Value, table: dict[str, Value]) -> Value:
    assert isinstance(body, FunctionValue)
    scope = s.scope(body.globals, body.globals.get("__name__"))
    frame = Frame(s, decode(body.code), scope, body)
    frame.names_table = table
    for name, cell in zip(body.code.co_freevars, body.closure):
        frame.locals[name] = cell
    return frame.run_call()  # the cell `__class__`, if methods use it


def _construct(s: Session, meta: type, name: str, bases: Args, table: dict[str, Value], kwargs: Kwargs) -> Value:
    if meta is type or not _is_users(s, meta):
        return create(s, meta, name, bases, table, kwargs)
    return s.call(ClassValue(meta), Const(name), TupleValue(bases), DictValue.named(table), **kwargs)


def _is_users(s: Session, meta: type) -> bool:
    return any(not trusted(base.__module__) for base in meta.__mro__)


def create(s: Session, meta: type, name: str, bases: Args, table: dict[str, Value], kwargs: Kwargs) -> Value:
    """The class, its `__set_name__` and `__init_subclass__` hooks run as traced code."""
    natives: tuple = tuple(b.native() for b in bases)
    hook = next((b for base in natives for b in base.__mro__ if "__init_subclass__" in b.__dict__), object)
    hooked = hook is not object and not trusted(hook.__module__)
    space = meta.__prepare__(name, natives) if not _is_users(s, meta) else {}
    for key, value in table.items():
        space[key] = stand_in(s, value, key)
    native_kwargs = {} if hooked else {k: v.native() for k, v in kwargs.items()}
    try:
        if hooked:
            made = quiet_class(meta, name, natives, dict(space))
        elif _is_users(s, meta):
            made = type.__new__(meta, name, natives, dict(space))
        else:
            made = meta(name, natives, space, **native_kwargs)
    except (TypeError, ValueError, AttributeError) as error:
        return s.throw_native(error)
    s.classes.made[made] = (meta, name)
    # Python itself wraps some functions of a class, such as __new__, around their stand-ins
    s.classes.private.update(id(v) for v in made.__dict__.values() if type(v) in (staticmethod, classmethod))
    s.classes.forget()
    cls = ClassValue(made)
    s.objects.by_identity[id(made)] = cls
    s.objects.keep.append(made)
    for key, value in table.items():
        method = s.static(value.cls, "__set_name__")
        if type(method) is types.FunctionType:
            s.call_method(value, "__set_name__", cls, Const(key))
    if hooked:
        s.get_attr(SuperValue(made, cls, made), "__init_subclass__").call(s, [], kwargs)
    return cls


@known(type.__new__)
def _type_new(s: Session, args: Args, kwargs: Kwargs) -> Value:
    meta, name, bases, space = args
    table = {k.native(): v for k, v in space.pairs(s)}  # type: ignore[attr-defined]
    return create(s, meta.native(), name.native(), list(bases.all(s)), table, kwargs)  # type: ignore[attr-defined]


known(type.__init__)(lambda s, args, kwargs: NONE)


@known(type.__call__)
def _type_call(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0]
    assert isinstance(cls, ClassValue)
    return s.instantiate(cls, args[1:], kwargs)


def make_class(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`type(name, bases, namespace)`."""
    name, bases, space = args
    given = list(bases.all(s))  # type: ignore[attr-defined]
    table = {k.native(): v for k, v in space.pairs(s)}  # type: ignore[attr-defined]
    if "__module__" not in table:
        table["__module__"] = Const(s.frames[-1].scope.table.get("__name__"))
    meta = _metaclass(s, type, tuple(b.native() for b in given))
    return _construct(s, meta, name.native(), given, table, kwargs)


@known(type.__setattr__)
def _type_setattr(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls, name, new = args
    assert isinstance(cls, ClassValue)
    class_set_attr(s, cls, name.native(), new)
    return NONE


# ---------------------------------------------------------------- descriptors made inside


def _descriptor(cls: Any) -> Any:
    def make(s: Session, args: Args, kwargs: Kwargs) -> Value:
        given = [stand_in(s, a) for a in args]
        return _private(s, cls(*given, **{k: stand_in(s, v) for k, v in kwargs.items()}))

    return make


def _changed(name: str) -> Any:
    return lambda s, args, kwargs: _private(s, getattr(args[0].native(), name)(stand_in(s, args[1])))


def _private(s: Session, made: Any) -> Value:
    s.classes.private.add(id(made))
    return s.wrap(made, None)


for _cls in (property, staticmethod, classmethod):
    known(_cls)(_descriptor(_cls))
for _name in ("getter", "setter", "deleter"):
    known(getattr(property, _name))(_changed(_name))
