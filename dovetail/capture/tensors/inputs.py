"""Tensors from outside: inputs of the graph, and what the entry relies on of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from dovetail.capture.numbers import size_inputs
from dovetail.capture.numbers.size_table import placeholder_of
from dovetail.capture.outside.wrap import WRAPPERS, is_alike
from dovetail.capture.tensors import wrapper_tensors
from dovetail.capture.tensors.unusual_tensors import unusual, wrap_unusual
from dovetail.capture.values.base import MISSING, Session, Value
from dovetail.capture.values.tensor import DISABLED, PLAIN, LazyTensor, TensorValue
from dovetail.ir.captured import GraphInput
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Member, Source
from dovetail.ops.fake.wrapped import handles_operators, is_wrapper


def wrap_tensor(s: Session, real: torch.Tensor, source: Source) -> Value:
    """A graph input for a tensor from outside."""
    cls = type(real)
    if cls not in PLAIN:
        _check_class(s, real, source)
    refusal = unusual(real)
    if refusal is not None:
        return wrap_unusual(s, real, source, refusal)
    own, member = source, source
    static = isinstance(source, Member) and not is_alike(s, source) and not size_inputs.is_resized(s, real, source)
    if static:
        s.guard(source, GuardKind.ID, real)
        own = source = s.bind(real, source.name())
    if is_wrapper(real):
        fake = wrapper_tensors.as_input(s, real, source, static)
    else:
        source, fake = _as_plain_input(s, real, source, static)
    node = placeholder_of(s, source)
    node.meta["fake"] = fake
    value = TensorValue(node, fake, cls, own)
    value.origin = real
    if static:
        s.taken.members[member] = value
    s.taken.inputs.append((node, GraphInput(source, fake, static)))
    s.objects.by_fake[id(fake)] = value
    s.objects.by_identity[id(real)] = value
    s.objects.keep.append(real)
    if real.__dict__:
        value.real = real
    return value


def _as_plain_input(s: Session, real: torch.Tensor, source: Source, static: bool) -> tuple[Source, Any]:
    """The source and the fake of the graph's input for a tensor that strides and a type describe."""
    cls, plain = type(real), real
    if s.static(cls, "__torch_function__") not in (DISABLED, MISSING) and cls is not torch.Tensor:
        s.guard(source, GuardKind.TYPE, cls)  # the graph computes with the plain tensor that shares its memory
        source = PlainTensor(source, s.bind(torch.Tensor).index)
        plain = real.as_subclass(torch.Tensor)
    layout = None if static else size_inputs.laid_out(s, real, source)
    facts = size_inputs.tensor_facts(plain)
    s.guard(source, GuardKind.TENSOR, facts if layout is None else layout.applied(facts))
    return source, wrapper_tensors.input_fake(real, None if layout is None else (layout.sizes, layout.strides))


def wrap_late(s: Session, real: torch.Tensor, source: Source) -> Value:
    """A tensor from outside that the program may never look at."""
    if type(real) is not torch.Tensor or real.__dict__ or id(real) in s.objects.by_identity or unusual(real):
        return s.wrap(real, source)
    s.guard(source, GuardKind.TYPE, torch.Tensor)
    value = s.objects.by_identity[id(real)] = LazyTensor(s, real, source)
    s.objects.keep.append(real)
    return value


def _check_class(s: Session, real: torch.Tensor, source: Source) -> None:
    cls = type(real)
    if issubclass(cls, UninitializedTensorMixin):
        s.unsupported("lazy-module", f"{source.name()} gets its shape from the first input")
    if handles_operators(cls) and not is_wrapper(real):
        s.unsupported(
            "tensor-subclass",
            f"{source.name()} is a {cls.__name__}, a tensor class that handles operators itself (__torch_dispatch__)",
            "Define __tensor_flatten__ and __tensor_unflatten__, or pass a plain tensor.",
        )


@dataclass(frozen=True, slots=True)
class PlainTensor(Source):
    """`base.as_subclass(K[index])`, which is torch.Tensor: no class's `__torch_function__` sees it."""

    base: Source
    index: int

    def expr(self) -> str:
        return f"{self.base.expr()}.as_subclass(K[{self.index}])"

    def name(self) -> str:
        return self.base.name()


def release_member(s: Session, member: Member) -> None:
    """A buffer that the program replaces is another tensor in every call: read it, rely only on its metadata."""
    value = s.taken.members.pop(member, None)
    if value is None:
        return
    fixed, value.source = value.source, member
    kept = [g for g in s.relied.guards if not (g.source == member and g.kind is GuardKind.ID)]
    s.relied.guards[:] = [replace(g, source=member) if g.source == fixed else g for g in kept]
    s.taken.inputs[:] = [(n, GraphInput(member, i.fake) if i.fake is value.fake else i) for n, i in s.taken.inputs]


def _wrap_tensor(s: Session, obj: Any, source: Source | None) -> Value:
    return wrap_tensor(s, obj, source if source is not None else s.bind(obj, "tensor"))


WRAPPERS[torch.Tensor] = _wrap_tensor
