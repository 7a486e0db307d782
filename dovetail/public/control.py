"""The public functions that steer compilation: what is compiled, when, and what user code may ask of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

import torch

from dovetail.diagnostics.breaks import BREAKS
from dovetail.diagnostics.times import RECORDS
from dovetail.errors import InvalidArgument
from dovetail.interop.backends import BACKENDS
from dovetail.ir import marks, stores
from dovetail.ir.marks import ErrorOnGraphBreak, Mark, original_of
from dovetail.ir.noted import note
from dovetail.runtime.dispatch.compiled_module import CompiledModule, disabled_module
from dovetail.runtime.dispatch.registry import REGISTRY, only_run
from dovetail.runtime.dispatch.stance import FORCE_EAGER, STANCES, Stance

F = TypeVar("F", bound=Callable[..., Any])

# ---------------------------------------------------------------- what is not compiled


def disable(fn: Any = None, recursive: bool = True, reason: str | None = None) -> Any:
    """Keep a function, method, class or module from being compiled; a call, a decorator or a context manager.

    fn: what to leave alone. A function gives a function that runs as it is, a compiled one its original, a module
        one with the same state that capture does not enter, a class itself, its `__init__` and `__call__` marked.
        Without it the result is a decorator, and a context manager in which compiled functions run their originals.
    recursive: False compiles the functions that it calls when it is called from compiled code.
    reason: shown where capture stops at a call of it.
    """
    return _Disabling(recursive, reason) if fn is None else _disabled(fn, recursive, reason)


class _Disabling:
    """`disable()` before it knows of what."""

    def __init__(self, recursive: bool, reason: str | None) -> None:
        self.recursive, self.reason = recursive, reason

    def __call__(self, fn: Any) -> Any:
        return _disabled(fn, self.recursive, self.reason)

    def __enter__(self) -> None:
        REGISTRY.enter(FORCE_EAGER)

    def __exit__(self, *error: Any) -> None:
        REGISTRY.leave()


def _disabled(fn: Any, recursive: bool, reason: str | None) -> Any:
    if isinstance(fn, CompiledModule):
        return fn._orig_mod
    if isinstance(fn, torch.nn.Module):
        return disabled_module(fn, lambda call: _disabled(call, recursive, reason))
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(_disabled(fn.__func__, recursive, reason))
    if isinstance(fn, type):
        for name in ("__init__", "__call__"):
            method = inspect.getattr_static(fn, name, None)
            if isinstance(method, FunctionType):
                setattr(fn, name, _disabled(method, recursive, reason))
        return fn
    if not callable(fn):
        raise InvalidArgument(f"dovetail.disable takes a function, a method, a class or a module, not {fn!r}")
    original = original_of(fn)

    @functools.wraps(original)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    disabled._torchdynamo_disable = True  # type: ignore[attr-defined]  # PyTorch's own marks, which both honour
    disabled._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    disabled._torchdynamo_disable_recursive = recursive  # type: ignore[attr-defined]
    disabled._torchdynamo_orig_callable = original  # type: ignore[attr-defined]
    return disabled


# ---------------------------------------------------------------- what a call becomes


def _each(fn: Any, name: str, apply: Callable[[Any], Any]) -> Any:
    functions = list(_flat(fn))
    for each in functions:
        if not callable(each) or isinstance(each, torch.nn.Module):
            raise InvalidArgument(f"dovetail.{name} takes a function or a list of functions, not {each!r}")
    for each in functions:
        apply(each)
    return fn


def _flat(fn: Any) -> Iterator[Any]:
    if isinstance(fn, (list, tuple)):
        for each in fn:
            yield from _flat(each)
    else:
        yield fn


def allow_in_graph(fn: Any) -> Any:
    """Let calls of a function, or of each in a list, be one node of the graph. Returns what it was given.

    Nothing looks into the function: its arguments and results are tensors, numbers and lists of them, it changes
    none of them, and it uses no tensor that is not an argument. Its shapes are found by running it without data.
    """
    return _each(fn, "allow_in_graph", lambda f: marks.put(f, Mark.ALLOW))


def disallow_in_graph(fn: Any) -> Any:
    """Let calls of a function or operator, or of each in a list, end the graph. Returns what it was given."""
    return _each(fn, "disallow_in_graph", lambda f: marks.put(f, Mark.DISALLOW))


def assume_constant_result(fn: F) -> F:
    """Take the function's result to be the same for the same arguments, for ever: it is called while capturing."""
    if not callable(fn):
        raise InvalidArgument(f"dovetail.assume_constant_result takes a function, not {fn!r}")
    try:
        fn._dynamo_marked_constant = True  # type: ignore[attr-defined]  # PyTorch's own mark, which both honour
    except AttributeError:
        marks.put(fn, Mark.CONSTANT)
    return fn


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[F], F]:
    """A decorator: the Python function is traced where compiled code calls `original_fn`, usually native code.

    Both take the same parameters, unless `skip_signature_check`. Constants are folded in traced code anyway, so
    `can_constant_fold_through` changes nothing. The decorated function itself calls the original.
    """
    if not inspect.isroutine(original_fn):
        raise InvalidArgument(f"dovetail.substitute_in_graph takes a function, not {original_fn!r}")

    def substitute(fn: F) -> F:
        if not isinstance(fn, FunctionType):
            raise InvalidArgument(f"only a Python function can be traced instead of {original_fn!r}, not {fn!r}")
        found = marks.of_native(original_fn)
        if found is not None and found.mark is Mark.INSTEAD:
            raise InvalidArgument(f"{original_fn!r} is substituted already, by {found.detail!r}")
        if not skip_signature_check:
            _same_parameters(original_fn, fn)

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        for one in (original_fn, wrapped):
            marks.put(one, Mark.INSTEAD, fn)
        return wrapped  # type: ignore[return-value]

    return substitute


