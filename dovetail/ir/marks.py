"""What user code asks capture to do with a callable: Dovetail's own marks and PyTorch's, found in one place.

Dovetail's marks are kept by identity, so that `functools.wraps` copies none and native functions can carry them.
PyTorch leaves attributes on the function, ids in tables of its compiler (read only where a program has loaded that),
or is known by the name of the function called.
"""

from __future__ import annotations

import enum
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple


class Mark(enum.Enum):
    """detail of each mark:"""

    ALLOW = "a node of the graph as it is; no detail"
    DISALLOW = "called outside of any graph; no detail"
    DISABLE = "called without being traced; (the user's reason or None, also the functions that it calls?)"
    CONSTANT = "called while capturing, its result a constant; no detail"
    INSTEAD = "another function is traced in its place; that function"
    WHOLE = "called by the graph as it is, on tensors that are made of others; no detail"
    BREAK = "ends the graph; no detail, the message is an argument"
    SKIP = "the function that calls it runs without being traced; no detail"
    OUTSIDE = "a switch of the compiler, called between graphs; no detail"
    DECORATE = "a decorator that marks; no detail"
    COMPTIME = "its argument is called while capturing; no detail"
    COMPILE = "compiles a function, which is traced anyway; (checks the arguments, makes what is traced instead)"
    LAUNCH = "launches a Triton kernel; no detail"
    ITSELF = "gives back what it is given; no detail"
    NOTHING = "has no effect on compiled code and gives None; no detail"
    STRICT_ENTER = "enters error_on_graph_break; no detail"
    STRICT_EXIT = "leaves error_on_graph_break; no detail"


class Found(NamedTuple):
    mark: Mark
    detail: Any = None


_OWN: dict[int, tuple[Any, Found]] = {}


def put(obj: Any, mark: Mark, detail: Any = None) -> None:
    """Mark a callable; its last mark counts."""
    key = id(obj)
    try:
        ref = weakref.ref(obj, lambda _: _OWN.pop(key, None))
    except TypeError:
        ref = obj  # cannot be referenced weakly: kept
    _OWN[key] = (ref, Found(mark, detail))


def note_original(compiled: Any, original: Any) -> None:
    """Note on a compiled function what it was made from."""
    vars(compiled).update(_dovetail_original=original, _dovetail_code=compiled.__code__)


def original_of(fn: Any) -> Any:
    """What a compiled function was made from; anything else is its own original.

    `functools.wraps` copies notes to decorators' functions, which do more than call what they wrap: theirs name
    another code than their own.
    """
    notes = getattr(fn, "__dict__", {}) if isinstance(fn, FunctionType) else {}
    return notes["_dovetail_original"] if notes.get("_dovetail_code") is getattr(fn, "__code__", 0) else fn


def of_native(real: Any) -> Found | None:
    """The mark of a callable that is no Python function."""
    found = _OWN.get(id(real))
    return found[1] if found is not None else _in_peer_tables(real)


def of_function(real: Any) -> Found | None:
    """The mark of a Python function."""
    found = _OWN.get(id(real))
    if found is not None:
        return found[1]
    if real.__module__ in NAMED_MODULES:
        mark = NAMED.get(real.__qualname__)
        if mark is not None:
            return mark if isinstance(mark, Found) else Found(mark)
    if real.__module__ in UNTRACED:
        return Found(Mark.DISABLE, (UNTRACED[real.__module__], True))
    if real.__dict__:
        for name in real.__dict__:
            reader = ATTRIBUTES.get(name)
            read = reader(real) if reader is not None else None
            if read is not None:
                return read
    return _in_peer_tables(real)


def runs_plain(real: Any) -> bool:
    """Is it a function that is not traced, though what it calls is compiled?"""
    found = of_function(real)
    return found is not None and found.mark is Mark.DISABLE and not found.detail[1]


#: The attributes of a function that say that it is not traced, and whether what it calls is.
DISABLED = ("_torchdynamo_disable", "_torchdynamo_disable_recursive")


def disabled_anew(real: Any) -> bool:
    """Is it what `disable(f)` gives, a new function each time? Such ones are called alike: none is looked into.

    Where what it calls is compiled, f must not be new each time itself.
    """
    own = vars(real)
    if "_torchdynamo_disable" not in own or id(real) in _OWN or "<locals>" not in real.__code__.co_qualname:
        return False
    found = of_function(real)
    if found is None or found.mark is not Mark.DISABLE or not all(type(own.get(n, True)) is bool for n in DISABLED):
        return False
    inner = own.get("_torchdynamo_orig_callable")
    return bool(found.detail[1]) or "<locals>" not in getattr(inner, "__qualname__", "<locals>")


