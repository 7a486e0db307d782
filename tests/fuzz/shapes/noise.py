"""Which results of a program are decided by rounding: eager mode itself gives others when every operator is a bit off.

The gradient of a standard deviation of equal numbers is one, and so is the sign of what is 0 up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

#: A few units in the last place of float32.
SIZE = 1e-6
RUNS = 5
#: In this run what is all but nothing is nothing; no random number is that.
NOTHING = 0

#: These give what they were given, or parts of it.
EXACT = frozenset(
    "_to_copy _unique2 abs amax amin cat clamp clone constant_pad_nd embedding expand_copy fill flip gather index "
    "index_put index_select lift_fresh_copy masked_fill masked_select max maximum min minimum neg new_full new_ones "
    "new_zeros full_like ones_like zeros_like relu repeat repeat_interleave roll scatter select_backward "
    "slice_backward sort stack threshold_backward topk tril triu unfold_backward unique_consecutive unique_dim where "
    "as_strided_scatter select_scatter slice_scatter diagonal_backward value_selecting_reduction_backward".split()
)  # fmt: skip


class Shaken(TorchDispatchMode):
    """Adds to every result that may have been rounded, by the size of the result and of what it was made of."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator, self.seed = torch.Generator().manual_seed(seed), seed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        shared = any(r.alias_info is not None for r in func._schema.returns)
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if shared or not given or func.overloadpacket.__name__ in EXACT:
            return found
        scale = max(map(_largest, given))
        return tree_map(lambda x: self.shaken(x, scale), found)

    def shaken(self, x: Any, scale: float) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        if self.seed == NOTHING:
            return torch.where(x.abs() < SIZE * scale, 0.0, x)
        first, second = (torch.randn(x.shape, generator=self.generator) for _ in range(2))
        return torch.where(x.isfinite(), x * (1 + SIZE * first) + SIZE * scale * second, x)


def _largest(x: torch.Tensor) -> float:
    finite = x.detach()[x.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0
