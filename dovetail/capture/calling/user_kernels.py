"""Launches of the program's Triton kernels, as nodes of the graph (`ops.own.user_kernel`).

    kernel[grid](x, out, n, BLOCK=64)

Triton's `run` is met, whoever calls it: a kernel, one that is tuned (`autotune`) or one whose parameters are found by
functions (`heuristics`). Which tensors it writes to is read off Triton's form of the kernel. A grid that is a function
is traced, for each configuration that tuning may choose.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.process import unguarded_facts
from dovetail.capture.tables.graph_functions import owner
from dovetail.capture.values.base import MISSING, NONE, Args, Const, Kwargs, Session, Value
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue
from dovetail.capture.values.number import SymbolicNumber
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.devices import HOST
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ops.own import user_kernel
from dovetail.ops.own.kernel_writes import written
from dovetail.ops.own.user_kernel import NUMBER, OBJECT, READ, SIZE, VALUE, WRITTEN, Launch

#: What JSON has a text for, the same in each process.
PLAIN = (bool, int, float, str, type(None))


@dataclass
class Given:
    """What one launch is given, as the operator takes it. `places` has the tensors, by their fakes."""

    places: dict[int, list]
    written: list[Value]
    read: list[Value]
    sizes: list[Value]
    numbers: list[Value]

    def pair(self, s: Session, value: Value) -> list:
        if isinstance(value, TensorValue):
            return self.places[id(value.fake)]
        if isinstance(value, SymbolicNumber) and value.open:
            if value.cls is float:
                return _put(self.numbers, NUMBER, value)
            if value.cls is int:
                return _put(self.sizes, SIZE, value)
            return s.unsupported("user-kernel", f"a Triton kernel is given a {value.cls.__name__} that varies")
        found = _constant(s, value)
        return [VALUE, found] if type(found) in PLAIN else [OBJECT, user_kernel.place_of(found)]


def _put(values: list[Value], kind: str, value: Value) -> list:
    values.append(value)
    return [kind, len(values) - 1]


def _placed(s: Session, tensors: Mapping[str, TensorValue], writes: frozenset[str]) -> Given:
    """Tensors that lie in the same place are one argument of the operator. Those that overlap otherwise would have
    memory of their own in a graph without writes: they end the graph where one is written to."""
    given = Given({}, [], [], [], [])
    groups: list[list[str]] = []
    for name, value in tensors.items():
        same = next((g for g in groups if _one_place(tensors[g[0]].fake, value.fake)), None)
        same.append(name) if same is not None else groups.append([name])
    for k, group in enumerate(groups):
        value, own = tensors[group[0]], not writes.isdisjoint(group)
        others = (g for g in groups[:k] if own or not writes.isdisjoint(g))
        if any(may_overlap(tensors[g[0]].fake, value.fake) for g in others):
            s.unsupported("user-kernel", "a Triton kernel writes to memory that it is given in several ways")
        pair = _put(given.written if own else given.read, WRITTEN if own else READ, _without_history(s, value))
        given.places |= {id(tensors[name].fake): pair for name in group}
    return given


def _one_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Are they the same elements in the same order?"""
    if owner(a) is not owner(b) or a.dtype != b.dtype or a.shape != b.shape or a.stride() != b.stride():
        return False
    return a.storage_offset() == b.storage_offset()


COUNTED = 2**24  # elements up to which it is counted which ones a tensor has


