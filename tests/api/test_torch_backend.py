"""`torch.compile(f, backend="dovetail")`: PyTorch finds the backend itself, in a program that imports no dovetail."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

import dovetail
from tests.forks import WITH_PYTORCHS_COMPILER, python

ROOT = Path(dovetail.__file__).parents[1]
GROUP = "torch_dynamo_backends"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the path in which a package has the entry points of pyproject.toml."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    folder = tmp_path_factory.mktemp("installed")
    made = folder / "dovetail-0.1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: dovetail\nVersion: 0.1.0\n")
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()) for group, points in found.items()]
    (made / "entry_points.txt").write_text("\n".join(lines))
    return folder


BEGIN = """
import sys, torch
assert not any(name.split(".")[0] == "dovetail" for name in sys.modules)

def compiled(f, **more):
    return torch.compile(f, backend="dovetail", **more)

def kernels():
    from dovetail.diagnostics.times import RECORDS
    found = RECORDS.all()
    assert found and all(record.outcome == "compiled" for record in found), [r.outcome for r in found]
    return found
"""

PROGRAMS = {
    "a function": """
x = torch.randn(8, 16)
f = lambda x: torch.softmax(torch.sin(x) * 2 + x.relu(), -1)
torch.testing.assert_close(compiled(f)(x), f(x))
(record,) = kernels()
assert any(stage.name == "codegen" for stage in record.stages)
assert "dovetail" in torch._dynamo.list_backends()
""",
    "training": """
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2))
x = torch.randn(4, 8, requires_grad=True)
expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
found = torch.autograd.grad(compiled(model)(x).square().sum(), [x, *model.parameters()])
torch.testing.assert_close(found, expected)
kernels()
""",
    "sizes that vary": """
def f(x, n):
    return x.reshape(-1, 2).sum(0) * n + x.shape[0]

g = compiled(f)
for rows, n in ((4, 3), (6, 5), (8, 7), (10, 9)):
    x = torch.randn(rows, 4)
    torch.testing.assert_close(g(x, n), f(x, n))
assert len(kernels()) == 2, "one for constants, one for all others"
""",
    "graph breaks": """
def f(x):
    y = x * 2
    print("between")
    return y + y.sum().item()

x = torch.ones(3)
torch.testing.assert_close(compiled(f)(x), f(x))
assert len(kernels()) == 3  # item ends a graph there
""",
    "writes and views": """
def f(x):
    y = x[1:]
    y.add_(1)
    return y, x.sum()

x, z = torch.zeros(4), torch.zeros(4)
found, expected = compiled(f)(x), f(z)
torch.testing.assert_close((x, *found), (z, *expected))
assert found[0].data_ptr() == x[1:].data_ptr()
kernels()
""",
    "functions that take functions": """
from torch.utils.checkpoint import checkpoint

class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.saved_tensors[0]

@torch.compiler.nested_compile_region
def region(x):
    return x.sin() * 2

layer = torch.nn.Linear(4, 4)
functions = (
    lambda x: checkpoint(lambda y: torch.nn.functional.gelu(layer(y)), x, use_reentrant=False) * 2,
    lambda x: Squared.apply(x) + 1,
    lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)) * 2,
    lambda x: region(x) + region(x + 1),
)
for f in functions:
    x = torch.randn(4, 4, requires_grad=True)
    found, expected = compiled(f)(x), f(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x))
assert len(kernels()) == len(functions) + 1, "a graph ends at what a class of the program computes"
""",
    "modes and options": """
import logging
told = []
handler = logging.Handler()
handler.emit = lambda record: told.append(record.getMessage())
logging.getLogger("dovetail").addHandler(handler)
f, x = lambda x: x.sin() + 1, torch.randn(5)
torch.testing.assert_close(compiled(f, mode="reduce-overhead")(x), f(x))
for _ in range(2):
    torch._dynamo.reset()
    options = {"max_autotune": True, "triton.cudagraphs": False, "recompile_limit": 3}
    torch.testing.assert_close(compiled(f, options=options)(x), f(x))
assert [m for m in told if "max_autotune" in m] == told, told
assert len(told) == 1
kernels()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_imports_no_dovetail(name: str, installed: Path) -> None:
    path = os.pathsep.join(map(str, (installed, ROOT)))
    program, env = BEGIN + PROGRAMS[name] + "\nprint('fine')", os.environ | {"PYTHONPATH": path}
    done = python("-c", program, cwd=installed, env=env, imported=WITH_PYTORCHS_COMPILER)
    assert done.returncode == 0 and done.stdout.split()[-1] == "fine", done.stderr[-3000:]
