"""Library operators whose calls need care."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def _keeping(operator: Any) -> Callable[..., Any]:
    """The operator, keeping what a backward pass needs: its kernel asks for the grad mode to know whether it must."""

    def call(*args: Any) -> Any:
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return operator(*args)

    return call


#: What to call in an operator's place.
CALLEES: dict[Any, Callable[..., Any]] = {
    aten.mkldnn_rnn_layer.default: _keeping(aten.mkldnn_rnn_layer.default),
}

#: Results whose sizes nobody can tell before the call: only the operator's own derivative reads them.
OPAQUE: dict[Any, frozenset[int]] = {
    aten.mkldnn_rnn_layer.default: frozenset((3,)),
    aten._embedding_bag.default: frozenset((1, 2, 3)),
}

#: Operators whose result begins where their first argument does in its storage; all others begin a storage.
KEEPS_OFFSET = frozenset({aten.as_strided_scatter.default})