# ---------------------------------------------------------------- PyTorch's marks


#: PyTorch's compiler, once imported, keeps itself out of its optimizers for these reasons. They are no user's marks.
_PATCHED = ("optimizer <class 'torch.optim.", "don't trace into fused optimizer")


def _disabled(real: Any) -> Found | None:
    if not real._torchdynamo_disable:
        return None
    words = getattr(real, "_torchdynamo_disable_msg", None)
    inner = real.__dict__.get("_torchdynamo_orig_callable")
    if isinstance(inner, FunctionType) and str(words).startswith(_PATCHED):
        return Found(Mark.INSTEAD, inner)
    return Found(Mark.DISABLE, (words, getattr(real, "_torchdynamo_disable_recursive", True)))


def _is_wrapper(real: Any) -> bool:
    """`functools.wraps` copies attributes; the id tells the function that they were made for."""
    return real.__dict__.get("_torchdynamo_wrapper_id") in (None, id(real))


def _compiled(real: Any) -> Found | None:
    """What torch.compile returned is traced as what it was made from."""
    inner = real.__dict__.get("_torchdynamo_inline") or real.__dict__.get("_torchdynamo_orig_callable")
    disabled = real.__dict__.get("_torchdynamo_disable")
    plain = callable(inner) and not disabled and _is_wrapper(real) and "_dovetail_original" not in real.__dict__
    return Found(Mark.INSTEAD, inner) if plain and inner is not real else None


#: Decorators of PyTorch's whose functions disable what they wrap anew in each call: (module, name of the code).
_DISABLING = frozenset((
    ("torch.distributed.fsdp._fully_shard._fsdp_common", "_dynamo_disable.<locals>.wrapper"),
    ("torch.distributed.fsdp._fully_shard._fsdp_state", "disable_if_config_true.<locals>.fsdp_hook_wrapper"),  # older
))  # fmt: skip


def _advised(real: Any) -> Found | None:
    """PyTorch keeps its compiler out of `manual_seed` and methods of its optimizers, which are plain Python."""
    inner, module = real.__dict__["__wrapped__"], real.__globals__.get("__name__")
    if (module, getattr(real.__code__, "co_qualname", "")) in _DISABLING:
        return Found(Mark.DISABLE, ("it moves parameters between processes", True))
    own = module == "torch._compile"
    return Found(Mark.INSTEAD, inner) if own and inner.__module__ in ("torch.optim.optimizer", "torch.random") else None


#: Attribute that PyTorch sets → a reader that gives the mark, or None where the value means nothing.
ATTRIBUTES: MappingProxyType[str, Callable[[Any], Found | None]] = MappingProxyType({
    "_torchdynamo_disable": _disabled,
    "_torchdynamo_inline": _compiled,
    "_torchdynamo_orig_callable": _compiled,
    "_torchdynamo_leaf_real_fn": lambda real: Found(Mark.DISABLE, ("it is a leaf function", True)),
    "_dynamo_marked_constant": lambda real: Found(Mark.CONSTANT) if real._dynamo_marked_constant else None,
    "_dynamo_forbidden": lambda real: Found(Mark.OUTSIDE) if real._dynamo_forbidden else None,
    "__wrapped__": _advised,
    "__marked_compile_region_fn__": lambda real: Found(Mark.INSTEAD, real.__marked_compile_region_fn__),
    "__torch_dynamo_polyfill__": lambda real: Found(Mark.INSTEAD, real.__torch_dynamo_polyfill__),
})  # fmt: skip

