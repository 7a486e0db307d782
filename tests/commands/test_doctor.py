"""`dovetail doctor`: programs that nobody made for it, run through the troubleshooting ladder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from rich.console import Console

import dovetail
from dovetail.commands import doctor, findings, ladder, rung, screen
from dovetail.commands.findings import Findings
from dovetail.commands.ladder import LADDER, Noted, Run, Variant
from tests.commands.doctors import InForks
from tests.forks import python

ROOT = str(Path(dovetail.__file__).parents[1])
BEGIN = "import os, sys, torch, dovetail\ntorch.set_num_threads(1)\n"


def processes(tmp_path: Path, program: str, *words: str, given: str = "") -> Any:
    """The doctor and what it runs in processes of their own, quick."""
    script = tmp_path / "program.py"
    script.write_text(BEGIN + program)
    env = {k: v for k, v in os.environ.items() if k != "DOVETAIL_TRACE"} | {"PYTHONPATH": ROOT, "COLUMNS": "100"}
    given_to_it = ("--quick", str(script), *words)
    return python("-m", "dovetail", "doctor", *given_to_it, given=given, cwd=tmp_path, env=env, timeout=600)


@pytest.fixture
def examine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The same with `doctors.InForks`; options may say more than to be quick."""
    monkeypatch.setattr(doctor, "Ladder", InForks)
    monkeypatch.delenv("DOVETAIL_TRACE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def examined(program: str, *options: str, words: tuple[str, ...] = ()) -> Result:
        script = tmp_path / "program.py"
        script.write_text(BEGIN + program)
        return CliRunner().invoke(doctor.command, [*(options or ("--quick",)), str(script), *words])

    return examined


# ---------------------------------------------------------------- programs

TWO = """
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
def halved(gm, inputs):
    return lambda *args: [r * {factor} for r in gm(*args)]
compiled = dovetail.compile(model, backend={backend})
@dovetail.compile(backend="eager")
def loss_of(y, k):
    len(open(os.devnull).name)
    return y.pow(2).mean() * k
for step in range(3):
    loss_of(compiled(torch.randn(2, 4)), 2.5).backward()
"""


WITH_ARGUMENTS = """
lines = sys.stdin.read().split()
open("seen", "a").write(f"{sys.argv[1:]} {lines}\\n")
sys.exit(3)
"""


def test_a_program_that_is_right(tmp_path: Path) -> None:
    """Arguments, input and exit codes are the program's own."""
    program = TWO.format(factor=1, backend="'eager'") + WITH_ARGUMENTS
    done = processes(tmp_path, program, "--quick", "--out", "x", "-m", "7", given="a b\nc\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "seen").read_text() == 2 * "['--quick', '--out', 'x', '-m', '7'] ['a', 'b', 'c']\n"
    assert "6 calls: Sequential, loss_of." in done.stdout and "Right in every run" in done.stdout
    assert re.search(r"1\. _?io.open is code that capture cannot look into +1x", done.stdout)
    line = r"program.py:10 in loss_of  \[opaque-call\]\n +len\(open\(os.devnull\).name\)\n +\^+\n +Call it outside"
    assert re.search(line, done.stdout), done.stdout
    rows = done.stdout.splitlines()
    assert len(rows) <= screen.HEIGHT and max(map(len, rows)) <= 100


def test_a_program_that_is_wrong(examine) -> None:
    done = examine(TWO.format(factor=1.5, backend="halved"))
    assert done.exit_code == 1
    assert "as written: call 1, of Sequential: tensor 1 is off by 0.5" in done.output, done.output


def test_a_program_that_fails_by_itself_is_run_once(examine, tmp_path: Path) -> None:
    done = examine("open('runs', 'a').write('.')\nraise ValueError('mine')", "--timeout", "300")
    assert done.exit_code == 1 and "fails without compiling: ValueError: mine" in done.output
    assert "raise ValueError('mine')" in done.output  # the end of its traceback
    assert (tmp_path / "runs").read_text() == "."


def test_a_program_that_compiles_nothing_is_run_once(examine, tmp_path: Path) -> None:
    done = examine("open('runs', 'a').write('.')", "--timeout", "300")
    assert done.exit_code == 0 and "Put @dovetail.compile before the function" in " ".join(done.output.split())
    assert (tmp_path / "runs").read_text() == "."


def test_a_program_that_ends_early_says_what_it_has_printed(examine) -> None:
    done = examine("import argparse\nargparse.ArgumentParser().parse_args()", words=("--unknown",))
    assert done.exit_code == 1 and "ends with 2 before it calls anything that could be" in done.output
    assert "unrecognized arguments: --unknown" in done.output


def test_another_exit_code_is_a_difference(examine) -> None:
    done = examine("""
compiled = dovetail.compile(lambda x: x + 1)
compiled(torch.ones(2))
sys.exit(5 if hasattr(compiled, "_dovetail_dispatcher") else 0)
""")  # fmt: skip
    assert done.exit_code == 1 and "as written: it ends with 5 instead of 0" in done.output


def test_pytorchs_own_compile_is_stood_in_for(examine) -> None:
    program = """
@torch.compile(mode="default", options=None)
def f(x):
    return x * 2
model = torch.nn.Linear(2, 2)
model.compile(backend="inductor", dynamic=False)
for _ in range(2):
    f(model(torch.ones(2, 2))).sum().backward()
"""
    done = examine(program)
    assert "4 calls: Linear, f." in done.output and "The program calls torch.compile" in done.output, done.output
    assert re.search(r"as written +yes +2 ", done.output)


def test_a_program_that_installs_dovetail(examine) -> None:
    program = """
@torch.compile(mode="max-autotune")
def before(x):
    return x.sin() + 1
with dovetail.install():
    @torch.compile(options={"max_autotune": True})
    def inside(x):
        return torch.compile(lambda y: y * 2)(x) - 1
    inside(torch.ones(3))
before(torch.ones(3))
"""
    done = examine(program)
    assert done.exit_code == 0, done.output
    assert "2 calls: inside, before." in done.output and "Right in every run" in done.output


def test_modules_that_a_program_calls_are_compiled_where_nothing_else_is(examine) -> None:
    program = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)
    def forward(self, x):
        print(x.sum().item())
        return self.inner(x)
net, other = Net(), torch.nn.Linear(1, 1)
for _ in range(3):
    torch.nn.MSELoss()(other(net(torch.randn(2, 4))), torch.zeros(2, 1)).backward()
"""
    done = examine(program)
    words = " ".join(done.output.split())
    assert "compiles nothing. Here the modules that it calls are compiled" in words and "Net, Linear." in words
    assert re.search(r"as written +yes +4 +1 ", done.output) and " program.py:9 in forward" in done.output
    assert "print(x.sum().item())" in done.output, done.output


def test_what_is_not_compiled_is_named_with_its_share(examine) -> None:
    program = """
import time
class Slow(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.05)
        return super().forward(x)
slow, optimizer = Slow(2, 2), torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
compiled = dovetail.compile(lambda x: x + 1)
for _ in range(4):
    compiled(slow(torch.ones(2, 2)))
    optimizer.step()
"""
    done = examine(program)
    assert re.search(r"Not compiled\n.*Slow, program.py:12: 4 calls, [89]\d% of the time", done.output), done.output


def test_processes_that_a_program_starts(examine) -> None:
    program = """
import multiprocessing
def work(k):
    def f(x):
        y = x * k
        dovetail.graph_break()
        return y + 1
    dovetail.compile(f)(torch.ones(3))
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=work, args=(2,))
    process.start()
    process.join()
