"""Compile a function once with symbolic sizes, and run what comes out at any.

Sizes are named by the caller: `Built(fn, (x, 3.0), "b t 64", None)` makes the first two dimensions of x symbols. Equal
names are one symbol; a number in the place of a name, or a `.`, stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dovetail import pipeline
from dovetail.diagnostics.events import Events
from dovetail.ir import dims, dimvalues
from dovetail.ops.fake import FakeTensor
from dovetail.ops.fake.rules.layout import dense_order
from dovetail.ops.fake.symbolic.sizes import Sizes
from dovetail.ops.fake.symbolic.symint import symint
from dovetail.options import Options


class Watched(Events):
    """Keeps the texts of every stage."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}

    def artifact(self, kind: str, make: Callable[[], str]) -> None:
        self.texts.setdefault(kind, []).append(make())


class Built:
    """`call(*args)` runs the compiled program; `sizes.facts` is what it relies on."""

    def __init__(
        self, fn: Any, args: tuple[Any, ...], *names: str | None, grad: bool = False, backend: Any = None
    ) -> None:
        self.sizes = Sizes(lambda: "here")
        self.symbols: dict[str, Any] = {}
        self.graph = torch.fx.symbolic_trace(fn) if not isinstance(fn, torch.fx.GraphModule) else fn
        wanted = (*names, *[None] * (len(args) - len(names)))
        self.fakes = [self.fake(a, n) for a, n in zip(args, wanted, strict=True)]
        self.events = Watched()
        with torch.set_grad_enabled(grad):
            self.call = (backend or pipeline.compile_graph)(self.graph, self.fakes, Options(), self.events)

    def size(self, name: str, number: int) -> Any:
        if name == "." or name.isdigit():
            return number
        if name not in self.symbols:
            self.symbols[name] = self.sizes.symbol(name, number)
        assert self.sizes.hint(self.symbols[name]) == number, f"{name} is {number} and something else"
        return symint(self.sizes, self.symbols[name])

    def fake(self, value: Any, names: str | None) -> Any:
        if not isinstance(value, torch.Tensor):
            return value if names is None else self.size(names, value)
        if names is None:
            sizes, strides = tuple(value.shape), value.stride()
        else:
            sizes = tuple(map(self.size, names.split(), value.shape))
            strides = self.strides(value, sizes)
        return FakeTensor(sizes, strides, value.dtype, value.device, value.storage_offset(), value.requires_grad)

    def strides(self, value: torch.Tensor, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """In terms of the sizes where the tensor is dense."""
        order = dense_order(value.shape, value.stride())
        if order is None:
            return value.stride()
        strides: list[Any] = [1] * len(sizes)
        step: Any = 1
        for d in reversed(order):
            strides[d] = step
            step = step * sizes[d]
        return tuple(strides)

    def text(self, kind: str) -> str:
        return "\n".join(self.events.texts.get(kind, []))

    @property
    def facts(self) -> list[str]:
        return [str(f) for f in self.sizes.facts]

    def holds(self, **values: int) -> bool:
        """Do the facts hold at these sizes?"""
        env = {dims.as_symbol(self.symbols[n]): v for n, v in values.items()}
        for fact in self.sizes.facts:
            value = dimvalues.evaluate(fact.dim, env)
            if not {"==": value == 0, "!=": value != 0, ">=": value >= 0}[fact.sign]:
                return False
        return True