NAMED_MODULES = frozenset((
    "torch.compiler", "torch._dynamo.decorators", "torch._dynamo.comptime", "torch._library.triton",
    "torch.distributed.tensor._api", "torch.distributed.fsdp.fully_sharded_data_parallel",
    "torch.nn.parallel.distributed", "triton.runtime.jit", "triton.runtime.autotuner", "triton.runtime.interpreter",
))  # fmt: skip
_STRICT = "ErrorOnGraphBreakDecoratorContextManager"
#: Modules around a module of the program's: what they do before and after it is PyTorch's to run, and it is compiled.
_AROUND = Found(Mark.DISABLE, ("it keeps processes in step; the module inside is compiled", False))
NAMED: MappingProxyType[str, Mark | Found] = MappingProxyType({
    "graph_break": Mark.BREAK,
    "step_unsupported": Mark.BREAK,
    "skip_frame": Mark.SKIP,
    "allow_in_graph": Mark.DECORATE,
    "assume_constant_result": Mark.DECORATE,
    **dict.fromkeys([f"DTensor.{n}" for n in ("from_local", "to_local", "redistribute", "full_tensor")], Mark.WHOLE),
    "DistributedDataParallel.forward": _AROUND,
    "DistributedDataParallel._run_ddp_forward": _AROUND,
    "FullyShardedDataParallel.forward": _AROUND,
    "cudagraph_mark_step_begin": Mark.NOTHING,
    "mark_static_address": Mark.NOTHING,  # where a graph's own tensors lie is for the compiler to say
    "DynamoConfigPatchProxy.__enter__": Mark.NOTHING,  # settings of PyTorch's compiler
    "DynamoConfigPatchProxy.__exit__": Mark.NOTHING,
    "_Comptime.__call__": Mark.COMPTIME,
    "wrap_triton": Mark.ITSELF,  # for PyTorch's tracers, which need not see what ours does
    **{f"{kind}.run": Mark.LAUNCH for kind in ("JITFunction", "InterpretedFunction", "Autotuner", "Heuristics")},
    f"{_STRICT}.__enter__": Mark.STRICT_ENTER,
    f"{_STRICT}.__exit__": Mark.STRICT_EXIT,
    **dict.fromkeys(
        """compile reset disable run skip disallow_in_graph substitute_in_graph set_stance set_stance.__init__
        set_stance.__enter__ set_stance.__exit__ nested_compile_region list_backends mark_dynamic maybe_mark_dynamic
        mark_static mark_unbacked set_default_backend""".split(),
        Mark.OUTSIDE,
    ),
})  # fmt: skip

#: Modules of PyTorch whose functions put other memory behind tensors, and wait for other processes → why nothing of
#: them is traced.
UNTRACED: MappingProxyType[str, str] = MappingProxyType(
    {
        f"torch.distributed.fsdp.{name}": "FSDP gathers and frees parameters' memory there"
        for name in ("_runtime_utils", "_flat_param", "_unshard_param_utils", "_state_dict_utils", "_optim_utils")
    }
)

_RULES = "torch._dynamo.trace_rules"
_PEER_TABLES = (("_disallowed_callable_ids", Found(Mark.DISALLOW)), ("_allowed_callable_ids", Found(Mark.ALLOW)))


def _in_peer_tables(real: Any) -> Found | None:
    rules = sys.modules.get(_RULES)
    if rules is None:
        return None
    for name, found in _PEER_TABLES:
        ids = getattr(getattr(rules, name, None), "function_ids", None)
        if ids and id(real) in ids:
            return found
    return _peer_substitute(real)


def _peer_substitute(real: Any) -> Found | None:
    """A user's substitute; those that PyTorch brings for the standard library are its own business."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    made = getattr(functions, "PolyfilledFunctionVariable", None)
    try:
        wrapped = made._get_polyfill_handlers().get(real) if made is not None else None
    except TypeError:  # not hashable
        return None
    instead = getattr(wrapped, "__torch_dynamo_polyfill__", None)
    if instead is None or (instead.__module__ or "").partition(".")[0] == "torch":
        return None
    return Found(Mark.INSTEAD, instead)


# ---------------------------------------------------------------- errors instead of graph breaks


class Strictness(threading.local):
    """Is a graph break of this thread's code an error?"""

    on = False

    def set(self, on: bool) -> None:
        """Graph breaks of this thread are errors from now on, or no longer."""
        self.on = on


STRICT = Strictness()


class ErrorOnGraphBreak:
    """See `dovetail.error_on_graph_break`. The names of its attributes are those of PyTorch's class."""

    def __init__(self, error_on_graph_break: bool) -> None:
        self.error_on_graph_break = error_on_graph_break
        self.prev_error_on_graph_break: list[bool | None] = []

    def __enter__(self) -> None:
        self.prev_error_on_graph_break.append(STRICT.on)
        STRICT.set(self.error_on_graph_break)

    def __exit__(self, *error: Any) -> None:
        before = self.prev_error_on_graph_break.pop()
        if before is not None:
            STRICT.set(before)


    def __call__(self, fn: Any) -> Any:
        flag = self.error_on_graph_break

        @functools.wraps(fn)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with ErrorOnGraphBreak(flag):
                return fn(*args, **kwargs)

        return checked


put(ErrorOnGraphBreak.__enter__, Mark.STRICT_ENTER)
put(ErrorOnGraphBreak.__exit__, Mark.STRICT_EXIT)