"""
    done = examine(program)
    assert "Only processes that the program starts call something compiled" in done.output, done.output
    assert "dovetail.graph_break()" in done.output and "[explicit-break]" in done.output


LAUNCHER = """
import os, subprocess, sys
told = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29617"}
started = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, **told, "RANK": k}) for k in "01"]
sys.exit(max(each.wait() for each in started))
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed")
def test_ranks_are_compared_one_by_one(tmp_path: Path) -> None:
    """As a launcher starts them, which is the program that the doctor runs."""
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "ranks.py").write_text(BEGIN + """
import torch.distributed as dist
dist.init_process_group("gloo")
factor = 1 if dist.get_rank() == 0 else 3
compiled = dovetail.compile(lambda x: x * 2, backend=lambda gm, inputs: lambda *a: [r * factor for r in gm(*a)])
compiled(torch.ones(2))
dist.destroy_process_group()
""")  # fmt: skip
    runs = ladder.Ladder([str(tmp_path / "launcher.py"), str(tmp_path / "ranks.py")], 300, tmp_path)
    eager, written = runs.run(ladder.EAGER, None), runs.run(ladder.WRITTEN)
    assert [one.rank for one in eager.noted] == ["0", "1"] and len(written.compilations) == 1
    assert findings.difference(eager, None, written).startswith("rank 1: call 1, of <lambda>: tensor 1 is off by 2")


