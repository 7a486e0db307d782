"""What takes the places of callables in code that is not compiled itself.

    CompileOnEntry    what a graph break calls natively: compiled, as far as it is a user's Python function
    EagerFrame        `disable(recursive=False)`, `debug_function`: functions stay plain, what they call is compiled
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from dovetail.ir import marks
from dovetail.ir.callers import of_library
from dovetail.loading import loaded

PLAIN_CALL = torch.nn.Module._wrapped_call_impl  # `__call__`, unless the program has replaced that
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # a call runs none of their code
CONSTANTS = (type(None), bool, int, float, complex, str, bytes)


class Callees:
    """Called with a callable, gives what to call instead.

    `compiled(fn)` makes the compiled counterpart of a function or module; each is made once, and functions that do the
    same share one. Receivers are arguments.
    """

    def __init__(self, compiled: Callable[[Any], Any]) -> None:
        self.compiled = compiled
        self.made: dict[Any, Any] = {}

    def __call__(self, fn: Any) -> Any:
        if isinstance(fn, torch.nn.Module):
            return self.module(fn)
        if isinstance(fn, MethodType):
            function = self(fn.__func__)
            return fn if function is fn.__func__ else MethodType(function, fn.__self__)
        return self.function(fn) if isinstance(fn, FunctionType) else self.other(fn)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def module(self, module: torch.nn.Module) -> Any:
        raise NotImplementedError

    def function(self, fn: FunctionType) -> Any:
        raise NotImplementedError

    def other(self, fn: Any) -> Any:
        return fn


class CompileOnEntry(Callees):
    def function(self, fn: FunctionType, anywhere: bool = False) -> Any:
        """`anywhere`: also a function of PyTorch's own."""
        if of_library(fn.__module__) and not anywhere or fn.__code__.co_flags & SUSPENDED:
            return fn
        if marks.of_function(fn) is not None or marks.original_of(fn) is not fn:
            return fn
        if "<locals>" in fn.__qualname__ and not all(type(part) in CONSTANTS for part in _parts(fn)):
            return fn  # made anew at each call, as far as one can tell: compiling each would never pay
        return self.once(_key(fn), lambda: self.compiled(fn))

    def module(self, module: torch.nn.Module) -> Any:
        forward = None if torch.nn.modules.module._has_any_global_hook() else _forward_of(module)
        return self._bound(module, forward, anywhere=True)

    def other(self, fn: Any) -> Any:
        if type(fn) is functools.partial:
            function = self(fn.func)
            return fn if function is fn.func else functools.partial(function, *fn.args, **fn.keywords)
        return self._bound(fn, inspect.getattr_static(type(fn), "__call__", None))

    def _bound(self, obj: Any, method: Any, anywhere: bool = False) -> Any:
        """What calls the method that a call of the object runs."""
        function = self.function(method, anywhere) if type(method) is FunctionType else method
        return obj if function is method else MethodType(function, obj)


class EagerFrame(Callees):
    """`wanted` says of which names functions are compiled; others are plain too."""

    def __init__(self, compiled: Callable[[Any], Any], wanted: Callable[[str], bool] = lambda name: True) -> None:
        super().__init__(compiled)
        self.wanted = wanted

    def plain(self, fn: Any) -> Any:
        """`fn`, itself not compiled, with what it calls going through this object."""
        if isinstance(fn, torch.nn.Module):
            forward = _forward_of(fn)
            return fn if forward is None else MethodType(self.plain(forward), fn)
        if isinstance(fn, MethodType):
            return MethodType(self.plain(fn.__func__), fn.__self__)
        if not isinstance(fn, FunctionType) or fn.__code__.co_flags & SUSPENDED:
            return fn
        # It assembles bytecode, which takes a library that few programs need.
        wrapped = loaded("dovetail.bytecode.callees").with_wrapped_calls
        return self.once(("plain", _key(fn)), lambda: (wrapped(fn, self), fn))[0]

    def module(self, module: torch.nn.Module) -> Any:
        if not self.wanted("forward"):
            return self.plain(module)
        return self.once(id(module), lambda: self.compiled(module))

    def function(self, fn: FunctionType) -> Any:
        if of_library(fn.__module__):
            return self.plain(fn) if fn.__module__ in marks.NAMED_MODULES and marks.runs_plain(fn) else fn
        original = marks.original_of(fn)
        found = marks.of_function(original)
        if found is not None:
            return self.plain(frame_of(original)) if found.mark is marks.Mark.DISABLE and not found.detail[1] else fn
        if original.__code__.co_flags & SUSPENDED or original.__closure__ and "<locals>" in original.__qualname__:
            return fn  # made anew at each call, as far as one can tell: compiling each would never pay
        if not self.wanted(original.__name__):
            return self.plain(original)
        return self.once(_key(original), lambda: self.compiled(original))


def frame_of(fn: Any) -> Any:
    """The function that a `disable` wrapper calls."""
    return vars(fn).get("_torchdynamo_orig_callable") or getattr(fn, "__wrapped__", fn)


def _forward_of(module: torch.nn.Module) -> Any:
    """Its class's forward, where calling the module does nothing else; else None."""
    hooked = any(vars(module)[name] for name in HOOKS)
    if hooked or "forward" in vars(module) or type(module).__call__ is not PLAIN_CALL:
        return None
    return inspect.getattr_static(type(module), "forward", None)


def _parts(fn: FunctionType) -> tuple:
    return *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values(), *(fn.__closure__ or ())


def _key(fn: FunctionType) -> Any:
    """Functions with equal keys do the same."""
    return fn.__code__, id(fn.__globals__), tuple(map(id, _parts(fn)))
