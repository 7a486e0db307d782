"""Calls that the graph makes as they are: of classes whose tensors are made of others, and of functions on such tensors
that are PyTorch's own.

    Int8Tensor(data, scale, [1, 64], settings)    ->    %made = call_function[Int8Tensor](%data, %scale)

What the class does is not traced, like its `__torch_dispatch__`; it runs on tensors without memory, here and where the
graph is taken apart. What is given beside tensors is part of the function that the node calls, since a graph is text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.tensors.operations import plain_call
from dovetail.capture.tensors.wrapper_tensors import rely_on_class
from dovetail.capture.values.base import Args, Const, Kwargs, NotNative, Session, Value
from dovetail.capture.values.callables import ClassValue, KnownValue
from dovetail.capture.values.containers import SequenceValue
from dovetail.capture.values.number import SymbolicNumber
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Computed
from dovetail.ops.calls.whole_call import TensorSlot, WholeCall
from dovetail.ops.fake.wrapped import CODE, copied, says_what_it_is_made_of

#: Known by their identity: there is one of each, which other processes know as well.
ALONE = frozenset(("torch.distributed.device_mesh.DeviceMesh",))


def makes_tensors(s: Session, cls: type) -> bool:
    """Is it a class of tensors that are made of others, which makes them itself?"""
    return issubclass(cls, torch.Tensor) and says_what_it_is_made_of(cls)


def make_tensor(s: Session, cls: type, args: Args, kwargs: Kwargs) -> Value:
    """`cls(*args, **kwargs)`."""
    rely_on_class(s, cls)
    return call_whole(s, cls, args, kwargs)


def call_whole(s: Session, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    given = _Given(s)
    positional = tuple(given.place(value) for value in args)
    named = {name: given.place(value) for name, value in kwargs.items()}
    made = plain_call(s, WholeCall(function, positional, named), given.tensors, {})
    if isinstance(made, TensorValue):
        for name, attribute in getattr(made.fake, "__dict__", {}).items():
            if id(attribute) in given.objects:
                made.attrs[name] = given.objects[id(attribute)]
    return made


class _Given:
    """The tensors and open numbers among arguments, and the objects beside them, by their identity."""

    def __init__(self, s: Session) -> None:
        self.s = s
        self.tensors: list[Value] = []
        self.objects: dict[int, Value] = {}

    def place(self, value: Value) -> Any:
        if isinstance(value, TensorValue) or isinstance(value, SymbolicNumber) and value.open:
            self.tensors.append(value)
            return TensorSlot(len(self.tensors) - 1)
        if isinstance(value, SequenceValue):
            items = [self.place(item) for item in value.all(self.s)]
            return items if issubclass(value.cls, list) else tuple(items)
        return self.held(value)

    def held(self, value: Value) -> Any:
        """An object that every call has: the same one, or one that is equal to it."""
        s = self.s
        try:
            native = value.native()
        except NotNative:
            native = value
        if native is value or not isinstance(value, (Const, ClassValue, KnownValue, ObjectValue)):
            s.unsupported(CODE, f"{value.describe()} is handed to code that makes a tensor of others")
        if isinstance(value, ObjectValue):
            self.rely_on(value, native)
            self.objects[id(native)] = value
        return native

    def rely_on(self, value: ObjectValue, native: Any) -> None:
        if value.source is None:
            return
        if f"{value.cls.__module__}.{value.cls.__qualname__}" in ALONE:
            self.s.guard(value.source, GuardKind.ID, native)
            return
        check = _Alike(copied(native))
        if not check(native):
            self.s.unsupported(
                CODE, f"{value.describe()} is handed to code that makes a tensor, and does not equal a copy of itself",
                "Give its class an __eq__.",
            )
        self.s.guard(Computed("{}({})", (self.s.bind(check, "is_alike"), value.source)), GuardKind.ID, True)


@dataclass(frozen=True, slots=True)
class _Alike:
    kept: Any

    def __call__(self, found: Any) -> bool:
        return type(found) is type(self.kept) and bool(found == self.kept)
