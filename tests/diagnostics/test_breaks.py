"""Each distinct graph break is told once, with a count at the end; what is traced can be watched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail.capture.interpreter.tracing_log import Watch
from dovetail.diagnostics.breaks import BREAKS, BreakLog
from dovetail.errors import Location
from tests.forks import python

PROGRAM = """
import torch, dovetail
def fn(x):
    y = x + 1
    dovetail.graph_break("here")
    return y * 2
compiled = dovetail.compile(fn, backend="eager", dynamic=False)
for n in (3, 4, 5):
    compiled(torch.ones(n))
"""


def run(tmp_path: Path, logs: str) -> str:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    root = str(Path(dovetail.__file__).parents[1])
    done = python(str(script), env=os.environ | {"PYTHONPATH": root, "DOVETAIL_LOGS": logs})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


def test_a_break_is_told_once_and_counted(tmp_path: Path) -> None:
    shown = run(tmp_path, "graph_breaks")
    assert shown.count("What to do:") == 1 and shown.count('graph_break("here")') == 1
    last = shown.splitlines()[-1]
    assert last.strip().startswith("3x  [explicit-break]") and last.endswith("program.py:5 in fn")


def test_repeated_breaks_are_told_to_those_who_want_all(tmp_path: Path) -> None:
    assert run(tmp_path, "+graph_breaks").count("the same graph break again: ") == 2


def test_nothing_is_told_to_those_who_did_not_ask(tmp_path: Path) -> None:
    assert run(tmp_path, "guards").count("explicit-break") == 0


def test_breaks_are_told_apart_by_reason_and_place() -> None:
    log = BreakLog()
    for line in (1, 1, 2):
        log.meet("locals", "because", (Location("f.py", line, "f"),), "message")
    log.meet("locals", "otherwise", (Location("f.py", 1, "f"),), "message")
    assert [seen.count for seen in log.all()] == [2, 1, 1]
    assert "2x  [locals] because, f.py:1 in f" in log.summary()
    log.clear()
    assert log.all() == []


def test_reset_forgets_breaks() -> None:
    dovetail.compile(lambda x: (dovetail.graph_break(), x)[1], backend="eager")(torch.ones(3))
    assert BREAKS.all()
    dovetail.reset()
    assert BREAKS.all() == []


# ---------------------------------------------------------------- watching


def test_watching_shows_that_capture_starts_again(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x):
        dovetail.graph_break()
        return x + 1

    dovetail.set_logs(trace_bytecode=True)
    try:
        dovetail.compile(fn, backend="eager")(torch.ones(3))
    finally:
        dovetail.set_logs()
    shown = capsys.readouterr().err
    assert shown.count("TRACE starts again: the graph ends at instruction") == 1
    assert "TRACE starts_line" not in shown


def test_nobody_watching_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop over instructions gets the list itself, unless a log is on."""
    shown = []
    fetched = Watch.fetched
    monkeypatch.setattr(Watch, "fetched", lambda *args: (shown.append(args), fetched(*args)))
    dovetail.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert shown == []
    dovetail.set_logs(trace_source=True)
    try:
        dovetail.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    finally:
        dovetail.set_logs()
    assert len(shown) >= 4


# ---------------------------------------------------------------- the profiler


def test_the_profiler_counts() -> None:
    prof = dovetail.CompileProfiler()

    def fn(x, k):
        x = x + 1
        dovetail.graph_break("between")
        return x * len(k)

    compiled = dovetail.compile(fn, backend=prof)
    for k in ("a", "ab"):
        torch.testing.assert_close(compiled(torch.ones(3), k), fn(torch.ones(3), k))
    assert prof.frame_count >= 3 and prof.op_count >= 3
    report = prof.report()
    assert "[explicit-break]" in report and "between" in report
    assert "fn" in report[report.index("Recompilation") :] and "'a'" in report
