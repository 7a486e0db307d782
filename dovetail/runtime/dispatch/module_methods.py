"""Methods of a module that a library calls where others call the module: they are compiled with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dovetail.runtime.dispatch.dispatcher import wrap_function

#: The names of a library's class, below its packages: the methods that it calls.
CALLED: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType({
    (package, "LightningModule"): ("training_step", "validation_step", "test_step", "predict_step")
    for package in ("lightning", "pytorch_lightning")
})  # fmt: skip


class CompiledMethod:
    """A method of a compiled class: that of the instance's original, compiled when it is first asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return getattr(super(owner, owner), self.name)
        made: dict[str, Callable[..., Any]] = instance._dovetail_methods
        if self.name not in made:
            method = getattr(instance._orig_mod, self.name)
            made[self.name] = wrap_function(method, instance._dovetail_dispatcher.compiler)
        return made[self.name]


def compiled_methods(cls: type) -> dict[str, CompiledMethod]:
    """What the body of the compiled class has for the methods that a library calls."""
    found = (CALLED.get((base.__module__.partition(".")[0], base.__name__), ()) for base in cls.__mro__)
    return {name: CompiledMethod(name) for names in found for name in names}
