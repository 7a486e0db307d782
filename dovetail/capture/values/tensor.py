"""Tensors: a node of the graph and a fake with the metadata."""

from __future__ import annotations

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

    __slots__ = ("node", "fake", "origin")

    def __init__(self, node: torch.fx.Node, fake: Any, cls: type = torch.Tensor, source: Source | None = None) -> None:
        super().__init__(cls, source=source)
        self.node, self.fake = node, fake
        self.origin: torch.Tensor | None = None  # an input's own tensor, whose metadata may be looked at

    def native(self) -> Any:
        raise NotNative(self)

    def get_attr(self, s: Any, name: str) -> Any:
        return s.tensor_get_attr(self, name)
