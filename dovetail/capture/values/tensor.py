"""Tensors: a node of the graph and a fake with the metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.fx

from dovetail.capture.values.base import MISSING, NotNative, Session, Value
from dovetail.capture.values.objects import ObjectValue
from dovetail.ir.source import Source
from dovetail.ops.fake.wrapped import CODE, is_wrapper

DISABLED = torch._C._disabled_torch_function_impl
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer))


class TensorValue(ObjectValue):
    """A tensor in the graph.

    `source` is set while the value is an input object itself, so returning it returns that object.
    """

    __slots__ = ("node", "fake", "origin", "unread")

    def __init__(self, node: torch.fx.Node, fake: Any, cls: type = torch.Tensor, source: Source | None = None) -> None:
        super().__init__(cls, source=source)
        self.node, self.fake = node, fake
        self.origin: torch.Tensor | None = None  # an input's own tensor, whose metadata may be looked at

    def native(self) -> Any:
        raise NotNative(self)

    def key(self) -> Any:
        """One that has attributes is found by the path to it, too."""
        return self

    def get_attr(self, s: Session, name: str) -> Any:
        return s.tensor_get_attr(self, name)

    def set_instance_attr(self, s: Session, name: str, new: Any) -> None:
        self.refuse_change(s, name)
        super().set_instance_attr(s, name, new)

    def del_instance_attr(self, s: Session, name: str) -> bool:
        self.refuse_change(s, name)
        return super().del_instance_attr(s, name)

    def refuse_change(self, s: Session, name: str) -> None:
        """Of a tensor that is made of others: operators may depend on what is stored there."""
        if name != "grad" and is_wrapper(self.fake):
            s.unsupported(
                CODE, f"the code changes {name!r} of a {self.cls.__name__}, which its __torch_dispatch__ may look at",
                "Change it outside the compiled function.",
            )  # fmt: skip


def as_tensor(value: Value | None) -> TensorValue:
    """The value, which is known to be a tensor."""
    assert isinstance(value, TensorValue), value
    return value


class ChosenTensor(TensorValue):
    """`yes if condition else no`; its node is a copy of it. See `capture/tensors/extremes.py`."""

    __slots__ = ("condition", "yes", "no")

    def __init__(self, copy: TensorValue, condition: TensorValue, yes: Value, no: Value) -> None:
        super().__init__(copy.node, copy.fake, copy.cls if yes.cls is not no.cls else yes.cls)
        self.condition, self.yes, self.no = condition, yes, no

    def get_attr(self, s: Session, name: str) -> Any:
        if name in OF_ONE_TENSOR or s.static(self.cls, name) is MISSING:
            refuse_choice(s, f"reads {name!r} of a tensor")
        return super().get_attr(s, name)

    def set_instance_attr(self, s: Session, name: str, value: Value) -> None:
        refuse_choice(s, f"stores {name!r} on a tensor")


#: Attributes that tensors have which are alike in everything else.
OF_ONE_TENSOR = frozenset(("grad", "grad_fn", "is_leaf", "output_nr"))


class ChosenNumber(Value):
    """A tensor or a number, which one only the graph knows; `chosen` has both, and a copy that is a tensor."""

    __slots__ = ("s", "chosen")

    def __init__(self, s: Session, chosen: ChosenTensor) -> None:
        super().__init__()
        self.s, self.chosen = s, chosen

    @property
    def cls(self) -> type:  # type: ignore[override]
        return refuse_choice(self.s, "needs the type of a value")

    def describe(self) -> str:
        return "a tensor or a number"


class Answer(Value):
    """`bool(tensor)` of a tensor with one element; nobody knows it before the graph has run."""

    __slots__ = ("tensor",)
    cls = bool

    def __init__(self, tensor: Any) -> None:
        super().__init__()
        self.tensor = tensor

    def key(self) -> Any:
        raise NotNative(self)

    def describe(self) -> str:
        return "an answer that a tensor holds"


class LazyTensor(TensorValue):
    """A plain tensor from outside that nothing has looked at yet: all that the entry relies on is that it is one.

    The first look makes this value the graph's input for it.
    """

    __slots__ = ()

    def __init__(self, s: Session, real: torch.Tensor, source: Source) -> None:
        ObjectValue.__init__(self, torch.Tensor, source=source)
        self.unread = s, real

    def __getattr__(self, name: str) -> Any:
        if name not in ("node", "fake", "origin"):
            raise AttributeError(name)
        s, real = self.unread
        assert self.source is not None
        made = as_tensor(s.wrap_tensor(real, self.source))
        self.__class__ = TensorValue  # type: ignore[assignment]
        del self.unread
        self.node, self.fake, self.origin = made.node, made.fake, made.origin
        s.objects.by_identity[id(real)] = s.objects.by_fake[id(made.fake)] = self
        return getattr(self, name)


#: Attributes that native code stores, from `tensors/tensor_attributes.py`; False: not this way.
TENSOR_STORES: dict[str, Callable[[Session, TensorValue, Value], bool]] = {}


def refuse_change(s: Session, value: Value) -> None:
    """Neither the tensor nor those that it was chosen from may come to require gradients, or to be leaves."""
    if any(value in (chosen, chosen.yes, chosen.no) for chosen in s.tensors.chosen):
        refuse_choice(s, "changes what a tensor is to autograd")


def refuse_choice(s: Session, what: str) -> NoReturn:
    """Never returns."""
    s.unsupported(
        "chosen-tensor", f"the code {what} that min() or max() gave or was given, and which one it gave is not known"
    )