def may_overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do two tensors of one memory have elements in common? True where that would take long to find out."""
    if owner(a) is not owner(b) or not a.numel() or not b.numel():
        return False
    if a.dtype != b.dtype:
        return True
    starts = a.storage_offset(), b.storage_offset()
    ends = [first + sum((n - 1) * m for n, m in zip(t.shape, t.stride())) for t, first in zip((a, b), starts)]
    if ends[0] < starts[1] or ends[1] < starts[0]:
        return False
    first, last = min(starts), max(ends)
    numbers = (*a.shape, *b.shape, *a.stride(), *b.stride(), *starts)
    if last - first >= COUNTED or not all(type(n) is int for n in numbers):
        return True
    with _disable_current_modes():
        taken = torch.zeros(last - first + 1, dtype=torch.bool, device=HOST)
        taken.as_strided(a.shape, a.stride(), starts[0] - first).fill_(True)
        return bool(taken.as_strided(b.shape, b.stride(), starts[1] - first).any())


def _without_history(s: Session, value: TensorValue) -> Value:
    """Kernels see memory: they have no derivative, and no check that one could be taken."""
    return s.torch_method("detach", [value], {}) if value.fake.requires_grad else value


def _constant(s: Session, value: Value) -> Any:
    real = getattr(value, "real", MISSING)
    if isinstance(value, Const):
        return value.value
    if real is MISSING:
        return s.unsupported("user-kernel", f"a Triton kernel is given {value.describe()}, which is made inside")
    if value.source is not None:
        s.guard(value.source, GuardKind.ID, real)
    return real


def launch(s: Session, function: Any, args: Args, kwargs: Kwargs, detail: Any) -> Value:
    """`kernel.run(*args, grid=..., warmup=False, **kwargs)`."""
    outer, args, kwargs = _constant(s, args[0]), args[1:], dict(kwargs)
    grid, warmup = kwargs.pop("grid", None), kwargs.pop("warmup", Const(False))
    if grid is None or s.truth(warmup):
        s.unsupported("user-kernel", "a Triton kernel is compiled ahead of its launch")
    if s.options.standalone:
        s.unsupported("user-kernel", "an exported program cannot hold the program's own Triton kernels")
    chain = _chain(s, outer)
    kernel = chain[-1]
    named = dict(zip(kernel.arg_names, args)) | kwargs
    if len(args) > len(kernel.arg_names):
        s.unsupported("user-kernel", f"the Triton kernel {_name(kernel)} is given too many arguments")
    configurations = [(config, _meta(s, chain, named, config)) for config in _configurations(chain)]
    writes = _writes(s, kernel, [meta for _, meta in configurations])
    given = _placed(s, {name: value for name, value in named.items() if isinstance(value, TensorValue)}, writes)
    pairs = [given.pair(s, value) for value in args]
    named_pairs = {name: given.pair(s, value) for name, value in kwargs.items()}
    grids = [[dict(config), _grid(s, given, grid, meta)] for config, meta in configurations]
    if all(found == grids[0][1] for _, found in grids):
        grids = [[{}, grids[0][1]]]
    text = Launch(user_kernel.place_of(outer), pairs, named_pairs, grids).text()
    unguarded_facts.alone(s, f"the Triton kernel {_name(kernel)} is the program's own")
    lists = [ListValue(found) for found in (given.written, given.read, given.sizes, given.numbers)]
    s.torch_call(user_kernel.user_kernel, [*lists, Const(text)], {})
    return NONE


# ---------------------------------------------------------------- kernels inside of kernels


def _chain(s: Session, outer: Any) -> list[Any]:
    """The kernel with what is around it, from the outside."""
    chain = [outer]
    while type(chain[-1]).__name__ in ("Autotuner", "Heuristics"):
        chain.append(chain[-1].fn)
    if type(chain[-1]).__name__ not in ("JITFunction", "InterpretedFunction"):
        s.unsupported("user-kernel", f"a Triton kernel of the class {type(chain[-1]).__name__} is launched")
    if any(getattr(each, "pre_run_hooks", None) for each in chain):
        s.unsupported("user-kernel", f"the Triton kernel {_name(chain[-1])} has hooks that run before it")
    return chain


def _name(kernel: Any) -> str:
    return str(getattr(kernel, "__name__", "of the program's"))


def _configurations(chain: list[Any]) -> list[dict[str, Any]]:
    """What tuning may choose, each once: how many warps run a kernel changes no argument of it."""
    tuned = next((each for each in chain if type(each).__name__ == "Autotuner"), None)
    if tuned is None:
        return [{}]
    found = [dict(config.kwargs) for config in tuned.configs]
    return [config for k, config in enumerate(found) if config not in found[:k]]


def _meta(s: Session, chain: list[Any], named: Mapping[str, Value], config: Mapping[str, Any]) -> dict[str, Value]:
    """Every argument by name, as functions of grids and parameters are shown them."""
    meta: dict[str, Value] = {**named, **{name: Const(value) for name, value in config.items()}}
    for each in chain:
        if type(each).__name__ == "Heuristics":
            for name, rule in each.values.items():
                meta[name] = s.call(s.wrap(rule, s.bind(rule, "rule")), DictValue.named(meta))
    for parameter in _plain(chain[-1]).params:
        if parameter.name not in meta and parameter.has_default:
            meta[parameter.name] = s.wrap(parameter.default, None)
    return meta


def _grid(s: Session, given: Given, grid: Value, meta: Mapping[str, Value]) -> list:
    found = grid
    if not isinstance(grid, (SequenceValue, Const)):
        found = s.call(grid, DictValue.named(meta))
    sizes = found.all(s) if isinstance(found, SequenceValue) else [found]
    return [given.pair(s, size) for size in sizes]


# ---------------------------------------------------------------- what is written to


def _writes(s: Session, kernel: Any, metas: list[Mapping[str, Value]]) -> frozenset[str]:
    """Parameters that a configuration may write to; those of all tensors where Triton's interpreter hides it."""
    found: frozenset[str] = frozenset()
    plain = _plain(kernel)
    for meta in metas:
        shown = {name: _shown(meta[name]) for name in plain.arg_names if name in meta}
        writes = written(plain, shown) if len(shown) == len(plain.arg_names) else None
        if writes is None and type(kernel).__name__ == "InterpretedFunction":
            writes = frozenset(name for name, value in shown.items() if isinstance(value, torch.Tensor))
        if writes is None:
            s.unsupported(
                "user-kernel", f"nobody can tell what the Triton kernel {_name(kernel)} writes to",
                "Make a custom operator of it (torch.library.custom_op), which says what it writes to.",
            )  # fmt: skip
        found |= writes
    return found


def _shown(value: Value) -> Any:
    if isinstance(value, TensorValue):
        return value.fake
    if isinstance(value, SymbolicNumber):
        return value.cls(2)
    return value.value if isinstance(value, Const) else getattr(value, "real", None)


@cache
def _plain(kernel: Any) -> Any:
    """The kernel as Triton compiles it, where its interpreter is to run it."""
    if type(kernel).__name__ == "JITFunction":
        return kernel
    made = importlib.import_module("triton.runtime.jit").JITFunction
    inner: FunctionType = kernel.fn
    shared = {
        name: _plain(value) if type(value).__name__ == "InterpretedFunction" else value
        for name, value in inner.__globals__.items()
        if name in inner.__code__.co_names
    }
    return made(_with_globals(inner, shared))


def _with_globals(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    again = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    again.__annotations__, again.__module__ = dict(function.__annotations__), function.__module__
    again.__kwdefaults__ = function.__kwdefaults__
    return again
