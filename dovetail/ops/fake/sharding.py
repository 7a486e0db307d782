"""How distributed tensors are laid out after an operator, while what they are made of is recorded.

PyTorch finds out by running the operator on fake tensors of its own, of the whole tensor's size. Those are no part of
the program: modes that record must not see them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

_MODULE, _ASKED = "torch.distributed.tensor._sharding_prop", "_propagate_tensor_meta_non_cached"


@contextmanager
def out_of_sight() -> Iterator[None]:
    """Inside, these questions are asked with no mode in force."""
    asks: Any = getattr(sys.modules.get(_MODULE), "ShardingPropagator", None)
    if asks is None:
        yield
        return
    own = getattr(asks, _ASKED)

    def without_modes(propagator: Any, schema: Any) -> Any:
        with _disable_current_modes():
            return own(propagator, schema)

    setattr(asks, _ASKED, without_modes)
    try:
        yield
    finally:
        setattr(asks, _ASKED, own)
