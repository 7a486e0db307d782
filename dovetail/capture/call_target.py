"""A callable taken apart, and the call of it traced: its parameters become values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
import torch.fx
from torch.nn.modules import module as torch_module

from dovetail.capture.calling.calls import listed
from dovetail.capture.calling.nn_modules import GLOBAL_HOOKS, HOOKS, PLAIN_CALL
from dovetail.capture.outside.wrap import function_parts
from dovetail.capture.process.trusted_code import foreign
from dovetail.capture.values.base import MISSING, Session, Value
from dovetail.capture.values.callables import FunctionValue
from dovetail.capture.values.containers import DictValue, TupleValue
from dovetail.ir import marks
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Arg, Cell

RESERVED = frozenset(("graph", "G", "F", "K", "M", "P", "object", "dict", "list", "tuple"))


@dataclass
class CallTarget:
    """A callable taken apart: what runs, what is bound, whose parameters the residual has.

    `function` is None when the parameters are `*args, **kwargs` and `root` is called with them.
    """

    root: Any
    function: FunctionType | None
    receiver: Any = None
    has_receiver: bool = False


def take_apart(fn: Any) -> CallTarget:
    """The plain function behind a function, method or callable object, and its receiver.

    What has a row in the tables is called as it would be inside a program: `compile(torch.vmap(f))`.
    """
    found = _plain_function(fn)
    return CallTarget(fn, None) if found.function is not None and listed(found.function) else found


def _plain_function(fn: Any) -> CallTarget:
    if isinstance(fn, FunctionType):
        return CallTarget(fn, fn)
    if isinstance(fn, MethodType) and isinstance(fn.__func__, FunctionType):
        return CallTarget(fn, fn.__func__, fn.__self__, True)
    if isinstance(fn, torch.nn.Module):
        forward = _forward(fn)
        return CallTarget(fn, forward, fn, True) if forward is not None else CallTarget(fn, None)
    call = inspect.getattr_static(type(fn), "__call__", None)
    if isinstance(call, FunctionType) and not isinstance(fn, functools.partial):
        return CallTarget(fn, call, fn, True)
    return CallTarget(fn, None)


CALLED = ("forward", "__call__", "_call_impl")  # what a call of a module leads to


def _forward(module: torch.nn.Module) -> FunctionType | None:
    """`forward`, when calling the module does nothing else, and its code is to be traced."""
    hooked = any(getattr(module, h) for h in HOOKS) or any(getattr(torch_module, h) for h in GLOBAL_HOOKS)
    forward = inspect.getattr_static(type(module), "forward")
    own = "forward" in module.__dict__
    called = type(module).__call__ is PLAIN_CALL and not foreign(type(module)._call_impl)
    plain = called and not hooked and not own and isinstance(forward, FunctionType)
    return forward if plain and not marks.runs_plain(forward) else None


def underlying(fn: Any) -> Any:
    """The Python function whose globals and cells the callable uses, if there is one."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    found = inspect.getattr_static(type(fn), "forward") if isinstance(fn, torch.nn.Module) else fn
    return getattr(found, "__func__", found)


def trace_call(s: Session, target: CallTarget, args: tuple, kwargs: Mapping[str, Any]) -> Value:
    function = target.function
    if function is None or not RESERVED.isdisjoint(function.__code__.co_varnames[: _count(function)]):
        star = s.wrap(tuple(args), Arg("args"))
        double = s.wrap(dict(kwargs), Arg("kwargs"))
        assert isinstance(star, TupleValue) and isinstance(double, DictValue)
        named = {k.native(): v for k, v in double.pairs(s)}
        double.real, double.source = MISSING, None  # each call makes a new one
        root = s.wrap(target.root, s.bind(target.root, "self"))
        s.residual.header = "*args, **kwargs"
        return s.call_root(root, star.all(s), named)
    values, s.residual.header = _bind(s, target, function, args, kwargs)
    if target.root is target.receiver:
        for name in CALLED if isinstance(target.root, torch.nn.Module) else ("__call__",):
            s.static(type(target.root), name)
    if isinstance(target.root, torch.nn.Module):
        first: Any = values[next(iter(values))]
        _no_hooks(s, first.at(s, 0) if target.has_receiver and gathers(function) else first)
    return _run(s, function, values)


def _count(function: FunctionType) -> int:
    code = function.__code__
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def _no_hooks(s: Session, module: Value) -> None:
    for hook in HOOKS:
        s.guard(module.source.attr(hook), GuardKind.LENGTH, 0)  # type: ignore[union-attr]


def _bind(
    s: Session, target: CallTarget, function: FunctionType, args: tuple, kwargs: Mapping[str, Any]
) -> tuple[dict[str, Value], str]:
    """Parameters → values, and the text of the parameter list (without the bound receiver)."""
    signature = inspect.Signature.from_callable(function, follow_wrapped=False)
    full = ((target.receiver, *args) if target.has_receiver else args)
    bound = signature.bind(*full, **kwargs)
    bound.apply_defaults()
    parameters = list(signature.parameters.values())
    gathered = target.has_receiver and gathers(function)
    values: dict[str, Value] = {}
    for position, parameter in enumerate(parameters):
        name, real = parameter.name, bound.arguments[parameter.name]
        if position == 0 and target.has_receiver:
            values[name] = _receiver(s, real, Arg(name)) if gathered else s.wrap(real, s.bind(real, "self"))
        else:
            values[name] = s.wrap(real, Arg(name))
    return values, _header(s, parameters[1:] if target.has_receiver and not gathered else parameters)


def gathers(function: FunctionType) -> bool:
    """Is the first argument one of `*args`?"""
    return not function.__code__.co_argcount


def _receiver(s: Session, real: tuple, source: Arg) -> Value:
    """`*args` of a method: the receiver, which the caller does not pass, and what it does."""
    given = s.wrap(real[1:], source)
    assert isinstance(given, TupleValue)
    return TupleValue([s.wrap(real[0], s.bind(real[0], "self")), *given.all(s)])


def _header(s: Session, parameters: list[inspect.Parameter]) -> str:
    plain = []
    for p in parameters:
        default = p.default
        if default is not inspect.Parameter.empty:
            name = f"_default_{p.name}"
            s.residual.names[name] = default
            default = _Text(name)
        plain.append(p.replace(annotation=inspect.Parameter.empty, default=default))
    return str(inspect.Signature(plain))[1:-1]


class _Text:
    """A default whose repr is a name of the residual's namespace."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _run(s: Session, function: FunctionType, values: dict[str, Value]) -> Value:
    code = function.__code__
    value = FunctionValue(code, function.__globals__, function.__name__, function, None)
    s.objects.by_identity[id(function)] = value
    function_parts(s, value)
    for index, (cell, name) in enumerate(zip(value.closure, code.co_freevars)):
        cell.source = Cell(index, name)
    value.parts_loaded = True
    return s.run_frame(value, values)