def test_a_run_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text("import subprocess\nsubprocess.run(['sleep', '600'])\n")
    run = ladder.Ladder([str(script)], 3, tmp_path).run(ladder.EAGER)
    assert run.failure == "it did not end within 3 s" and not run.first.calls


def test_the_machines_own_sitecustomize_runs_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.known = 1")
    script = tmp_path / "program.py"
    script.write_text("import sys, torch\nassert sys.known == 1 and not any('startup' in p for p in sys.path)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "own"), ROOT]))
    run = ladder.Ladder([str(script)], 300, tmp_path).run(ladder.EAGER)
    assert (run.code, run.failure) == (0, ""), run.printed


def test_a_seeded_fault_is_found_and_its_stage_is_named(tmp_path: Path) -> None:
    """Of lowering: what is captured is right, and so are the graphs of PyTorch's operators."""
    script = tmp_path / "program.py"
    script.write_text(BEGIN + """
from dovetail.ops.table import ROWS
ROWS["aten::sin"] = ROWS["aten::cos"]
compiled = dovetail.compile(lambda x: x.sin() * 2)
for _ in range(3):
    compiled(torch.randn(8))
""")  # fmt: skip
    taken = [way for way in LADDER if not way.name.startswith("dynamic")]
    runs, found = InForks([str(script)], 300, tmp_path), None
    for way in (ladder.EAGER, *taken, ladder.DECOMPOSED):
        run = runs.run(way)
        found = found or Findings(run)
        if way is not ladder.EAGER:
            found.add(way.name, run)
    shown = "\n".join(screen._verdict(found, 100))
    assert "as written: call 1, of <lambda>: tensor 1 is off by" in shown
    assert "What is wrong comes from the default backend" in shown and "decomp_partition' it is right" in shown


# ---------------------------------------------------------------- the ladder


def noted(*results: Any, **fields: Any) -> Run:
    calls = [call(*result) if isinstance(result, tuple) else call(result) for result in results]
    return Run([Noted(calls=calls, **fields)])


def call(*results: torch.Tensor, error: str = "", exact: list[torch.Tensor] | None = None) -> dict[str, Any]:
    made = vars(rung.RecordedCall("f", "f.py:1", 0.0, 0.1, list(results), exact, error))
    return dict(made)


ONE = torch.tensor([1.0, 2.0])


def climb(wrong: dict[str, Any], quick: bool = False) -> tuple[Findings, list[str]]:
    """The findings where the ways of these names give something else, and the ways that were taken."""
    taken: list[str] = []

    def step(way: Variant, modules: int | None) -> Run:
        taken.append(way.name)
        return wrong.get(way.name) or noted(ONE)

    return doctor.climbed(step, quick), taken


EVERY = ["eager", "eager again", *(way.name for way in LADDER)]
TRIED = ["fallback_random=True", "numerics='eager'", "check_kernels=True"]  # cudagraphs: only where there is a GPU


def test_all_ways_are_taken_and_no_settings_tried_where_all_is_right() -> None:
    found, taken = climb({})
    assert taken == EVERY and not found.first and screen.show(Console(quiet=True), found) == 0


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_table_fits_the_window(width: int) -> None:
    found, _ = climb({"as written": noted(ONE * 2)})
    lines = list(screen._lines(found, width))
    table = [line.replace("[red]", "").replace("[/red]", "") for line in lines if "MiB" in line or "peak" in line]
    assert max(map(len, table or lines)) <= width and ("first call" in "".join(lines)) == (width >= 100)


def test_settings_are_tried_for_the_first_way_that_is_wrong() -> None:
    ways = ("as written", "dynamic=True", "dynamic=False", *TRIED)
    found, taken = climb(dict.fromkeys(ways, noted(ONE * 2)))
    assert taken == [*EVERY, "decomp_partition", *TRIED] and found.first == "as written"
    assert screen.show(Console(quiet=True), found) == 1


def test_cuda_graphs_are_turned_off_where_there_is_a_gpu() -> None:
    bad = {"as written": noted(ONE * 2, on_gpu=True)}
    assert "cudagraphs=False" in climb({**bad, "eager": noted(ONE, on_gpu=True)})[1]


def test_other_random_numbers_are_no_fault() -> None:
    bad = noted(ONE * 2)
    settings = {"check_kernels=True": bad, "numerics='eager'": bad}
    found, _ = climb({"as written": bad, "dynamic=True": bad, "dynamic=False": bad, **settings})
    assert "Only random numbers are others" in "\n".join(screen._verdict(found, 100))
    assert screen.show(Console(quiet=True), found) == 0


def test_what_fullgraph_asks_for_is_not_looked_into() -> None:
    found, taken = climb({"as written": Run(failure="GraphBreakError: [x] y")})
    assert taken == EVERY and "fullgraph=True asks for this error" in "\n".join(screen._verdict(found, 100))


def test_a_run_that_fails_has_nothing_to_try() -> None:
    assert climb({"eager": Run(failure="ValueError: x")})[1] == ["eager"]
    assert climb({"eager": Run([Noted()])})[1] == ["eager"]
    assert climb({"eager": Run([Noted()], elsewhere=True)})[1] == ["eager", "as written"]


BLAMED = {
    "capture": "backend='eager'",
    "the graphs of PyTorch's operators and their gradients": "backend='aot_eager'",
    "sizes that may change": "dynamic=True",
    "sizes as constants": "dynamic=False",
}


@pytest.mark.parametrize("stage", BLAMED)
def test_the_first_run_that_is_wrong_names_the_stage(stage: str) -> None:
    first = [way.name for way in LADDER].index(BLAMED[stage])
    last = first + 1 if BLAMED[stage].startswith("dynamic") else len(LADDER)
    found, _ = climb({way.name: noted(ONE * 2) for way in LADDER[first:last]})
    assert f"What is wrong comes from {stage}." in "\n".join(screen._verdict(found, 100))


# ---------------------------------------------------------------- what differs

DIFFERENCES = {
    "equal": (call(ONE), call(ONE.clone()), ""),
    "rounding": (call(ONE), call(ONE * (1 + 1e-6)), ""),
    "values": (call(ONE), call(ONE * 1.1), "tensor 1 is off by 0.1"),
    "nan": (call(ONE), call(ONE / 0 * 0), "tensor 1 is another"),
    "dtype": (call(ONE), call(ONE.double()), "tensor 1 is another"),
    "count": (call(ONE), call(ONE, ONE), "2 tensors instead of 1"),
    "error": (call(ONE), call(error="ValueError: x\nmore"), "it raises ValueError: x instead of nothing"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_counts_as_different(name: str) -> None:
    want, got, words = DIFFERENCES[name]
    told = findings.difference(Run([Noted(calls=[want])]), None, Run([Noted(calls=[got])]))
    assert told.partition(": ")[2] == words


def test_as_far_from_float64_as_eager_is_right() -> None:
    exact = ONE.double()
    eager, ours = noted(ONE * 1.01), noted(ONE * 0.985)
    again = Run([Noted(calls=[call(ONE * 1.01, exact=[exact])])])
    assert findings.difference(eager, None, ours) and not findings.difference(eager, again, ours)
    assert findings.difference(eager, again, noted(ONE * 0.9))


def test_gradients_that_are_nothing_but_rounding_may_be_others() -> None:
    """The bias of an attention's keys has none: softmax does not see it."""
    large, nothing = torch.full((4,), 100.0), torch.tensor([1e-6, -2e-6])
    eager = noted(ONE, gradients=[large, nothing])
    assert not findings.difference(eager, None, noted(ONE, gradients=[large, -nothing]))
    assert "tensor 1" in findings.difference(eager, None, noted(ONE, gradients=[large * 1.1, nothing]))
    small = noted(ONE, gradients=[large, torch.full((2,), 0.5)])
    assert "tensor 2" in findings.difference(small, None, noted(ONE, gradients=[large, torch.full((2,), 0.6)]))


def test_parameters_are_compared_together_in_the_end() -> None:
    eager = noted(ONE, state=[torch.ones(1000), torch.zeros(2)])
    assert not findings.difference(eager, None, noted(ONE, state=[torch.ones(1000), torch.full((2,), 1e-3)]))
    words = findings.difference(eager, None, noted(ONE, state=[torch.full((1000,), 1.1), torch.zeros(2)]))
    assert words == "the parameters at the end are off by 0.1"


def test_a_step_that_returns_nothing_is_compared_by_what_it_changes(examine) -> None:
    done = examine("""
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
@dovetail.compile(backend="eager")
def step(x):
    loss = model(x).sum()
    loss.backward()
    if hasattr(step, "_dovetail_dispatcher") and not dovetail.is_compiling():
        model.weight.grad.mul_(2)
    optimizer.step()
def wrong(gm, inputs):
    return lambda *a: [r * 2 if r.shape == (2, 2) else r for r in gm(*a)]
step = dovetail.compile(step, backend=wrong)
step(torch.ones(2, 2))
""")  # fmt: skip
    assert "parameters at the end are off" in done.output or "gradients at the end" in done.output, done.output
