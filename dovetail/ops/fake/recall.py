"""What element-wise operators gave before: hundreds of parameters of one shape ask the same thing.

Such a result follows from the metadata of the tensors, the numbers and the default dtype: they are the key. In place
the result is the first argument, unless something is refused: kernels look at where views lie, so those have no key.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from dovetail.ops.fake.rules import IN_PLACE, is_elementwise

MOST = 4096  # keys for one operator
OWN = object()  # a result: the first argument
_PLAIN = frozenset((int, float, bool, complex, str, type(None), torch.dtype))


class Table(dict[Any, Any]):
    """Results of one operator, each under what it depends on."""

    def __init__(self, in_place: bool) -> None:
        self.in_place = in_place


@cache
def table_of(func: Any) -> Table | None:
    """Where the results of an operator are remembered, if they are."""
    return Table(func in IN_PLACE) if func in IN_PLACE or is_elementwise(func) else None


def key_of(table: Table, args: tuple[Any, ...], kwargs: dict[str, Any], cls: type) -> Any:
    """What the result depends on; None where that is more. `cls` is the class of tensors that count as fake."""
    parts: list[Any] = [torch.get_default_dtype()]
    for value in args if not kwargs else (*args, *kwargs.keys(), *kwargs.values()):
        kind = type(value)
        if kind is cls:
            if value._has_symbolic_sizes_strides or table.in_place and value._is_view():
                return None
            parts += value.shape, value.stride(), value.dtype, value.device
        elif kind in _PLAIN:
            parts += kind, value
        else:
            return None
    return tuple(parts)


def remember(table: Table, key: Any, args: tuple[Any, ...], result: Any, cls: type) -> None:
    if len(table) >= MOST:
        table.clear()
    if args and result is args[0]:
        table[key] = OWN
    elif type(result) is cls:
        table[key] = (result.shape, result.stride(), result.dtype, result.device, result.storage_offset())
