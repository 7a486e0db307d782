"""Which tensors share memory, and what that memory holds now.

A `Base` is memory; its value is a node of the graph, replaced at every write. A `Handle` is one
tensor seen by the program: the base itself, or a view made from another handle. A view's node is
made again from the base's when the base has been written to since.

    y = x.view(-1)        Handle(y) = view of Handle(x)
    y.add_(1)             base(x).node = view(add(view(x)));  version 1
    x * 2                 reads base(x).node
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import torch
import torch.fx

from dovetail.ir.records import dataclass
from dovetail.ops.fake.rules.layout import is_one
from dovetail.ops.fake.symbolic.size_questions import all_same, same


@dataclass(slots=True, eq=False)
class Base:
    """`tensor` is the one that has the memory in eager; `node` its value now, `first` at the start.

    `position`: of the placeholder that is this memory. `fresh`: made anew on every call, so
    writing to it and returning it concern nobody else. `start` is what the tensor's version counter says at first.
    """

    node: torch.fx.Node
    first: torch.fx.Node
    tensor: Any
    position: int | None = None
    fresh: bool = True
    version: int = 0
    start: int = 0


@dataclass(slots=True, eq=False)
class TakenView:
    """How a view is made from its parent: `operator(parent, *args, **kwargs)`, then `[index]`.

    `grad` is the grad mode that it was made in.
    """

    operator: Any
    args: tuple
    kwargs: dict[str, Any]
    index: int | None
    grad: bool = field(default_factory=torch.is_grad_enabled)


@dataclass(slots=True, eq=False)
class Handle:
    """`tensor` has eager's metadata; `node.meta["val"]` what the graph's tensor has, nearly always the same.

    `made` is the node whose `val` is `tensor` itself, whatever the value is now; `counter` a tensor that has eager's
    version counter. `parent` is where the value comes from; `caller` the tensor that the view was asked of, which is
    another one for as_strided: it reads all memory, but its gradient is that of its caller's elements. `since` is what
    the caller's version counter said when the view was made: PyTorch compares that with what it says later. `became`:
    the tensor, which is no view, has been given another shape in place since; this is what it was.
    """

    tensor: Any
    base: Base
    node: torch.fx.Node | None
    version: int
    parent: Handle | None = None
    view: TakenView | None = None
    pick: tuple[torch.fx.Node, int] | None = None  # the node is `pick[0][pick[1]]`, made when first needed
    asked: Handle | None = None
    made: torch.fx.Node | None = field(default=None, init=False)
    counter: Any = field(default=None, init=False)
    since: int = field(default=0, init=False)
    became: Handle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.counter = self.tensor
        self.made = self.node or (self.pick[0] if self.pick else None)
        if self.caller is not None and not self.caller.counter.is_inference():
            self.since = self.caller.counter._version

    @property
    def caller(self) -> Handle | None:
        return self.asked or self.parent


def same_layout(a: Any, b: Any) -> bool:
    """Would an operator see any difference?"""
    return a is b or (
        all_same(a.shape, b.shape) and all_same(a.stride(), b.stride())
        and same(a.storage_offset(), b.storage_offset()) and a.dtype == b.dtype
    )  # fmt: skip

def same_steps(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal strides wherever a stride is ever used."""
    return all(is_one(n) or same(s, t) for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))
