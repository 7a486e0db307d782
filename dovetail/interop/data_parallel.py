"""Who wants gradients before a backward pass is over: what averages them over processes while the rest is computed, and
what updates a parameter when its gradient is there, so that this need not stay.

The first kind hears of a gradient by hooks that nothing in Python can list: a program of several processes is taken to
have some. The other kind has its hooks on parameters. `fully_shard` is of neither: it takes the gradients of a module
when all of them are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import distributed, nn

from dovetail.ir.sharded import sharded

FIRST = 1 << 20  # bytes of the first bucket, which is small, so that sending begins early,
OTHERS = 25 << 20  # and of each later one: the defaults of `DistributedDataParallel`


def bucket_bytes(fn: Any, given: Iterable[Any]) -> tuple[int, int] | None:
    """How many bytes of gradients are wanted together, at first and later, in a call of `fn` that is `given` these
    arguments; None where nobody waits for them."""
    several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    replicas = nn.parallel.DistributedDataParallel._get_active_ddp_module() if several else None
    waits = several and (replicas is not None or not sharded())
    if not waits and not _has_hooks((fn, getattr(fn, "__self__", None), *given)):
        return None
    others = OTHERS if replicas is None else int(replicas.bucket_bytes_cap)
    return min(FIRST, others), others


def _has_hooks(values: Iterable[Any]) -> bool:
    modules = (value for value in values if isinstance(value, nn.Module))
    return any(p._post_accumulate_grad_hooks for module in modules for p in module.parameters())
