"""`__torch_function__`: tensor subclasses, other objects that define it, and torch function modes.

A subclass tensor enters the graph as the plain tensor that shares its memory (`x.as_subclass(torch.Tensor)`), so that
operators in the graph do nothing but compute. What the class or a mode adds is traced here like any user code, at the
places where PyTorch would call it; values keep the class that they have in the program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.overrides

from dovetail.capture.values.base import MISSING, NOT_IMPLEMENTED, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.callables import ClassValue, FunctionValue
from dovetail.capture.values.containers import DictValue, SequenceValue, TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import DISABLED, PLAIN, TensorValue, as_tensor
from dovetail.ir.devices import HOST

DEFAULT = torch.Tensor.__dict__["__torch_function__"].__func__


class Overrides:
    """What is in force at this point of the traced program: its own modes, innermost last, and what is switched off."""

    __slots__ = ("modes", "subclasses_off", "all_off")

    def __init__(self) -> None:
        self.modes: list[Value] = []
        self.subclasses_off = 0
        self.all_off = 0

    def changed(self) -> bool:
        """Is what `__torch_function__` may see another thing than before the program?"""
        return bool(self.modes or self.subclasses_off or self.all_off)

    @contextmanager
    def without_subclasses(self) -> Iterator[None]:
        """Inside, no tensor class's `__torch_function__` is asked."""
        self.subclasses_off += 1
        try:
            yield
        finally:
            self.subclasses_off -= 1

    @contextmanager
    def without_innermost(self) -> Iterator[Value]:
        """Inside, the innermost mode is off: it handles a call."""
        mode = self.modes.pop()
        try:
            yield mode
        finally:
            self.modes.append(mode)


def implementation(s: Session, value: Value) -> Any:
    """The class's `__torch_function__` as it stands in the class, None if there is none or it is switched off."""
    if isinstance(value, TensorValue) and value.cls in PLAIN or not isinstance(value, ObjectValue):
        return None
    if isinstance(value, TensorValue) and value.fake.layout is torch.jagged:
        return None  # PyTorch's own, which runs as part of the function
    if isinstance(value, FunctionValue):
        return None
    found = s.static(value.cls, "__torch_function__")
    return None if found is MISSING or found is DISABLED else found


def overriders(s: Session, values: Iterable[Value]) -> list[Value]:
    """Arguments whose classes override torch functions: one of each class, subclasses before their bases."""
    found: list[Value] = []
    if s.overrides.subclasses_off or s.overrides.all_off:
        return found
    for value in _flat(s, values):
        if implementation(s, value) is None or any(v.cls is value.cls for v in found):
            continue
        place = next((k for k, v in enumerate(found) if issubclass(value.cls, v.cls)), len(found))
        found.insert(place, value)
    return found


def _flat(s: Session, values: Iterable[Value]) -> Iterator[Value]:
    for value in values:
        if type(value) is Const or isinstance(value, TensorValue) and value.cls in PLAIN:
            continue
        if isinstance(value, SequenceValue):
            yield from value.all(s)
        else:
            yield value


def active(s: Session, values: Iterable[Value]) -> bool:
    """What `has_torch_function` answers."""
    modes = s.overrides.modes and not s.overrides.all_off
    return bool(modes) or bool(overriders(s, values))


def overridden(s: Session, function: Any, args: Args, kwargs: Kwargs, native: Callable[[], Value]) -> Value:
    """Call the implementations in PyTorch's order: the innermost mode, then each class. `native` is the function."""
    found = overriders(s, (*args, *kwargs.values()))
    reported, args = public_call(function, args)
    public = s.wrap(reported, None)
    types = TupleValue([ClassValue(v.cls) for v in found])
    if s.overrides.modes and not s.overrides.all_off:
        with s.overrides.without_innermost() as mode:
            method = s.get_attr(mode, "__torch_function__")
            result = s.call(method, public, types, TupleValue(args), DictValue.named(kwargs))
        if result is not NOT_IMPLEMENTED:
            return result
    for value in found:
        implementing = implementation(s, value)
        if getattr(implementing, "__func__", None) is DEFAULT:
            result = _default(s, value.cls, public, types, args, native)
        else:
            receiver = s.get_attr(value, "__torch_function__")
            result = s.call(receiver, public, types, TupleValue(args), DictValue.named(kwargs))
        if result is not NOT_IMPLEMENTED:
            return result
    name = getattr(function, "__name__", str(function))
    return s.throw(TypeError, f"no implementation found for '{name}' on types that implement __torch_function__")


