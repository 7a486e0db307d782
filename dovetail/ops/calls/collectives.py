"""What processes compute together: PyTorch's functional collectives, as library calls that return with the result.

    wait_tensor(all_reduce(x, "sum", group))    ->    one call

In eager mode a collective runs beside what follows it, until somebody waits. Kernels here may write over memory that
nobody reads any more, and a collective that still runs reads its input: so waiting is a part of the call. Where a
program is laid out, they are two (`ops/own/collectives.py`). Every process makes the same calls in the same order,
since they have effects, and are never left out or put in another order, nor joined unless the user asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.ops.lowering.registry import Rows

_SPACE = torch.ops._c10d_functional
_KNOWN = """all_reduce all_gather_into_tensor reduce_scatter_tensor all_to_all_single broadcast
    all_reduce_coalesced all_gather_into_tensor_coalesced reduce_scatter_tensor_coalesced""".split()
NAMES = [name for name in _KNOWN if hasattr(_SPACE, name)]
#: What gives the same to whoever gives it the same, and of these what may reduce by adding: `f(x, operation, ...)`.
COLLECTIVES: frozenset[Any] = frozenset(getattr(_SPACE, name).default for name in NAMES)
REDUCING: frozenset[Any] = frozenset(
    getattr(_SPACE, name).default for name in ("all_reduce", "reduce_scatter_tensor") if name in NAMES
)
ADDING = ("sum", "avg")
_BELOW = torch._C._AutoDispatchBelowAutograd


class Begun:
    """The collective alone. What is compiled has no history here, and asking for one is Python code of PyTorch's that
    takes longer than the call."""

    def __init__(self, name: str) -> None:
        self.operator: Any = getattr(_SPACE, name).default
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _BELOW():
            return self.operator(*args, **kwargs)

    def __reduce__(self) -> Any:
        return type(self), (self.__name__,)


def wait(begun: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Their results, which what follows may read: on this thread, or on the device's current queue."""
    operator = _SPACE.wait_tensor.default
    with _BELOW():
        return [operator(tensor) for tensor in begun]


class WaitedFor(Begun):
    """A collective that returns when it is done."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = super().__call__(*args, **kwargs)
        return wait([found])[0] if isinstance(found, torch.Tensor) else wait(found)


def _refused(*args: Any, **kwargs: Any) -> Any:
    raise Unsupported(
        "no-shape-rule", "a collective writes to what it is given, or a message is sent, while the program goes on",
        "Use the collective that returns a new tensor.",
    )  # fmt: skip


ROWS = Rows()
for _name in NAMES:
    ROWS.library(f"_c10d_functional::{_name}", callee=WaitedFor(_name), fresh=True)
for _name in "isend irecv batch_p2p_ops all_reduce_ all_reduce_coalesced_ broadcast_".split():
    ROWS.library(f"_c10d_functional::{_name}", shape=_refused)
