"""What is loaded when: `import dovetail` takes little, and the rest comes with the first compilation."""

from __future__ import annotations

from pathlib import Path

import dovetail
from tests.forks import python

ROOT = str(Path(dovetail.__file__).parents[1])


def printed(program: str) -> list[str]:
    start = "import sys, torch, dovetail\n"
    done = python("-c", start + program, env={"PYTHONPATH": ROOT})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_program_that_compiles_nothing_loads_no_part_of_the_compiler() -> None:
    loaded = printed("""
compiled = dovetail.compile(torch.nn.Linear(2, 2))
with dovetail.disable():
    compiled(torch.ones(2))
print(*(name for name in sys.modules if name.startswith("dovetail.")))
""")
    parts = {name.split(".")[1] for name in loaded}
    heavy = ("capture", "guards", "normalize", "lower", "codegen", "ops", "kept", "assembly", "compilation", "pipeline")
    assert not parts & {*heavy}


def test_modes_of_the_first_call_do_not_change_what_is_loaded() -> None:
    """Modules try things out with tensors of their own."""
    assert printed("""
compiled = dovetail.compile(lambda x: torch.softmax(x.sin(), -1), fullgraph=True)
with torch.inference_mode(), torch.device("meta"), torch.autocast("cpu"):
    compiled(torch.ones(3, device="cpu"))
from dovetail.normalize.outputs import NO_TENSOR
print(NO_TENSOR.is_inference(), NO_TENSOR.device)
x = torch.randn(4, requires_grad=True)
compiled(x).sum().backward()
print(x.grad is not None)
""") == ["False", "cpu", "True"]


def test_no_module_of_the_stages_is_loaded_under_modes_of_the_first_call() -> None:
    assert printed("""
class Seen:
    def find_spec(self, name, *rest):
        if name.startswith("dovetail.") and torch.is_inference_mode_enabled(): print(name)
sys.meta_path.insert(0, Seen())
x, compiled = torch.ones(3), dovetail.compile(lambda x: torch.softmax(x.sin(), -1), fullgraph=True)
with torch.inference_mode():
    compiled(x)
""") == []


def test_modes_around_an_export_neither() -> None:
    assert printed("""
with torch.inference_mode():
    module = dovetail.export(lambda x: x.sin() * 2, (torch.ones(3),)).module()
x = torch.randn(4, requires_grad=True)
dovetail.compile(lambda x: x.sin(), fullgraph=True)(x).sum().backward()
from dovetail.normalize.outputs import NO_TENSOR
print(NO_TENSOR.is_inference(), x.grad is not None, module(torch.ones(3)).shape[0])
""") == ["False", "True", "3"]