def _default(s: Session, cls: type, function: Value, types: Value, args: Args, native: Callable[[], Value]) -> Value:
    """`torch.Tensor.__torch_function__`: run the function on plain tensors; tensors among its results get the class."""
    if not all(issubclass(cls, t.native()) for t in s.unpack(types)):
        return NOT_IMPLEMENTED
    last = next(iter(reversed(s.graph.nodes)), None)
    with s.overrides.without_subclasses():
        result = native()
    real = getattr(function, "real", None)
    return result if real in torch.overrides.get_default_nowrap_functions() else converted(s, result, cls, last)


def default_implementation(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`super().__torch_function__(func, types, args, kwargs)`."""
    names = ("cls", "func", "types", "args", "kwargs")
    given = dict(zip(names, args)) | kwargs
    function, keywords = given["func"], given.get("kwargs")
    positional = s.unpack(given["args"]) if "args" in given else []
    named = {k.native(): v for k, v in keywords.pairs(s)} if isinstance(keywords, DictValue) else {}
    cls = given["cls"].native()
    return _default(s, cls, function, given["types"], positional, lambda: s.call(function, *positional, **named))


def converted(s: Session, result: Value, cls: type, last: Any) -> Value:
    """The result with its tensors as `cls`; nodes up to `last` existed before, so their values stay what they are."""
    if cls is torch.Tensor:
        return result
    if isinstance(result, TensorValue):
        if issubclass(result.cls, cls):
            return result
        fresh = result.source is None and (last is None or last < result.node)
        if fresh and result.cls is torch.Tensor:
            result.cls = cls
            return result
        return as_class(s, result, cls)
    if isinstance(result, SequenceValue) and result.cls in (tuple, list):
        kind = type(result)
        return kind([converted(s, item, cls, last) for item in result.all(s)], result.cls)
    return result


def as_class(s: Session, value: TensorValue, cls: type) -> Value:
    """`value.as_subclass(cls)`: another tensor object with the same memory."""
    with s.overrides.without_subclasses():
        made = as_tensor(s.torch_call(torch.ops.aten.alias.default, [value], {}))
    made.cls = cls
    return made


# ---------------------------------------------------------------- which function the implementation is told


class _Probe(torch.Tensor):
    """Notes which function PyTorch reports for an operator."""

    seen: Any = None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen = function
        return NotImplemented if function is None else torch.zeros((), device=HOST)


def _reported(function: Callable[..., Any], *args: Any) -> Any:
    _Probe.seen = None
    with suppress(TypeError, RuntimeError):  # the answer is no use to some; what was asked for is noted already
        function(*args)
    return _Probe.seen


def _reports() -> dict[tuple[Any, bool], Any]:
    probe, other = torch.zeros(1, device=HOST).as_subclass(_Probe), 1
    found: dict[tuple[Any, bool], Any] = {}
    names = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift lt le eq ne gt ge"
    in_place = "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
    for name in (*names.split(), *in_place.split()):
        function = getattr(operator, name)
        found[function, True] = _reported(function, probe, other)
        found[function, False] = _reported(function, other, probe)
    for name in ("neg", "pos", "invert", "abs"):
        found[getattr(operator, name), True] = _reported(getattr(operator, name), probe)
    found[operator.getitem, True] = torch.Tensor.__getitem__
    found[operator.setitem, True] = torch.Tensor.__setitem__
    return found


REPORTS = _reports()


def public_call(function: Any, args: Args) -> tuple[Any, list[Value]]:
    """What PyTorch passes as `func` and `args`: for an operator, the method behind it, and its tensor first."""
    leading = bool(args) and isinstance(args[0], ObjectValue)
    try:
        reported = REPORTS.get((function, leading))
    except TypeError:
        reported = None
    if reported is None:
        return function, args
    return reported, args if leading else args[::-1]


METHOD_ALIASES = {
    name: (REPORTS.get((getattr(operator, plain), True)) or getattr(torch.Tensor, name))
    for name, plain in {
        "__add__": "add", "__radd__": "add", "__iadd__": "iadd", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul",
        "__truediv__": "truediv", "__matmul__": "matmul", "__mod__": "mod", "__neg__": "neg", "__abs__": "abs",
        "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__pow__": "pow",
    }.items()
}  # fmt: skip


def method_function(name: str) -> Any:
    """The function that `__torch_function__` sees for the method."""
    return METHOD_ALIASES.get(name) or getattr(torch.Tensor, name)
