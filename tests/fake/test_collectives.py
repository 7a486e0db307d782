"""Compiling makes no collective, whatever the program has imported."""

from __future__ import annotations

from pathlib import Path

from tests.forks import python

PROGRAM = """
import sys, torch, torch.distributed as dist
import dovetail

dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 1), rank=0, world_size=1)
assert "torch.distributed._functional_collectives" not in sys.modules
made = torch.ops._c10d_functional.all_reduce

def summed(x):
    return torch.ops._c10d_functional.wait_tensor(made(x, "sum", dist.group.WORLD.group_name)) + 1

x = torch.ones(3)
assert torch.equal(dovetail.compile(summed, fullgraph=True)(x), x + 1)
print(torch._C._distributed_c10d._get_work_registry_size())
"""


def test_metadata_is_found_without_a_collective(tmp_path: Path) -> None:
    done = python("-c", PROGRAM, str(tmp_path / "meeting"), imported=("torch",))
    assert done.stdout.strip() == "0", done.stdout + done.stderr
