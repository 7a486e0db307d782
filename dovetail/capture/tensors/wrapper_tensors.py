"""Tensors that are made of others (`ops.fake.wrapped`) in a captured program.

In the graph such a tensor is one value, as it is in the program. What its class makes of an operator is not traced: its
`__torch_dispatch__` runs, on fakes here and on real tensors where the graph runs as captured.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dovetail.capture.numbers import size_inputs
from dovetail.capture.numbers.size_inputs import Layout
from dovetail.capture.outside.code_values import OTHER, Fresh, Outside, WhatCodeDoes
from dovetail.capture.outside.definitions import rely_on_function
from dovetail.capture.outside.hidden_effects import what_code_does
from dovetail.capture.process.trusted_code import changeable, trusted, trusted_class
from dovetail.capture.process.unguarded_facts import alone
from dovetail.capture.values.base import MISSING, Session
from dovetail.capture.values.tensor import DISABLED, TensorValue
from dovetail.errors import Unsupported
from dovetail.ir.captured import NO_OVERRIDES
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import LOOKS_LIKE, Attr, Computed, Source
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.wrapped import CODE, is_wrapper, like, parts

#: Methods that run wherever such a tensor is taken apart, made or computed with; and whether what they do must be clear
#: to the last: what handles operators may call anything.
_RUN = {"__new__": True, "__init__": True, "__tensor_flatten__": True, "__tensor_unflatten__": True,
        "__torch_dispatch__": False}  # fmt: skip


def rely_on_class(s: Session, cls: type) -> None:
    """The class's own code is run, on tensors without memory and whenever a tensor of it is made: refused if that does
    more than to compute. What it reads is guarded."""
    if cls in s.relied.inside:
        return
    for name, strict in _RUN.items():
        found = s.static(cls, name)
        function = getattr(found, "__func__", found)
        if not isinstance(function, FunctionType) or trusted(function.__module__) and trusted_class(cls):
            continue
        alone(s, f"{cls.__name__}.{name} is run while compiling, and nobody knows all that its code relies on")
        first: Any = Fresh(cls) if name in ("__init__", "__tensor_flatten__") else Outside(cls)
        if name == "__tensor_unflatten__" and isinstance(found, staticmethod):
            first = OTHER
        _rely_on(s, cls, name, what_code_does(function, first, strict))
    s.relied.inside.add(cls)


def _rely_on(s: Session, cls: type, name: str, does: WhatCodeDoes) -> None:
    if does.effect is not None:
        s.unsupported(
            CODE, f"{cls.__name__}.{name} {does.effect}",
            "Take the effect out of it: it also runs where nothing of the program shows, and not on every call.",
        )  # fmt: skip
    for function in does.functions:
        rely_on_function(s, function)
    for holder, key, value in does.data.values():
        if not isinstance(holder, type):
            s.guard(s.bind(holder, "globals()").item(key), GuardKind.EQUAL, value)
        elif changeable(holder):
            s.guard(s.bind(holder), GuardKind.CLASS_DICT, (key, value))


def as_input(s: Session, real: torch.Tensor, source: Source, static: bool) -> Any:
    """The fake of a tensor from outside. The entry relies on its class, its context, and what it is made of."""
    cls = type(real)
    s.guard(source, GuardKind.TYPE, cls)
    rely_on_class(s, cls)
    layouts = {} if static else parts_laid_out(s, real, source, ())
    try:
        check = like(real, frozenset(path for path, _ in layouts.values()))
        s.taken.layouts |= {key: (layout.sizes, layout.strides) for key, (_, layout) in layouts.items()}
        fake = input_fake(real, s.taken.layouts)
    except Unsupported as error:
        raise Unsupported(error.code, error.reason, error.remedy, s.stack()) from error
    except Exception as error:
        s.unsupported(CODE, f"{cls.__name__} cannot be made of tensors without memory: {type(error).__name__}: {error}")
    s.guard(Computed(LOOKS_LIKE, (s.bind(check, "known"), source)), GuardKind.ID, True)
    note(s, cls)
    return fake


def parts_laid_out(s: Session, real: Any, source: Source, path: tuple[str, ...]) -> dict[int, tuple[tuple, Layout]]:
    """The plain tensors with sizes that vary that it is made of: by their ids, the paths to them and the layouts."""
    found: dict[int, tuple[tuple, Layout]] = {}
    for name, part in parts(real).items():
        below = Attr(source, name)
        if is_wrapper(part):
            found |= parts_laid_out(s, part, below, (*path, name))
        elif isinstance(part, torch.Tensor) and part.layout is torch.strided:
            layout, facts = size_inputs.laid_out(s, part, below), size_inputs.tensor_facts(part)
            s.guard(below, GuardKind.TENSOR, facts if layout is None else layout.applied(facts))
            if layout is not None:
                found[id(part)] = (*path, name), layout
    return found


def note(s: Session, cls: type) -> None:
    """The graph computes with tensors of the class; what its `__torch_function__` adds has been traced."""
    if s.static(cls, "__torch_function__") not in (DISABLED, MISSING):
        s.residual.names[NO_OVERRIDES] = True


def refuse_ragged(s: Session, name: str, error: Exception, given: Any) -> None:
    """What PyTorch's code for ragged tensors raises may be about tensors without elements."""
    if any(isinstance(t, torch.Tensor) and t.layout is torch.jagged for t in pytree.tree_leaves(given)):
        s.unsupported(
            "nested-tensor", f"{name} of a nested tensor cannot be part of a graph here: {error}",
            "Call it outside, where the number of rows in each part is known.",
        )  # fmt: skip


def refuse_inside(s: Session, value: TensorValue) -> None:
    """Branches, loops and transforms take plain tensors apart from their history."""
    if s.graph is not s.root:
        s.unsupported(
            CODE, f"a {value.cls.__name__} is used inside a branch, loop or transformed function",
            "Compute with it before or after.",
        )


# ---------------------------------------------------------------- fakes

# Of tensors from outside, with a history where those have one.


class _History(torch.autograd.Function):
    """Gives a fake tensor that is no leaf, so that the program may write to it."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return to_fake(leaf, leaf=False)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def input_fake(real: torch.Tensor, layout: Any = None) -> Any:
    """The fake of a tensor from outside: a leaf if that is one. A view with a history has a leaf as well."""
    fake: Any = to_fake(real, layout=layout)
    if not real.requires_grad or real._is_view() or real.is_leaf:  # some views refuse to say whether they are leaves
        return fake
    if torch.is_inference_mode_enabled() or torch._C._are_functorch_transforms_active():
        return fake
    with torch.enable_grad():
        return _History.apply(fake)
