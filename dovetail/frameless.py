"""Functions that run as plain Python while what they call is compiled: `disable(recursive=False)`, `debug_function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from dovetail.bytecode.callees import with_wrapped_calls
from dovetail.ir import marks
from dovetail.ir.library import of_library

PLAIN_CALL = torch.nn.Module._wrapped_call_impl  # `__call__`, unless the program has replaced that
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
OTHERS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Frameless:
    """What becomes of callables met in functions that are not compiled themselves.

    `compiled(fn)` makes the compiled counterpart of a function or module; each is made once.
    """

    def __init__(self, compiled: Callable[[Any], Any], wanted: Callable[[str], bool] = lambda name: True) -> None:
        self.compiled, self.wanted = compiled, wanted
        self.made: dict[Any, Any] = {}

    def plain(self, fn: Any) -> Any:
        """`fn`, itself not compiled, with its calls going through `called`."""
        if isinstance(fn, torch.nn.Module):
            return self._plain_module(fn)
        if isinstance(fn, MethodType):
            return MethodType(self.plain(fn.__func__), fn.__self__)
        if not isinstance(fn, FunctionType) or fn.__code__.co_flags & OTHERS:
            return fn
        key = ("plain", self._key(fn))
        if key not in self.made:
            self.made[key] = with_wrapped_calls(fn, self.called), fn
        return self.made[key][0]

    def _plain_module(self, module: torch.nn.Module) -> Any:
        """Its forward, where calling the module does nothing else."""
        hooks = any(vars(module)[name] for name in HOOKS)
        forward = inspect.getattr_static(type(module), "forward")
        if hooks or "forward" in vars(module) or type(module).__call__ is not PLAIN_CALL:
            return module
        return MethodType(self.plain(forward), module)

    def called(self, fn: Any) -> Any:
        """What a plain function calls where it says `fn`."""
        if isinstance(fn, torch.nn.Module):
            return self._module(fn)
        if isinstance(fn, MethodType):
            function = self.called(fn.__func__)
            return fn if function is fn.__func__ else MethodType(function, fn.__self__)
        if not isinstance(fn, FunctionType) or of_library(fn.__module__):
            return fn
        original = marks.original_of(fn)
        found = marks.of_function(original)
        if found is not None:
            return self.plain(frame_of(original)) if found.mark is marks.Mark.DISABLE and not found.detail[1] else fn
        if original.__code__.co_flags & OTHERS or original.__closure__ and "<locals>" in original.__qualname__:
            return fn  # made anew at each call, as far as one can tell: compiling each would never pay
        return self._function(original)

    def _function(self, fn: FunctionType) -> Any:
        if not self.wanted(fn.__name__):
            return self.plain(fn)
        key = self._key(fn)
        if key not in self.made:
            self.made[key] = self.compiled(fn)
        return self.made[key]

    def _module(self, module: torch.nn.Module) -> Any:
        if not self.wanted("forward"):
            return self._plain_module(module)
        if id(module) not in self.made:
            self.made[id(module)] = self.compiled(module)
        return self.made[id(module)]

    def _key(self, fn: FunctionType) -> Any:
        """Functions with equal keys do the same."""
        parts = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values(), *(fn.__closure__ or ()))
        return fn.__code__, id(fn.__globals__), tuple(map(id, parts))


def frame_of(fn: Any) -> Any:
    """The function that a `disable` wrapper calls."""
    return vars(fn).get("_torchdynamo_orig_callable") or getattr(fn, "__wrapped__", fn)
