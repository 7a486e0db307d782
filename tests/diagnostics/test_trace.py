"""`DOVETAIL_TRACE`: a record of every compilation that outlives the process, whatever ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import warnings
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail.diagnostics.trace import trace
from tests.forks import python

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_TRACE", str(tmp_path / "trace"))
    return tmp_path / "trace"


def events(folder: Path, name: str = "") -> list[dict]:
    found = [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
    return [event for event in found if name in ("", event["event"])]


def texts(folder: Path, kind: str) -> list[str]:
    known = {event["digest"]: event["text"] for event in events(folder, "text")}
    return [known[event["digest"]] for event in events(folder, "artifact") if event["kind"] == kind]


def run(text: str, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    program = folder.parent / "program.py"
    program.write_text("import torch, dovetail\n" + text)
    given = {**os.environ, "DOVETAIL_TRACE": str(folder), "PYTHONPATH": str(ROOT), **environment}
    return python(str(program), env=given)


def two_graphs(x, n):
    y = torch.sin(x) + n
    dovetail.graph_break()
    return torch.softmax(y * 2, -1)


def test_nothing_is_recorded_unless_asked_for(monkeypatch) -> None:
    monkeypatch.delenv("DOVETAIL_TRACE", raising=False)
    assert trace() is None


def test_a_compilation_is_recorded_from_its_start_to_its_end(folder) -> None:
    compiled = dovetail.compile(two_graphs)
    compiled(torch.ones(2, 3), 1)
    compiled(torch.ones(2, 3), 2)
    (process,) = events(folder, "process")
    assert process["pid"] == os.getpid() and process["rank"] is None and process["torch"] == torch.__version__
    functions = [event["function"] for event in events(folder, "compile")]
    assert functions == ["two_graphs", "two_graphs (resumed)", "two_graphs"]
    assert [event["outcome"] for event in events(folder, "done")] == ["compiled"] * 3
    (again,) = (event for event in events(folder, "compile") if event["reasons"])
    assert again["index"] == 1 and again["reasons"][0][0].startswith("n == 1 (actual 2)")
    stages = [event for event in events(folder, "stage") if event["id"] == again["id"]]
    assert [stage["name"] for stage in stages][:2] == ["capture", "normalize"]
    assert all(stage["seconds"] > 0 and stage["began"] >= again["time"] - 0.01 for stage in stages)
    assert len(texts(folder, "guards")) == len(texts(folder, "graph_code")) == 3


def test_a_break_has_its_cause_its_remedy_and_its_line_with_columns(folder) -> None:
    dovetail.compile(two_graphs)(torch.ones(2, 3), 1)
    (found,) = events(folder, "break")
    place = found["stack"][-1]
    assert found["code"] == "explicit-break" and found["remedy"] and not found["whole"]
    assert place["source"][place["column"] : place["end_column"]] == "dovetail.graph_break()"


def test_what_cannot_be_compiled_at_all(folder) -> None:
    with pytest.raises(dovetail.GraphBreakError):
        dovetail.compile(two_graphs, fullgraph=True)(torch.ones(2), 1)
    (found,) = events(folder, "break")
    (ended,) = events(folder, "done")
    assert found["whole"] and ended["outcome"].startswith("failed in capture")


def test_a_warning_that_a_function_runs_eagerly(folder) -> None:
    def backend(gm, inputs):
        raise ValueError("no")

    with dovetail.config.patch(suppress_errors=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dovetail.compile(two_graphs, backend=backend)(torch.ones(2), 1)
    assert "eagerly" in events(folder, "warning")[0]["message"]


def test_kernels_name_every_line_that_they_compute(folder) -> None:
    def fused(x):
        y = torch.sin(x)
        z = y * 2
        return z.sum(-1)

    dovetail.compile(fused)(torch.ones(4, 8))
    (text,) = texts(folder, "kernels")
    told = json.loads(text)
    (step,) = told["steps"]
    sources = [told["places"][told["stacks"][k][-1]]["source"].strip() for k in step["lines"]]
    assert sources == ["y = torch.sin(x)", "z = y * 2", "return z.sum(-1)"]
    assert [name.partition("_")[0] for name in step["operators"]] == ["sin", "mul", "sum"]
    assert step["read_bytes"] == 4 * 8 * 4 and step["written_bytes"] == 4 * 4 and told["exact"]
    start, end = told["kernels"][step["symbol"]]["text"]
    assert f"@{step['symbol']}" in texts(folder, "kernel_code")[0][start:end]
    assert told["memory"]["inputs"] == 128 and told["memory"]["outputs"] == 16


def test_what_is_stored_in_an_input_has_its_lines(folder) -> None:
    def update(x, y):
        y.mul_(2)
        x.add_(y.sin())

    dovetail.compile(update)(torch.ones(8), torch.ones(8))
    (text,) = texts(folder, "kernels")
    told = json.loads(text)
    lines = {told["places"][told["stacks"][k][-1]]["source"].strip() for step in told["steps"] for k in step["lines"]}
    assert lines == {"y.mul_(2)", "x.add_(y.sin())"}


def test_a_step_of_an_optimizer_has_lines(folder) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    step = dovetail.compile(optimizer.step)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        step()
    programs = [json.loads(text) for text in texts(folder, "kernels")]
    assert all(step["lines"] for told in programs for step in told["steps"])


def test_library_calls_and_training_have_their_lines(folder) -> None:
    def loss(x, w):
        return torch.relu(x @ w).sum()

    dovetail.compile(loss)(torch.ones(64, 64, requires_grad=True), torch.ones(64, 64, requires_grad=True)).backward()
    parts = {told["part"]: told for told in map(json.loads, texts(folder, "kernels"))}
    assert set(parts) == {"forward", "backward"}
    for told in parts.values():
        library = [step for step in told["steps"] if step["kind"] == "library"]
        assert library and all("mm" in step["operators"][0] for step in library)
    assert all(step["lines"] for step in parts["forward"]["steps"])


def test_each_part_of_a_backward_pass_has_the_line_that_it_differentiates(folder) -> None:
    """In a region that begins with what an earlier one computed, too."""

    def f(x, w):
        dovetail.graph_break()
        h = torch.nn.functional.gelu(x)
        h = h @ w
        return h.softmax(-1)

    dovetail.compile(f)(torch.ones(64, 8, requires_grad=True), torch.ones(8, 8, requires_grad=True)).sum().backward()
    programs = [json.loads(text) for text in texts(folder, "kernels")]
    told = next(told for told in programs if told["part"] == "backward")
    lines = {
        operator.rpartition("_")[0] or operator: told["places"][told["stacks"][k][-1]]["source"].strip()
        for step in told["steps"] for k in step["lines"][-1:] for operator in step["operators"]
    }  # fmt: skip
    assert lines["gelu_backward"] == "h = torch.nn.functional.gelu(x)"
    assert lines["aten.mm"] == "h = h @ w"
    assert lines["_softmax_backward_data"] == "return h.softmax(-1)"


def test_so_has_a_backward_pass_inside_of_a_graph(folder) -> None:
    def step(x, w):
        h = torch.nn.functional.gelu(x @ w)
        h.sum().backward()
        return w.grad

    dovetail.compile(step, fullgraph=True)(torch.ones(64, 8), torch.ones(8, 8, requires_grad=True))
    (told,) = map(json.loads, texts(folder, "kernels"))
    of = {o.rpartition("_")[0] or o: step["lines"] for step in told["steps"] for o in step["operators"]}
    lines = [told["places"][told["stacks"][k][-1]]["source"].strip() for k in of["gelu_backward"]]
    assert "h = torch.nn.functional.gelu(x @ w)" in lines, (lines, of)


def test_a_text_is_written_once(folder) -> None:
    for _ in range(2):
        dovetail.reset()
        dovetail.compile(two_graphs)(torch.ones(2, 3), 1)
    digests = [event["digest"] for event in events(folder, "text")]
    assert len(digests) == len(set(digests)) < len(events(folder, "artifact"))


def test_no_data_of_tensors_is_written(folder) -> None:
    weight = torch.full((3,), 12345.678)
    module = torch.nn.Linear(3, 3)
    torch.nn.init.constant_(module.weight, 87654.321)

    def function(x):
        return module(x) + weight + torch.tensor([1.0, 2.0, 3.0]) * x

    dovetail.compile(function)(torch.full((3,), 55555.25))
    written = "".join(path.read_text() for path in folder.iterdir())
    assert not re.search(r"(?<!\d)(12345|87654|55555)\.", written)  # digits of times may be any


def test_a_killed_process_leaves_whole_lines(folder) -> None:
    done = run("""
