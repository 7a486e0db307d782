"""Who wants gradients before a backward pass is over: what averages them over processes while the rest is computed.

Such code hears of a gradient when PyTorch's engine has accumulated it, by hooks that nothing in Python can list. So a
program of several processes is taken to have some.
"""

from __future__ import annotations

from torch import distributed, nn

FIRST = 1 << 20  # bytes of the first bucket, which is small, so that sending begins early,
OTHERS = 25 << 20  # and of each later one: the defaults of `DistributedDataParallel`


def bucket_bytes() -> tuple[int, int] | None:
    """How many bytes of gradients are wanted together, at first and later; None where nobody waits for them."""
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return None
    replicas = nn.parallel.DistributedDataParallel._get_active_ddp_module()  # around the function that is compiled
    others = OTHERS if replicas is None else int(replicas.bucket_bytes_cap)
    return min(FIRST, others), others
