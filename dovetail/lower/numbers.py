"""Numbers known only when the program runs: which operators compute with them in loops of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from dovetail.ir.loops import Param
from dovetail.ops import build
from dovetail.ops.table import TAKES_NUMBERS
from dovetail.ops.value import Spec, Value

_PLAIN = frozenset((*build.FLOATS, torch.int64, torch.bool))


def numbers_fit(packet: str, args: Any, kwargs: Any, out: Any) -> bool:
    """May the operator's row see these arguments?

    Where eager looks whether a number fits the dtype that it is converted to, the operator stays a library call.
    """
    given = list(_leaves([args, list(kwargs.values())]))
    numbers = [v for v in given if isinstance(v, Param)]
    if not numbers:
        return True
    if packet not in TAKES_NUMBERS or not isinstance(out, Spec):
        return False
    if out.dtype is torch.int64 and any(n.dtype is torch.float64 for n in numbers):
        return False
    return all(d in _PLAIN for d in (out.dtype, *(v.dtype for v in given if isinstance(v, Value))))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
