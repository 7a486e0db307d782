"""What makes the first step of an optimizer like the others, so that one compilation serves them all.

    state = self.state[p]
    if len(state) == 0:                              # in the first step only
        state["exp_avg"] = torch.zeros_like(p)

An optimizer of PyTorch's makes such state in a method of its own, from the parameters alone. It runs before it is
traced, on the real optimizer, and so makes what it would make in the step. And gradients become None whatever they
were, where PyTorch asks first.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.capture.tables.known_callables import INLINE, known
from dovetail.capture.values.base import MISSING, TRUE, Args, Kwargs, Session, Value
from dovetail.capture.values.containers import DictValue, ListValue
from dovetail.capture.values.tensor import TensorValue

_CLASSES = [c for c in vars(torch.optim).values() if isinstance(c, type) and "_init_group" in vars(c)]


@known(*(c._init_group for c in _CLASSES))  # type: ignore[attr-defined]
def _with_state(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`optimizer._init_group(group, ...)`, with empty lists that it fills."""
    if s.prepared is None or kwargs or len(args) < 2:
        return INLINE
    optimizer, group, *lists = args
    real, settings = (getattr(value, "real", MISSING) for value in (optimizer, group))
    plain = isinstance(group, DictValue) and not group.changed and all(map(_is_new, lists))
    if plain and real is not MISSING and settings is not MISSING:
        lacking = [p for p in settings["params"] if not real.state.get(p) and _has_gradient(s, p)]
        if lacking and _is_unread(s, real) and _make(real, settings, lacking, len(lists)):
            s.prepared.append(real)
    return INLINE


def _is_new(value: Value) -> bool:
    return isinstance(value, ListValue) and value.real is MISSING and not value.items


def _has_gradient(s: Session, parameter: torch.Tensor) -> bool:
    """At this point of the program: one that is dense."""
    value = s.objects.by_identity.get(id(parameter))
    if value is None:
        return parameter.grad is not None and parameter.grad.layout is torch.strided
    found = s.get_attr(value, "grad")
    return isinstance(found, TensorValue) and found.fake.layout is torch.strided


def _is_unread(s: Session, optimizer: torch.optim.Optimizer) -> bool:
    """Has nothing in the program asked for its state yet, but the step for other groups that were given theirs?"""
    given = any(each is optimizer for each in s.prepared or ())
    return given or id(optimizer.state) not in s.objects.by_identity


def _make(optimizer: Any, group: dict, lacking: list[torch.Tensor], lists: int) -> bool:
    """Is there any now? An error will be raised by the step itself, which goes on as if nothing had been tried."""
    before = [p in optimizer.state for p in lacking]
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad(), _alone(group["params"], lacking):
        try:
            optimizer._init_group(group, *([] for _ in range(lists)))
            made = any(optimizer.state.get(p) for p in lacking)
        except (RuntimeError, ValueError, TypeError):
            made = False
    for parameter, known_before in zip(lacking, before, strict=True):
        if not made and not known_before:
            optimizer.state.pop(parameter, None)
    return made


@contextmanager
def _alone(parameters: list[torch.Tensor], lacking: list[torch.Tensor]) -> Iterator[None]:
    """Only these have gradients: what has their sizes, types and strides, in no memory of its own."""
    before, chosen = [p.grad for p in parameters], set(map(id, lacking))
    try:
        for parameter in parameters:
            parameter.grad = parameter.detach() if id(parameter) in chosen else None
        yield
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient


# ---------------------------------------------------------------- gradients that become None


def _to_none(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


@known(inspect.unwrap(torch.optim.Optimizer.zero_grad))
def _zero_grad(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """`optimizer.zero_grad(set_to_none=True)`."""
    (optimizer, *rest), named = args, list(kwargs.values())
    plain = [value for value in (*rest, *named) if value is not TRUE]
    return INLINE if plain else s.wrap(_to_none, None).call(s, [optimizer], {})