def _same_parameters(original_fn: Any, fn: Any) -> None:
    try:
        theirs = inspect.signature(original_fn)
    except ValueError:
        return  # native code that does not say
    ours = inspect.signature(fn)
    anything = _parameters(inspect.signature(lambda *args, **kwargs: None))
    if _parameters(theirs) != _parameters(ours) and anything not in (_parameters(theirs), _parameters(ours)):
        raise InvalidArgument(f"the parameters differ: {original_fn!r} takes {theirs}, {fn!r} takes {ours}")


def _parameters(signature: inspect.Signature) -> list[tuple]:
    """What must agree: names and defaults, positional ones in order. The names of *args and **kwargs may differ."""
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [p for p in signature.parameters.values() if p.kind not in many]
    ordered = [(p.name, p.default) for p in plain if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    named = sorted((p.name, repr(p.default)) for p in plain if p.kind is inspect.Parameter.KEYWORD_ONLY)
    return [*ordered, *named]


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Mark a function that is called often, such as a layer. It is traced into its caller's graph at each call."""
    return (lambda f: f) if fn is None else fn


# ---------------------------------------------------------------- calls inside compiled code


def graph_break(msg: str = "") -> None:
    """End the graph here. Outside of compiled code it does nothing."""


def skip_frame(msg: str = "") -> None:
    """Run the function that calls this without tracing it. Outside of compiled code it does nothing."""


def error_on_graph_break(error_on_graph_break: bool) -> ErrorOnGraphBreak:
    """A context manager and decorator: inside, a graph break raises GraphBreakError, or does not.

    It can be used within compiled code, for parts of it. With `fullgraph=True` every graph break is an error.
    """
    if not isinstance(error_on_graph_break, bool):
        raise InvalidArgument(f"error_on_graph_break takes True or False, not {error_on_graph_break!r}")
    return ErrorOnGraphBreak(error_on_graph_break)


def cudagraph_mark_step_begin() -> None:
    """Say that a new step of inference or training begins. Results of the step before may then be overwritten."""


#: False outside of capture, which treats it as True. PyTorch's own function, so that one answer holds for both.
is_compiling = torch.compiler.is_compiling

# ---------------------------------------------------------------- when to compile


def run(fn: Any) -> Callable[..., Any]:
    """Call existing compiled code where it fits and the originals otherwise; never compile."""
    if not callable(fn):
        raise InvalidArgument(f"dovetail.run takes a function or a module, not {fn!r}")

    made = only_run(fn)
    return functools.update_wrapper(made, fn, updated=()) if inspect.isroutine(fn) else made


def reset() -> None:
    """Forget every compiled entry and every record of compiling, as in a new process."""
    REGISTRY.reset()
    RECORDS.clear()
    BREAKS.clear()
    stores.empty()


class set_stance:
    """How calls of compiled functions behave: from now on in every thread, or in this thread during a block or call.

    "default"; "force_eager": run originals; "eager_on_recompile": use what is compiled, run eagerly what does not
    fit; "fail_on_recompile": raise RuntimeError instead. A function's first compilation is no recompilation.
    "eager_then_compile": the first call of a function runs the original, the next one compiles, for sizes and numbers
    that vary where the two differ; "aot_eager_then_compile": the first one is compiled by the backend "aot_eager".
    force_backend: with "default", gets the graphs in place of each function's own backend.
    skip_guard_eval_unsafe: changes nothing, since guards are always checked.
    Used as `set_stance(...)`, `with set_stance(...):` and `@set_stance(...)`.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in STANCES:
            raise InvalidArgument(f"unknown stance {stance!r}; the stances are {', '.join(map(repr, STANCES))}")
        if force_backend is not None and stance != "default":
            raise InvalidArgument(f"force_backend goes with the stance 'default', not with {stance!r}")
        if not isinstance(skip_guard_eval_unsafe, bool):
            raise InvalidArgument(f"skip_guard_eval_unsafe must be True or False, not {skip_guard_eval_unsafe!r}")
        if skip_guard_eval_unsafe:
            note("skip_guard_eval_unsafe", "dovetail checks guards in every call: skip_guard_eval_unsafe skips none")
        backend = None if force_backend is None else BACKENDS.resolve(force_backend)
        self.stance, self.before = Stance(stance, backend), REGISTRY.base
        REGISTRY.set_stance(self.stance)

    def __enter__(self) -> None:
        REGISTRY.set_stance(self.before)  # the block is this thread's only
        REGISTRY.enter(self.stance)

    def __exit__(self, *error: Any) -> None:
        REGISTRY.leave()

    def __call__(self, fn: F) -> F:
        REGISTRY.set_stance(self.before)  # as a decorator it applies while `fn` runs, not from here on

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            REGISTRY.enter(self.stance)
            try:
                return fn(*args, **kwargs)
            finally:
                REGISTRY.leave()

        marks.put(with_stance, Mark.OUTSIDE)
        return with_stance  # type: ignore[return-value]


for _function, _mark in (
    (graph_break, Mark.BREAK),
    (skip_frame, Mark.SKIP),
    (cudagraph_mark_step_begin, Mark.NOTHING),
    (allow_in_graph, Mark.DECORATE),
    (assume_constant_result, Mark.DECORATE),
    *(
        (f, Mark.OUTSIDE)
        for f in (
            disallow_in_graph, substitute_in_graph, run, reset, disable, _Disabling.__enter__, _Disabling.__exit__,
            set_stance.__init__, set_stance.__enter__, set_stance.__exit__, set_stance.__call__,
        )
    ),
):  # fmt: skip
    marks.put(_function, _mark)
