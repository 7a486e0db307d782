"""A kernel written by a template, as one text: an operator's argument that says all that a launch needs.

{"symbol": "attention_forward_1f2e", "text": "import triton ...", "numbers": [2048], "strides": [[64, 1], ...], ...}

Sizes that vary are symbols in it, by name; the operator is given the value of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

import torch

from dovetail.ir import dimforms, dims
from dovetail.ir.devices import HOST
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.kernel import GpuLaunch
from dovetail.ir.records import dataclass
from dovetail.ir.stores import remembered

Numbers = tuple[Dim, ...]


@dataclass(frozen=True)
class Result:
    """A tensor that the kernel fills, or adds to (`zeroed`); `dtype` as programs write it: "float32"."""

    dtype: str
    sizes: Numbers
    strides: Numbers
    zeroed: bool = False

    @property
    def type(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.dtype)
        return found


@dataclass(frozen=True)
class Template:
    """The kernel takes the given tensors, which must have these `strides`, the results, and `numbers`: `ir/kernel.py`.

    It gives the number of one of the `messages` where a check has failed. On a GPU it takes the `table` of integers
    behind the results, and what its text does not say is in `launch`.
    """

    symbol: str
    text: str
    strides: tuple[Numbers, ...]
    results: tuple[Result, ...]
    numbers: Numbers
    messages: tuple[str, ...] = ()
    table: tuple[int, ...] = ()
    launch: GpuLaunch | None = None

    @property
    def runner(self) -> str:
        """The module that launches it."""
        return f"dovetail.runtime.{'gpu' if self.launch else HOST.type}.templates"

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """What the numbers are computed from."""
        rows = [*self.strides, self.numbers, *(row for r in self.results for row in (r.sizes, r.strides))]
        return tuple(sorted({symbol for row in rows for dim in row for symbol in dims.symbols(dim)}))

    def changed(self, of: Callable[[Any], Any]) -> Template:
        """With each number replaced."""

        def each(row: Iterable[Any]) -> tuple:
            return tuple(map(of, row))

        results = tuple(replace(r, sizes=each(r.sizes), strides=each(r.strides)) for r in self.results)
        return replace(self, strides=tuple(map(each, self.strides)), results=results, numbers=each(self.numbers))

    def code(self) -> str:
        """The template as one text, with the names of its symbols."""
        as_text = self.changed(lambda n: n if isinstance(n, int) else str(n))
        return json.dumps(asdict(as_text) | {"symbols": [symbol.name for symbol in self.symbols]})


@remembered(256)
def template_of(code: str, sizes: Numbers = ()) -> Template:
    """The template that `Template.code` has written; `sizes` are the values of its symbols."""
    found = json.loads(code)
    names = dict(zip(found.pop("symbols"), sizes, strict=True))
    found |= {name: tuple(found[name]) for name in ("messages", "table")}
    found["results"] = tuple(Result(**r) for r in found["results"])
    if found["launch"]:
        found["launch"] = GpuLaunch(**found["launch"] | {"arguments": tuple(found["launch"]["arguments"])})
    template = Template(**found)
    return template.changed(lambda n: n if isinstance(n, int) else dimforms.parse(n, names))