import os, signal
def backend(graph, inputs):
    os.kill(os.getpid(), signal.SIGKILL)
dovetail.compile(lambda x: x + 1)(torch.ones(2))
dovetail.compile(lambda x: x * 2, backend=backend)(torch.ones(2))
""", folder)  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert [event["id"] for event in events(folder, "done")] == [0]
    assert [event["id"] for event in events(folder, "compile")] == [0, 1]
    assert [event["name"] for event in events(folder, "stage") if event["id"] == 1] == ["capture"]


def test_the_time_that_the_compiler_takes_to_load_is_a_stage_of_the_first_compilation(folder) -> None:
    run("dovetail.compile(lambda x: x + 1)(torch.ones(2)); dovetail.compile(lambda x: x + 2)(torch.ones(2))", folder)
    assert {e["id"] for e in events(folder, "stage") if e["name"] == "imports"} == {0}
    begun, first = events(folder, "compile")[0], events(folder, "stage")[0]
    assert first["name"] == "imports" and first["began"] - begun["time"] < first["seconds"] + 0.5


def test_each_rank_and_each_fork_has_its_own_file(folder) -> None:
    program = """
import os
compiled = dovetail.compile(lambda x: x + 1)
compiled(torch.ones(2))
if os.environ["RANK"] == "1":
    child = os.fork()
    dovetail.compile(lambda x: x * 3)(torch.ones(3))
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
"""
    for rank in "01":
        assert run(program, folder, RANK=rank, WORLD_SIZE="2", OMP_NUM_THREADS="1").returncode == 0
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 3 and ["_rank0_" in name for name in names] == [True, False, False]
    for path in folder.iterdir():
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert found[0]["event"] == "process" and found[0]["ranks"] == 2
        assert f"_rank{found[0]['rank']}_{found[0]['pid']}." in path.name
        known = {event["digest"] for event in found if event["event"] == "text"}
        assert known == {event["digest"] for event in found if event["event"] == "artifact"}


def test_a_folder_that_cannot_be_written_to_is_said_once(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    program = "for k in range(3): print(dovetail.compile(lambda x: x + k)(torch.ones(1)).item())"
    done = run(program, tmp_path / "trace", DOVETAIL_TRACE=str(tmp_path / "file" / "trace"))
    assert done.stdout.split() == ["1.0", "2.0", "3.0"]
    assert done.stderr.count("cannot be written to") == 1 and "DOVETAIL_TRACE" in done.stderr


def test_recording_imports_no_more_than_compiling(folder) -> None:
    done = run("""
import sys
dovetail.compile(lambda x: x + 1)(torch.ones(2))
print([name for name in sys.modules if name.split(".")[0] in ("sympy", "jinja2")])
""", folder)  # fmt: skip
    assert done.stdout == "[]\n" and texts(folder, "graph_code")
