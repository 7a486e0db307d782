"""Modules that get the shapes of their parameters from the first input: they get them before the graph is made.

The hook that PyTorch puts on such a module runs as in eager mode, on the real modules, and capture starts again: what
it finds then are modules like any others. The hook is shown the inputs of the graph, and of what the graph computes
the metadata. Where more than parameters would show that it runs early, the graph ends before the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.values.base import MISSING, Args, Kwargs, NotNative, RestartCapture, Session, Value
from dovetail.capture.values.containers import DictValue, SequenceValue
from dovetail.capture.values.objects import real_dict
from dovetail.capture.values.tensor import TensorValue
from dovetail.ops.fake.symbolic.symint import dim_of

HOOK = "_initialize_hook"


class ModulesInitialized(RestartCapture):
    """A module was given its parameters."""


def initialize(s: Session, value: Any, args: Args, kwargs: Kwargs) -> None:
    """Called before a module is; does not return if it has given the module its parameters."""
    module = value.real
    lazy = isinstance(module, torch.nn.modules.lazy.LazyModuleMixin)
    if HOOK not in real_dict(module) or not lazy:
        return
    first = next(iter(module._forward_pre_hooks), None)
    others = torch_module._global_forward_pre_hooks or first != module._initialize_hook.id
    if others or _shown(s):
        _refuse(s, value)
    try:
        given, named = [_native(s, a) for a in args], {k: _native(s, v) for k, v in kwargs.items()}
        with _disable_current_modes(), _undone(module):
            module._infer_parameters(module, tuple(given), named)
            if any(isinstance(item, Shown) for item in pytree.tree_leaves(dict(real_dict(module)))):
                raise NotNative(module)  # what the hook was shown in a tensor's place has stayed
    except Exception:  # eager mode will raise it again, or see more than metadata
        _refuse(s, value)
    raise ModulesInitialized


class Shown(torch.Tensor):
    """What a tensor of the graph is to a hook: metadata. Whoever wants more gets an error."""

    @classmethod
    def of(cls, s: Session, fake: Any) -> Shown:
        sizes, strides = ([_number(s, n) for n in numbers] for numbers in (fake.shape, fake.stride()))
        return torch.Tensor._make_wrapper_subclass(
            cls, sizes, strides=strides, dtype=fake.dtype, device=fake.device, layout=fake.layout,
        )  # fmt: skip

    @classmethod
    def __torch_dispatch__(cls, function: Any, *rest: Any) -> Any:
        raise NotImplementedError(f"{function} of a tensor that does not exist yet")


def _number(s: Session, size: Any) -> int:
    """In this call."""
    dim = dim_of(size)
    return dim if isinstance(dim, int) else int(s.table.sizes.hint(dim))


def _shown(s: Session) -> bool:
    """Has the program done anything yet that the hook would see, or draw random numbers after?"""
    changed = any(getattr(v, "real", MISSING) is not MISSING for v in s.effects.touched.values())
    effects, modes = s.effects, s.modes
    later = any((s.random.draws, effects.globals, effects.calls, modes.changed, modes.variables, s.classes.stores))
    return changed or later or s.graph is not s.root or any(n.meta.get("random") for n in s.graph.nodes)


def _refuse(s: Session, value: Value) -> None:
    s.unsupported(
        "lazy-module",
        f"{value.describe()} gets its parameters from the first input, from its values or after random numbers were "
        "drawn or something was changed",
    )


def _native(s: Session, value: Value) -> Any:
    if isinstance(value, TensorValue):
        written = value.fake.is_inference() or value.fake._version > 0
        return Shown.of(s, value.fake) if value.origin is None or written else value.origin
    if isinstance(value, SequenceValue) and value.cls in (list, tuple):
        return value.cls(_native(s, item) for item in value.all(s))
    if isinstance(value, DictValue) and value.cls is dict:
        return {k.native(): _native(s, v) for k, v in value.pairs(s)}
    return value.native()


@contextmanager
def _undone(module: Any) -> Iterator[None]:
    """If the block raises, the module and the random state are what they were."""
    own = real_dict(module)
    tables = {name: table.copy() for name, table in own.items() if isinstance(table, dict)}
    before, tensors = own.copy(), [(t, type(t), t.data) for t in _tensors(module)]
    cls, random = type(module), torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    except BaseException:
        for name, table in tables.items():
            before[name].clear()
            before[name].update(table)
        own.clear()
        own.update(before)
        module.__class__ = cls
        for tensor, kind, data in tensors:
            tensor.__class__, tensor.data = kind, data
        torch.set_rng_state(random)
        for k, state in enumerate(on_gpus):
            torch.cuda.set_rng_state(state, k)
        raise


def _tensors(module: Any) -> list[torch.Tensor]:
    return [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None and is_lazy(t)]
