"""Gradients that the program sets to None before it computes anything: their memory is free before the graph runs.

    opt.zero_grad()                   _set(p, 'grad', None)
    loss_of(model, x).backward()      _o = graph(...)
    opt.step()                        _set(p, 'grad', _o[0])

Otherwise old and new gradients would lie in memory together, which they never do in eager mode.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.values.base import Session
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.records import dataclass
from dovetail.ir.source import Attr, Source


@dataclass(frozen=True)
class Freed:
    """`unseen`: nothing in the program referred to the old gradient when `.grad` became None."""

    parameter: Source
    unseen: bool

    @property
    def gradient(self) -> Source:
        """The path to the gradient."""
        return Attr(self.parameter, "grad")


class Gradients:
    """What a capture knows of the gradients that parameters had at first, and of histories of views from outside.

    `readers` are nodes with the source of such a view that they read.
    """

    def __init__(self) -> None:
        self.freed: list[Freed] = []
        self.readers: list[tuple[Any, Source]] = []
        self.written = False  # has something from outside changed, which views may be views of though nobody knows?
        self.turned = False  # does something from outside require gradients, or not, which views may be views of?
        self.reshapes = False  # does a leaf get another shape? PyTorch remembers the first while a result is alive
        self.leaves: list[tuple[Any, int]] | None = []  # of the graph's own, with their versions; None: it makes none
        self.recorded = torch.is_grad_enabled()  # does eager mode record what the program does from its beginning?
        self.opaque: set[type] = set()  # autograd functions whose backward is not traced
        self.hooks: list = []  # registered by the program, in order
        self.from_outside = False  # has a backward pass gone through what was computed before the graph?
        self._alone: dict[int, tuple[Any, int]] = {}  # references to a value that only capture's tables refer to

    def met(self, value: Any) -> None:
        """The program reads this gradient for the first time."""
        count = sys.getrefcount(value)
        self._alone[id(value)] = value, count

    def set_to_none(self, s: Session, parameter: TensorValue) -> None:
        """Called before the store. A graph that computes first may fail while eager still has the gradient."""
        real = parameter.origin
        if real is None or parameter.source is None or "grad" in parameter.written or not real.is_leaf:
            return
        if len(s.root.nodes) > len(s.taken.inputs):
            return
        known = None if real.grad is None else s.objects.by_identity.get(id(real.grad))
        self.freed.append(Freed(parameter.source, known is None or self._is_alone(known)))

    def _is_alone(self, value: Any) -> bool:
        kept, count = self._alone.get(id(value), (None, 0))
        return kept is value and sys.getrefcount(value) <= count + 2  # the table and `kept`


def lines(
    s: Session, load: Callable[[Source], str], later: list[str], repeated: bool
) -> tuple[list[Source], list[str], list[str]]:
    """The gradients to let go, the lines that do it, and those that come before the program is repeated in Python.

    `load` gives a text for what a source leads to. `later` is what the residual does after the graph; `repeated`: where
    that fails, the program starts anew. It then comes to the same place whatever the gradients' elements are, for
    nothing has looked at them.
    """
    if any(READS.search(line) for line in later):
        return [], [], []
    found = [f for f in s.gradients.freed if f.unseen or not repeated]
    texts = [load(f.parameter) for f in found]
    restored = [f"_set({text}, 'grad', _zeros_like({text}))" for text in texts] if repeated else []
    return [f.gradient for f in found], [f"_set({text}, 'grad', None)" for text in texts], restored


READS = re.compile(r"\.grad\b")
NAMES = {"_zeros_like": torch.zeros_like}
