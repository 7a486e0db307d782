"""A compiled `nn.Module`: an instance of a subclass of the model's class that shares the model's state.

Both objects have the same `__dict__`, so parameters, hooks, `training` and attributes set on either show on both,
and `state_dict` keys are those of the original. Only `__call__` differs, and what libraries call in its place. What
belongs to the compiler lies in slots, outside that dictionary, so that nothing of it is saved or listed with the model.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler

from dovetail.ir.guard import MISS
from dovetail.runtime.dispatch.dispatcher import Compiler, Dispatcher
from dovetail.runtime.dispatch.module_methods import compiled_methods

#: Rebuilds a compiled module from (the original module, what made it compile).
Rebuild = tuple[Callable[..., torch.nn.Module], tuple]


class CompiledModule:
    """Mixed into the subclass of the model's class."""

    __slots__ = ()

    _orig_mod: torch.nn.Module
    _dovetail_dispatcher: Dispatcher
    _dovetail_rebuild: Rebuild
    _dovetail_methods: dict[str, Callable[..., Any]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        dispatcher = self._dovetail_dispatcher
        try:
            if profiler._is_profiler_enabled:
                return dispatcher.profiled(args, kwargs)
            result = dispatcher.first(*args, **kwargs)
            if result is not MISS:
                return result
            return dispatcher.miss(args, kwargs)
        except Exception as error:
            dispatcher.cut(error)
            raise

    __call__._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile around us calls it as it is

    def __reduce_ex__(self, protocol: Any) -> tuple:
        rebuild, arguments = self._dovetail_rebuild
        return rebuild, (self._orig_mod, *arguments)

    def __copy__(self) -> torch.nn.Module:
        rebuild, arguments = self._dovetail_rebuild
        return rebuild(copy.copy(self._orig_mod), *arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        rebuild, arguments = self._dovetail_rebuild
        return rebuild(copy.deepcopy(self._orig_mod, memo), *arguments)

    def _get_name(self) -> str:
        return f"Compiled{type(self).__name__}"


_SLOTS = ("_orig_mod", "_dovetail_dispatcher", "_dovetail_rebuild", "_dovetail_methods")
_CLASSES: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()


def compiled_class(cls: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """The subclass of `cls` whose calls are compiled; the same one every time while it is in use."""
    found = _CLASSES.get(cls)
    made = found() if found is not None else None
    if made is None:
        body = {
            "__slots__": _SLOTS,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            **compiled_methods(cls),
        }
        meta: Any = type(cls)
        made = meta(cls.__name__, (CompiledModule, cls), body)
        _CLASSES[cls] = weakref.ref(made)
    return made


def disabled_module(
    module: torch.nn.Module, disabled: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> torch.nn.Module:
    """An instance of a subclass whose `__call__` is `disabled` of the class's own, with the same state."""
    cls = type(module)
    body = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    meta: Any = type(cls)
    made: Any = object.__new__(meta(cls.__name__, (cls,), {**body, "__call__": disabled(cls.__call__)}))
    object.__setattr__(made, "__dict__", module.__dict__)
    return made


def wrap_module(module: torch.nn.Module, compiler: Compiler, rebuild: Rebuild) -> torch.nn.Module:
    """The compiled counterpart of `module`."""
    cls = compiled_class(type(module))
    made = object.__new__(cls)
    object.__setattr__(made, "__dict__", module.__dict__)
    for name, value in zip(_SLOTS, (module, Dispatcher(module, compiler), rebuild, {})):
        object.__setattr__(made, name, value)
    return made
