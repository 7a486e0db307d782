"""Distributed tensors and parallel modules, in two processes that talk over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed")

PROGRAM = """
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import dovetail

rank, meeting = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
torch.set_num_threads(1)
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2,))
dovetail.config.strict = True


def plain(tensor):
    if tensor is None or not isinstance(tensor, DTensor):
        return tensor if tensor is None else tensor.detach() + 0  # which waits for what is on its way
    return tensor.placements, tensor.shape, tensor.to_local().detach() + 0


def same(found, expected):
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected):
            same(*pair)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


def outcome(function, inputs):
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
    result = function(*inputs)
    if result.requires_grad:
        local = result.to_local() if isinstance(result, DTensor) else result
        local.sum().backward()
    gradients = [t.grad for t in inputs]
    if isinstance(function, nn.Module):
        gradients += [p.grad for p in function.parameters()]
        function.zero_grad()
    return [plain(t) for t in (result, *gradients)], result.requires_grad


def check(function, *inputs, kernels):
    compiled = dovetail.compile(function, fullgraph=True)
    found = [outcome(compiled, inputs) for _ in range(2)]  # before eager has asked how anything is laid out
    expected = outcome(function, inputs)
    for each in found:
        same(each, expected)
    with torch.profiler.profile() as profile:
        outcome(compiled, inputs)
    names = [event.name for event in profile.events()]
    assert any(name.startswith("dovetail graph") for name in names), names
    ran = [name for name in names if name.startswith("k") and name[1].isdigit()]
    assert len(ran) <= kernels, ran
    return names


def placed(*sizes, where, grad=False):
    return distribute_tensor(torch.randn(sizes), mesh, [where]).requires_grad_(grad)


def gathered(t):
    return (t * 2).redistribute(placements=[Replicate()]).to_local().sin()


def made(x):
    return DTensor.from_local(x * 2, mesh, [Shard(0)], run_check=False).cos().to_local()


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


check(lambda t, u: ((t * u).sin() + 1).relu(), placed(4, 8, where=Shard(0)), placed(4, 8, where=Replicate()), kernels=1)
check(lambda t: (t.sin() * 2 + t).exp(), placed(4, 8, where=Shard(1), grad=True), kernels=2)
check(made, torch.randn(4, 4, requires_grad=True), kernels=3)
names = check(gathered, placed(4, 8, where=Shard(0), grad=True), kernels=4)
assert names.count("_c10d_functional::all_gather_into_tensor") == 1
split = placed(4, 8, where=Shard(1)), placed(8, 4, where=Shard(0))
names = check(lambda t, u: (t @ u).full_tensor() * 2, *split, kernels=1)
assert names.count("_c10d_functional::all_reduce") == 1
assert not any("wrap_tensor" in name for name in names)
model = parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
names = check(model, torch.randn(4, 8), kernels=6)
assert names.count("_c10d_functional::all_reduce") == 1 and not any("Redistribute" in name for name in names)
dist.barrier()
dist.destroy_process_group()
print("done")
"""


def test_programs_on_distributed_tensors_are_one_graph_of_kernels_and_collectives(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    settings = os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "DOVETAIL_CACHE_DIR": str(tmp_path / "kept")}
    command = [sys.executable, "-c", PROGRAM]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")], env=settings, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        texts = [each.communicate(timeout=120)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    for each, text in zip(ranks, texts, strict=True):
        assert each.returncode == 0 and text.rstrip().endswith("done"), text
