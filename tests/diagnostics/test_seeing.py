"""Logs, dumps, times and explanations show what happened, and cost nothing when nobody asks."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail.diagnostics import logs
from dovetail.diagnostics.events import CompileRecord, Events
from tests.forks import python

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def _quiet():
    yield
    dovetail.set_logs()


def scaled(x, k=2.0):
    y = torch.sin(x)
    return y * k


def compiled():
    return dovetail.compile(scaled, backend="eager")


# ---------------------------------------------------------------- events


class Kept:
    def __init__(self, *kinds: str) -> None:
        self.kinds, self.texts = kinds, {}

    def wants(self, kind: str) -> bool:
        return kind in self.kinds

    def write(self, record: CompileRecord, kind: str, text: str) -> None:
        self.texts[kind] = text


def test_artifacts_are_made_only_when_wanted() -> None:
    one, two, calls = Kept("a"), Kept("a", "b"), []
    events = Events(sinks=[one, two])
    for kind in "abc":
        events.artifact(kind, lambda kind=kind: calls.append(kind) or kind.upper())
    assert calls == ["a", "b"] and one.texts == {"a": "A"} and two.texts == {"a": "A", "b": "B"}


def test_stages_nest_and_failures_name_their_stage() -> None:
    events = Events()
    with events.stage("outer"), events.stage("inner"):
        assert events.current == "inner"
    assert [(s.name, s.depth) for s in events.record.stages] == [("outer", 0), ("inner", 1)]
    assert events.record.seconds == events.record.stages[0].seconds >= events.record.stages[1].seconds
    with pytest.raises(KeyError), events.stage("broken"):
        raise KeyError
    assert events.current == "broken"


# ---------------------------------------------------------------- logs


def test_parsing() -> None:
    assert logs.parse("guards, +recompiles,-schedule,") == {
        "guards": logging.INFO, "recompiles": logging.DEBUG, "schedule": logging.ERROR,
    }  # fmt: skip
    assert set(logs.parse("all")) == set(logs.NAMES)
    with pytest.raises(dovetail.InvalidArgument, match="output_code"):
        logs.parse("guards,nonsense")


def test_components() -> None:
    assert set(logs.parse("+dynamo,+aot,+inductor")) == set(logs.NAMES)
    assert logs.parse("dynamo,+guards")["guards"] == logging.DEBUG and "trace_bytecode" not in logs.parse("dynamo")
    assert logs.parse("aot") == {"aot_graphs": logging.INFO, "aot_joint_graphs": logging.INFO}


def test_set_logs_checks() -> None:
    for wrong in ({"nonsense": True}, {"guards": "loud"}):
        with pytest.raises(dovetail.InvalidArgument):
            dovetail.set_logs(**wrong)


def test_chosen_logs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    dovetail.set_logs(guards=True, graph_code=True, recompiles=True)
    fn = compiled()
    fn(X)
    fn(X, 3.0)
    shown = capsys.readouterr().err
    assert "x.shape == (2, 3)" in shown and "torch.sin" in shown
    assert "Recompiling function scaled in" in shown and "test_seeing.py" in shown and "k == 2.0 (actual 3.0)" in shown
    dovetail.set_logs()
    fn(X, 4.0)
    assert capsys.readouterr().err == ""


def test_what_a_call_does_is_shown_after_its_program(capsys: pytest.CaptureFixture[str]) -> None:
    def stores(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1).t()

    dovetail.set_logs(output_code=True)
    try:
        dovetail.compile(stores)(torch.ones(2, 3))
    finally:
        dovetail.set_logs()
    _, program, call = capsys.readouterr().err.split("output_code: [")
    assert "def run(block, " in program and "def call(*inputs):\n    if overlapping(inputs):\n" in call


def test_a_log_switched_off_among_all(capsys: pytest.CaptureFixture[str]) -> None:
    dovetail.set_logs(all=True, guards=False)
    compiled()(X)
    shown = capsys.readouterr().err
    assert " graph_code: [" in shown and " guards: [" not in shown


def test_graph_breaks_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    dovetail.set_logs(graph_breaks=True)
    with pytest.raises(dovetail.GraphBreakError):
        dovetail.compile(lambda x: x + len(open(os.devnull).read()), backend="eager", fullgraph=True)(X)
    assert "cannot be captured as one graph" in capsys.readouterr().err


def run(program: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(dovetail.__file__).parents[1])
    return python("-c", program, cwd=tmp_path, env=os.environ | {"PYTHONPATH": root} | environment)


PROGRAM = """
import torch, dovetail
def wave(x):
    return torch.softmax(torch.sin(x) * 2, -1)
