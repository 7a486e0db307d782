"""The public functions that steer compilation: what is compiled, when, and what user code may ask of it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from dovetail.diagnostics.times import RECORDS
from dovetail.errors import InvalidArgument
from dovetail.ir.marks import original_of
from dovetail.runtime.entry import REGISTRY
from dovetail.runtime.entry_module import CompiledModule

F = TypeVar("F", bound=Callable[..., Any])
STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")

# ---------------------------------------------------------------- control


def disable(fn: Any = None, recursive: bool = True, reason: str | None = None) -> Any:
    """A function that is never compiled when called; a call or a decorator. A compiled one gives its original.

    Capture stops at a call of it, and says `reason`.
    """
    if fn is None:
        return lambda f: disable(f, recursive, reason)
    if isinstance(fn, CompiledModule):
        return fn._orig_mod
    if not callable(fn) or isinstance(fn, (type, torch.nn.Module)):
        raise InvalidArgument(f"dovetail.disable takes a function, not {fn!r}")
    original = original_of(fn)

    @functools.wraps(original)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    disabled._torchdynamo_disable = True  # type: ignore[attr-defined]  # PyTorch's own mark, which capture honours
    disabled._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    disabled._torchdynamo_disable_recursive = recursive  # type: ignore[attr-defined]
    return disabled


def run(fn: Any) -> Callable[..., Any]:
    """Call existing compiled code where it fits and the original otherwise; never compile."""
    dispatcher = getattr(fn, "_dovetail_dispatcher", None)
    if dispatcher is None:
        raise InvalidArgument(f"dovetail.run takes what dovetail.compile returned, not {fn!r}")

    def only_run(*args: Any, **kwargs: Any) -> Any:
        return dispatcher.run(args, kwargs)

    return functools.update_wrapper(only_run, dispatcher.fn) if inspect.isfunction(dispatcher.fn) else only_run


def reset() -> None:
    """Forget every compiled entry and every record of compiling, as in a new process."""
    REGISTRY.reset()
    RECORDS.clear()


class set_stance:
    """How calls of compiled functions behave from now on, in every thread; also a context manager and a decorator.

    "default"; "force_eager": run originals; "eager_on_recompile": use what is compiled, run eagerly what does not
    fit; "fail_on_recompile": raise RuntimeError instead. A function's first compilation is no recompilation.
    """

    def __init__(self, stance: str = "default") -> None:
        if stance not in STANCES:
            raise InvalidArgument(f"unknown stance {stance!r}; the stances are {', '.join(map(repr, STANCES))}")
        self.stance, self.before = stance, REGISTRY.stance
        REGISTRY.set_stance(stance)

    def __enter__(self) -> None:
        REGISTRY.set_stance(self.stance)

    def __exit__(self, *error: Any) -> None:
        REGISTRY.set_stance(self.before)

    def __call__(self, fn: F) -> F:
        REGISTRY.set_stance(self.before)  # as a decorator it applies while `fn` runs, not from here on

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            with _stance(self.stance):
                return fn(*args, **kwargs)

        return with_stance  # type: ignore[return-value]


@contextlib.contextmanager
def _stance(stance: str) -> Iterator[None]:
    before = REGISTRY.stance
    REGISTRY.set_stance(stance)
    try:
        yield
    finally:
        REGISTRY.set_stance(before)


#: False outside of capture, which treats it as True. PyTorch's own function, so that one answer holds for both.
is_compiling = torch.compiler.is_compiling


