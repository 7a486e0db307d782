"""What a node calls that hands the call on as it is, to a class or a function of tensors that are made of others.

What is given beside tensors is part of it, since a graph is text: `DTensor.from_local(x, mesh, [Shard(0)])` is
`WholeCall(DTensor.from_local, (TensorSlot(0), mesh, [Shard(0)]), {})`, called with `x`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """The tensor or number with this index among those that the node takes."""

    index: int


class WholeCall:
    def __init__(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.__name__ = self.__qualname__ = function.__name__

    def __call__(self, *tensors: Any) -> Any:
        return self.function(*_filled(self.args, tensors), **_filled(self.kwargs, tensors))


def _filled(template: Any, tensors: Sequence[Any]) -> Any:
    if isinstance(template, TensorSlot):
        return tensors[template.index]
    if isinstance(template, dict):
        return {name: _filled(item, tensors) for name, item in template.items()}
    if type(template) in (list, tuple):
        return type(template)(_filled(item, tensors) for item in template)
    return template