with torch.no_grad():
    dovetail.compile(wave)(torch.ones(4, 8))
"""


def test_environment_chooses_logs_and_dumps(tmp_path: Path) -> None:
    done = run(PROGRAM, tmp_path, DOVETAIL_LOGS="output_code,kernel_code,schedule", DOVETAIL_COMPILE_DEBUG="1")
    for kind in ("output_code", "kernel_code", "schedule"):
        assert f" {kind}: [wave #0]" in done.stderr, done.stderr[-2000:]
    assert " guards: [" not in done.stderr
    (folder,) = (tmp_path / "dovetail_debug").iterdir()
    assert folder.name == "0_wave"
    kinds = [p.stem.split("_", 1)[1] for p in sorted(folder.iterdir())]
    for kind in ("graph_code", "aot_graphs", "lowered", "schedule", "output_code", "kernel_code", "guards", "summary"):
        assert kind in kinds
    assert "compiled" in next(folder.glob("*_summary.txt")).read_text()


def test_a_wrong_log_name_in_the_environment_is_named_and_the_others_count(tmp_path: Path) -> None:
    done = run(PROGRAM, tmp_path, DOVETAIL_LOGS="gards,graph_code")
    assert done.returncode == 0 and "unknown log 'gards'" in done.stderr and "output_code" in done.stderr
    assert "torch.softmax" in done.stderr


WRONG = {
    "RECOMPILE_LIMT": ("4", "nothing reads the environment variable DOVETAIL_RECOMPILE_LIMT; did you mean"),
    "ZZZ": ("", "nothing reads the environment variable DOVETAIL_ZZZ; there are DOVETAIL_RECOMPILE_LIMIT, "),
    "RECOMPILE_LIMIT": ("four", "DOVETAIL_RECOMPILE_LIMIT takes an integer, not 'four'"),
    "STRICT": ("maybe", "DOVETAIL_STRICT takes 1 or 0, not 'maybe'"),
    "NUMERICS": ("fast", "DOVETAIL_NUMERICS takes 'default', 'eager', not 'fast'"),
    "REPRO_LEVEL": ("7", "DOVETAIL_REPRO_LEVEL takes 0, 1, 2, 3, 4, not '7'"),
    "REORDERABLE_LOGGING_FUNCTIONS": ("print", "DOVETAIL_REORDERABLE_LOGGING_FUNCTIONS takes nothing: set it in the"),
}


def test_a_wrong_variable_is_named_and_stops_nothing(tmp_path: Path) -> None:
    variables = {f"DOVETAIL_{name}": value for name, (value, _) in WRONG.items()}
    done = run("import dovetail; print(dovetail.config.recompile_limit)", tmp_path, **variables)
    assert done.returncode == 0 and done.stdout == "8\n"
    for _, words in WRONG.values():
        assert words in done.stderr


def test_help_lists_every_log(tmp_path: Path) -> None:
    done = run("import dovetail", tmp_path, DOVETAIL_LOGS="help")
    assert done.returncode == 0 and all(name in done.stderr for name in (*logs.NAMES, *logs.COMPONENTS))


def test_logs_in_a_file_of_a_rank(tmp_path: Path) -> None:
    program = PROGRAM.replace("(torch.ones(4, 8))", "(torch.ones(4, 8))\n    print('end')")
    (tmp_path / "program.py").write_text(program)
    done = run("import runpy; runpy.run_path('program.py')", tmp_path, DOVETAIL_LOGS="graph_code,dynamic",
                  DOVETAIL_LOGS_OUT="log.txt", RANK="3")  # fmt: skip
    assert done.stdout == "end\n" and done.stderr == ""
    head = r"\d\d:\d\d:\d\d\.\d{3} \[rank3\] program.py:3 graph_code: \[wave #0\]\n"
    assert re.match(head, (tmp_path / "log.txt").read_text())


def test_a_file_that_cannot_be_written_to(tmp_path: Path) -> None:
    done = run(PROGRAM, tmp_path, DOVETAIL_LOGS="graph_code", DOVETAIL_LOGS_OUT="no/such/folder")
    assert done.returncode == 0 and "cannot be written to" in done.stderr and "graph_code: [wave #0]" in done.stderr


def test_a_failed_compilation_is_dumped(tmp_path: Path) -> None:
    def backend(gm, inputs):
        raise ValueError("no")

    with dovetail.config.patch(compile_debug=True, debug_dir=str(tmp_path)), pytest.raises(dovetail.BackendError):
        dovetail.compile(scaled, backend=backend)(X)
    (summary,) = tmp_path.rglob("*_summary.txt")
    assert "failed in backend: BackendError" in summary.read_text()


# ---------------------------------------------------------------- times, explain


def test_compile_times() -> None:
    dovetail.reset()
    fn = compiled()
    fn(X)
    fn(X, 3.0)
    table = dovetail.compile_times()
    rows = {line.split()[0]: line.split() for line in table.splitlines()}
    assert rows["capture"][1] == rows["guards"][1] == rows["total"][1] == "2"
    headers, values = dovetail.compile_times(repr="csv")
    assert headers == ["capture", "guards"] and len(values) == 2
    assert len(dovetail.compile_times(repr="csv", aggregate=True)[1]) == 1


def test_explain_has_the_documented_layout() -> None:
    answer = dovetail.explain(scaled)(X, 3.0)
    assert (answer.graph_count, answer.graph_break_count, answer.op_count) == (1, 0, 2)
    assert answer.ops_per_graph[0][0] is torch.sin
    heads = [line for line in str(answer).splitlines() if not line.startswith(" ")]
    assert heads == [
        "Graph Count: 1", "Graph Break Count: 0", "Op Count: 2", "Break Reasons:", "Ops per Graph:",
        "Out Guards:", "Compile Times:", "Everything: print(explanation.details())",
    ]  # fmt: skip
    assert "Name: 'x'" in answer.details() and "capture" in answer.compile_times


def test_explain_of_a_layer_fits_one_screen() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    answer = dovetail.explain(layer)(torch.randn(2, 5, 16))
    text = str(answer)
    assert len(text.splitlines()) <= 24 and max(map(len, text.splitlines())) <= 160
    assert re.search(rf"Ops 1: {answer.op_count}: \w+ \d+, ", text) and f"{len(answer.out_guards)}: " in text
    assert len(answer.details().splitlines()) > 5 * len(answer.out_guards)


def test_explain_tells_a_cause_once_with_its_remedy() -> None:
    def reads(x):
        for _ in range(3):
            x = x + len(open(os.devnull).read())
        return x

    answer = dovetail.explain(reads)(X)
    text = str(answer)
    assert answer.graph_break_count == 6 and "Break Reason 1: 3 times" in text and "Break Reason 4" not in text
    assert text.count("What to do: ") == 3 and "Break Reason 4" in answer.details()


def test_explain_of_what_cannot_be_captured() -> None:
    def reads(x):
        return x + len(open(os.devnull).read())

    answer = dovetail.explain(reads)(X)
    assert (answer.graph_count, answer.graph_break_count) == (1, 2)  # the call of open, the call of read
    text = str(answer)
    assert "Break Reason 1:" in text and "<FrameSummary file" in text and " in reads>" in text


def test_explain_of_compiled_things_and_modules() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()).requires_grad_(False)
    fn = compiled()
    assert dovetail.explain(fn)(X).op_count == 2 and not fn._dovetail_dispatcher.entries
    assert dovetail.explain(model)(X).op_count == dovetail.explain(dovetail.compile(model))(X).op_count == 2


def test_explain_raises_the_programs_own_error() -> None:
    with pytest.raises(ZeroDivisionError):
        dovetail.explain(lambda x: x * (1 // 0))(X)
