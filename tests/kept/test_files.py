"""Compiled programs in files, and the cache's artifacts."""

from __future__ import annotations

import pytest

from tests.kept import processes

PROGRAMS = {
    "a module with its weights": ("""
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.line(x).relu() * 2
""", "M()", "save(c, PATH)", "load(PATH)"),
    "a model that is given": ("""
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.line(x).relu() * 2
torch.manual_seed(1)
""", "M()", "save(c, PATH, weights=False)", "load(PATH, model)"),
    "a function": ("""
def f(x):
    return x.sin() + 1
""", "f", "save(c, PATH)", "load(PATH)"),
}  # fmt: skip


def _program(name: str, path: str) -> tuple[str, str]:
    code, model, save, load = PROGRAMS[name]
    calls = """
x = torch.randn(2, 3)
c = dovetail.{0}
show(c(x))
y = torch.randn(2, 3, requires_grad=True)
out = c(y); out.sum().backward()
show(out, y.grad)
{1}
"""
    writes = code + f"model = {model}" + calls.format("compile(model)", f"dovetail.{save}")
    reads = code + f"model = {model}" + calls.format(load, "")
    return writes.replace("PATH", repr(path)), reads.replace("PATH", repr(path))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_saved_program_runs_without_stages(name, tmp_path):
    writes, reads = _program(name, str(tmp_path / "program.dtc"))
    first = processes.run(writes, tmp_path / "one")
    again = processes.run(reads, tmp_path / "another")
    assert again.shown == first.shown
    assert first.compiled == 2 and again.restored == 2 and not again.compiled, again.stages


EXPORTS = """
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4)).eval()
module = dovetail.export(model, (torch.ones(3, 4),), dynamic_shapes={"input": {0: "n"}}).module()
c = dovetail.compile(module)
x = torch.randn(5, 4)
show(c(x)[0])
dovetail.save(c, PATH)
"""
RUNS = """
c = dovetail.load(PATH)
torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4)).eval()
x = torch.randn(5, 4)
show(c(x)[0])
"""


def test_an_exported_program_needs_nothing_of_the_models(tmp_path):
    path = repr(str(tmp_path / "program.dtc"))
    first = processes.run(EXPORTS.replace("PATH", path), tmp_path / "one")
    again = processes.run(RUNS.replace("PATH", path), tmp_path / "another")
    assert again.shown == first.shown and again.restored == 1 and not again.compiled


PARTLY = """
def f(x, w):
    y = x @ w
    return y.sin(), y.cos(), w * 2
c = dovetail.compile(f)
w = torch.ones(3, 3, requires_grad=True)
c(torch.ones(2, 3), w)[1].sum().backward()
show(w.grad)
"""


def test_backward_programs_of_some_results_are_kept(tmp_path):
    first, again = processes.run(PARTLY, tmp_path), processes.run(PARTLY, tmp_path)
    assert again.shown == first.shown and not again.compiled
    assert "backward lower" in first.stages[0] and "backward lower" not in again.stages[0]
    other = processes.run(PARTLY.replace("[1].sum", "[0].sum"), tmp_path)
    assert other.restored and "backward lower" in other.stages[0]  # the stages are there for what was not kept


REFUSED = {
    "nothing compiled": ("dovetail.save(dovetail.compile(torch.sin), PATH)", "nothing has been compiled"),
    "not compiled by us": ("dovetail.save(torch.sin, PATH)", "what dovetail.compile gave"),
    "a constant of this process": (
        "@dovetail.assume_constant_result\ndef k(): return 3\ndef f(x): return x + k()\n"
        "c = dovetail.compile(f); c(torch.ones(2))\ndovetail.save(c, PATH)", "marked as constant",
    ),
    "no such file": ("dovetail.load(__file__)" if False else "open(PATH, 'w').close(); dovetail.load(PATH)", "damaged"),
    "no artifacts": ("dovetail.load_cache_artifacts(b'abc')", "not what save_cache_artifacts gave"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    program, words = REFUSED[name]
    with pytest.raises(AssertionError, match=words):
        processes.run(program.replace("PATH", repr(str(tmp_path / "p.dtc"))), tmp_path)


CARRIED = """
def f(x):
    return x.sin() * 3
show(dovetail.compile(f)(torch.ones(4)))
"""


def test_artifacts_carry_compilations(tmp_path):
    path = repr(str(tmp_path / "artifacts"))
    taken = f"data, info = dovetail.save_cache_artifacts()\nopen({path}, 'wb').write(data)\nshow(info.files > 2)"
    saves = f"\n{CARRIED}{taken}"
    loads = f"dovetail.load_cache_artifacts(open({path}, 'rb').read())\n" + CARRIED
    first, again = processes.run(saves, tmp_path / "one"), processes.run(loads, tmp_path / "another")
    assert again.shown == first.shown[:-1] and again.restored == 1 and not again.compiled
