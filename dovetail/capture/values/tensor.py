"""Tensors: a node of the graph and a fake with the metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail.capture.values.base import NotNative
from dovetail.capture.values.objects import ObjectValue
from dovetail.ir.source import Source


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

    def get_attr(self, s: Any, name: str) -> Any:
        return s.tensor_get_attr(self, name)


class LateTensor(TensorValue):
    """A plain tensor from outside that nothing has looked at yet: all that the entry relies on is that it is one.

    The first look calls `unread`, which gives the graph's input for it, and makes this value that input.
    """

    __slots__ = ()

    def __init__(self, source: Source, unread: Callable[[], TensorValue]) -> None:
        ObjectValue.__init__(self, torch.Tensor, source=source)
        self.unread = unread

    def __getattr__(self, name: str) -> Any:
        if name not in TensorValue.__slots__:
            raise AttributeError(name)
        made = self.unread()
        self.__class__ = TensorValue  # type: ignore[assignment]
        self.node, self.fake, self.origin = made.node, made.fake, made.origin
        return getattr(self, name)
