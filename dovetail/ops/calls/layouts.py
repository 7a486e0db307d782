"""Which operators compute the same in other layouts of their arguments, and have the layout that fakes say.

`layouts.txt` lists them; experiments made it (`make layouts`), and nobody should edit it. An operator that is not
listed may trust strides, ask for some, or be broken in layouts that eager never gives it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from dovetail.ir.devices import HOST
from dovetail.ops.table import row_of

FILE = Path(__file__).with_suffix(".txt")


def _read(text: str) -> dict[str, frozenset[str]]:
    """The names of each section: `mul:Scalar,Tensor` are `mul.Scalar` and `mul.Tensor`."""
    found: dict[str, frozenset[str]] = {}
    for section in text.split("[")[1:]:
        name, _, words = section.partition("]")
        rows = (word.partition(":")[::2] for word in words.split())
        names = (f"{packet}.{o}" for packet, overloads in rows for o in overloads.split(","))
        found[name] = frozenset(n.removesuffix(".default") for n in names)
    return found


LISTED = _read(FILE.read_text())


@cache
def takes_any_layout(operator: Any, device: str) -> bool:
    """May it be given other strides than in eager, each argument its own?

    On a device without experiments, if loops compute it, which apply strides last, and the CPU does it right.
    """
    if device in LISTED:
        return _name(operator) in LISTED[device]
    return _name(operator) in LISTED[HOST.type] and _in_loops(operator)


@cache
def takes_images(operator: Any, device: str) -> bool:
    """May it be given images with the channels last, if all are?

    On a device without experiments, if loops compute it and the CPU does it right or does not have it.
    """
    name = _name(operator)
    if device in LISTED:
        return name in LISTED[f"{device} images"]
    return _in_loops(operator) and name not in LISTED[f"{HOST.type} neither"]


def _name(operator: Any) -> str:
    return str(operator._name.removeprefix("aten::"))


def _in_loops(operator: Any) -> bool:
    return row_of(operator).lowering is not None
