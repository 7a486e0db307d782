"""Distributed tensors of one process; `tests/distributed/` has those of several."""

from __future__ import annotations

from tests.forks import python

SIZES_THAT_VARY = """
import torch, dovetail, torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
both = [Replicate(), Replicate()]
for shape, placed in (((1,), [Shard(1)]), ((1, 1), [Shard(1), Shard(0)])):
    mesh = init_device_mesh("cpu", shape)

    def program(x):
        return DTensor.from_local(x, mesh, placed).redistribute(placements=both[: mesh.ndim]).to_local() * 2

    compiled = dovetail.compile(program, fullgraph=True, dynamic=True)
    for size in (4, 6):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x), program(x))
print("fine")
"""


def test_what_takes_no_symbols_is_tried_with_the_sizes_of_the_call():
    """PyTorch remembers placements by tensors' sizes."""
    done = python("-c", SIZES_THAT_VARY)
    assert done.stdout.strip() == "fine", done.stderr[-2000:]
