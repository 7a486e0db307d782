"""Compilations with distributed tensors serve other processes in which meshes, placements and groups are the same."""

from __future__ import annotations

from pathlib import Path

from tests.kept import processes
from tests.versions import since

PROGRAM = """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
rows, both = (Shard(0), Replicate()), (Replicate(), Replicate())

def f(x, w):
    return (x @ w).redistribute(placements=both).sin() * 2

def call(mesh, placements):
    x, w = (distribute_tensor(torch.ones(4, 4), mesh, given) for given in (placements, both))
    w.requires_grad_()
    result = dovetail.compile(f, fullgraph=True)(x, w)
    result.to_local().sum().backward()
    show(result.to_local(), w.grad.to_local())
"""
FIRST = """
call(init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b")), rows)
"""
OTHERS = """
mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "c"))
call(mesh, rows)  # other names, and other groups
call(mesh, both)  # other placements
with loss_parallel():  # PyTorch takes operators on distributed tensors as others
    call(mesh, both)
"""


@since(13, "tensors keep their mesh in what they say of themselves, and it is not found again")
def test_another_process_compiles_nothing_where_meshes_are_the_same(tmp_path: Path) -> None:
    first = processes.run(PROGRAM + FIRST, tmp_path)
    second = processes.run(PROGRAM + FIRST + OTHERS, tmp_path)
    assert (first.compiled, second.restored, second.compiled) == (1, 1, 3)
    assert second.shown == first.shown * 4

