"""A kernel written by a template, as one text: an operator's argument that says all that a launch needs.

{"symbol": "attention_forward_1f2e", "text": "import triton ...", "arguments": [...], "programs": 2048, ...}
"""

from __future__ import annotations

import json
from dataclasses import asdict

import torch

from dovetail.ir.records import dataclass
from dovetail.ir.stores import remembered


@dataclass(frozen=True)
class Result:
    """A tensor that the kernel fills, or adds to (`zeroed`); `dtype` as programs write it: "float32"."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    zeroed: bool = False

    @property
    def type(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.dtype)
        return found


@dataclass(frozen=True)
class Template:
    """The kernel takes the given tensors, which must have these `strides`, the results, and the `table` of integers.

    `arguments` are Triton's types of all of them. `checked`: the text has assertions.
    """

    symbol: str
    text: str
    arguments: tuple[str, ...]
    warps: int
    stages: int
    programs: int
    strides: tuple[tuple[int, ...], ...]
    results: tuple[Result, ...]
    table: tuple[int, ...]
    checked: bool = False

    def code(self) -> str:
        """The template as one text."""
        return json.dumps(asdict(self))


@remembered(256)
def template_of(code: str) -> Template:
    """The template that `Template.code` has written."""
    found = json.loads(code)
    results = tuple(
        Result(r["dtype"], tuple(r["sizes"]), tuple(r["strides"]), r["zeroed"]) for r in found.pop("results")
    )
    strides = tuple(map(tuple, found.pop("strides")))
    arguments, table = tuple(found.pop("arguments")), tuple(found.pop("table"))
    return Template(**found, arguments=arguments, table=table, strides=strides, results=results)
