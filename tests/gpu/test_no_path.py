"""Nothing is looked for in PATH: no host C compiler, no `ptxas`, no `nvcc`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PROGRAM = """
import torch
import torch.nn.functional as F

import dovetail
from dovetail.runtime.gpu import loading

del loading.assemble  # no kernel is compiled in this process
layers = torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.LayerNorm(64)
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.Adam(model.parameters())
compiled = dovetail.compile(model)
x = torch.randn(32, 64, device="cuda")
for _ in range(4):
    optimizer.zero_grad()
    compiled(x).square().sum().backward()
    optimizer.step()
model.eval()
torch.testing.assert_close(dovetail.compile(model)(x), model(x), rtol=1e-4, atol=1e-4)
print(F.softmax(x, -1).shape == dovetail.compile(lambda x: F.softmax(x + 1, -1).cumsum(-1))(x).shape)
"""


def test_it_compiles_and_runs_with_an_empty_path(tmp_path):
    """In a process of its own, with nothing on disk yet."""
    folder = str(Path(__file__).parents[2])
    removed = ("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "TRITON_PTXAS_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= {"PATH": "", "PYTHONPATH": folder, "DOVETAIL_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
    assert any((tmp_path / "kernels").rglob("*")), "the kernels were not compiled here"
