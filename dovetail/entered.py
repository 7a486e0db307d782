"""User functions that compiled code calls natively, at a graph break, and that are compiled on entry."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from dovetail.ir import marks
from dovetail.ir.library import of_library

PLAIN_CALL = torch.nn.Module._wrapped_call_impl  # `__call__`, unless the program has replaced that
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # a call runs none of their code


class Entered:
    """Gives what to call instead of a callable: the same, compiled, as far as it is a user's Python function.

    `compiled(fn)` makes the compiled counterpart of a function; each is made once, and functions that do the same
    share one. Receivers are arguments.
    """

    def __init__(self, compiled: Callable[[FunctionType], Any]) -> None:
        self.compiled = compiled
        self.made: dict[Any, Any] = {}

    def __call__(self, fn: Any) -> Any:
        reader = READERS.get(type(fn))
        if reader is not None:
            return reader(self, fn)
        return self._module(fn) if isinstance(fn, torch.nn.Module) else self._instance(fn)

    def _function(self, fn: FunctionType, anywhere: bool = False) -> Any:
        """`anywhere`: also a function of PyTorch's own."""
        library = of_library(fn.__module__)
        if library and not anywhere or fn.__code__.co_flags & SUSPENDED:
            return fn
        if marks.of_function(fn) is not None or marks.original_of(fn) is not fn:
            return fn
        if "<locals>" in fn.__qualname__ and not all(type(part) in CONSTANTS for part in _parts(fn)):
            return fn  # made anew at each call, as far as one can tell: compiling each would never pay
        key = _key(fn)
        if key not in self.made:
            self.made[key] = self.compiled(fn)
        return self.made[key]

    def _method(self, fn: MethodType) -> Any:
        function = self(fn.__func__)
        return fn if function is fn.__func__ else MethodType(function, fn.__self__)

    def _partial(self, fn: functools.partial[Any]) -> Any:
        function = self(fn.func)
        return fn if function is fn.func else functools.partial(function, *fn.args, **fn.keywords)

    def _module(self, module: torch.nn.Module) -> Any:
        """Its forward, where calling the module does nothing else."""
        hooked = any(vars(module)[name] for name in HOOKS) or torch.nn.modules.module._has_any_global_hook()
        forward = inspect.getattr_static(type(module), "forward", None)
        if hooked or "forward" in vars(module) or type(module).__call__ is not PLAIN_CALL:
            return module
        if type(forward) is not FunctionType:
            return module
        function = self._function(forward, anywhere=True)
        return module if function is forward else MethodType(function, module)

    def _instance(self, obj: Any) -> Any:
        call = inspect.getattr_static(type(obj), "__call__", None)
        if type(call) is not FunctionType:
            return obj
        function = self._function(call)
        return obj if function is call else MethodType(function, obj)


READERS: dict[type, Callable[[Entered, Any], Any]] = {
    FunctionType: Entered._function,
    MethodType: Entered._method,
    functools.partial: Entered._partial,
}


CONSTANTS = (type(None), bool, int, float, complex, str, bytes)


def _parts(fn: FunctionType) -> tuple[Any, ...]:
    return *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values(), *(fn.__closure__ or ())


def _key(fn: FunctionType) -> Any:
    """Functions with equal keys do the same."""
    return fn.__code__, id(fn.__globals__), tuple(map(id, _parts(fn)))
