"""The command `dovetail`, as a user types it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import dovetail
from dovetail.codes import CODES
from dovetail.commands import COMMANDS, findings, main
from dovetail.diagnostics import logs


def typed(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, words, input=answer)


def test_every_command_is_listed_and_has_help() -> None:
    listed = typed("--help").output
    for name in COMMANDS:
        assert f"\n  {name} " in listed
        shown = typed(name, "--help")
        assert shown.exit_code == 0 and "Usage: " in shown.output


def test_help_on_codes() -> None:
    assert CODES["opaque-call"].remedy in typed("help", "[opaque-call]").output
    assert all(code in typed("help").output for code in CODES)
    wrong = typed("help", "opaque")
    assert wrong.exit_code == 2 and "no code 'opaque'; did you mean opaque-call" in wrong.output


def test_logs_lists_every_log() -> None:
    assert all(name in typed("logs").output for name in logs.NAMES)


def test_env_names_versions_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_LOGS", "")
    with dovetail.config.patch(recompile_limit=3):
        shown = typed("env").output
    assert torch.__version__ in shown and "recompile_limit=3" in shown and "DOVETAIL_LOGS" in shown


def test_the_cache_is_counted_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "abcd").write_bytes(bytes(2**20))
    (tmp_path / "notes.txt").write_text("the user's own")
    assert "files   1, 1.0 MiB" in typed("cache", "info").output
    assert typed("cache", "clear", answer="n\n").exit_code == 1 and (tmp_path / "ab" / "abcd").exists()
    assert "deleted 1 files" in typed("cache", "clear", "--yes").output
    assert (tmp_path / "notes.txt").exists() and not (tmp_path / "ab" / "abcd").exists()
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", "")
    assert "nothing is kept" in typed("cache", "info").output


# ---------------------------------------------------------------- doctor

PROGRAM = """
import os, sys, torch, dovetail
torch.set_num_threads(1)
def halved(gm, inputs):
    return lambda *args: [r * {factor} for r in gm(*args)]
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
compiled = dovetail.compile(model, backend={backend})
@dovetail.compile(backend="eager")
def loss_of(y, k):
    len(open(os.devnull).name)
    return y.pow(2).mean() * k
for step in range(3):
    loss_of(compiled(torch.randn(2, 4)), float(sys.argv[1])).backward()
"""


def doctor(tmp_path: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(program)
    root = str(Path(dovetail.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "dovetail", "doctor", *words, str(script), "2.5"], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": root, "COLUMNS": "100"}, timeout=600, cwd=tmp_path,
    )  # fmt: skip


def test_doctor_of_a_program_that_is_right(tmp_path: Path) -> None:
    done = doctor(tmp_path, PROGRAM.format(factor=1, backend="'eager'"), "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Right in every run: 6 calls equal eager's" in done.stdout
    assert re.search(r"\[opaque-call\] _?io.open", done.stdout) and 'program.py", line 10, in loss_of' in done.stdout
    assert "What to do: " in done.stdout


def test_doctor_of_a_program_that_is_wrong(tmp_path: Path) -> None:
    done = doctor(tmp_path, PROGRAM.format(factor=1.5, backend="halved"), "--quick")
    assert done.returncode == 1
    assert "as written: call 1, of Sequential: tensor 1 is off by 0.5" in done.stdout, done.stdout + done.stderr


def test_doctor_of_a_program_that_fails_by_itself(tmp_path: Path) -> None:
    done = doctor(tmp_path, "raise ValueError('mine')", "--quick")
    assert done.returncode == 1 and "fails without compiling: ValueError: mine" in done.stdout


def call(*results: torch.Tensor, error: str = "", exact: list[torch.Tensor] | None = None) -> dict[str, object]:
    return {"name": "f", "seconds": 0.1, "results": list(results), "exact": exact, "error": error}


ONE = torch.tensor([1.0, 2.0])
DIFFERENCES = {
    "equal": (call(ONE), call(ONE.clone()), ""),
    "rounding": (call(ONE), call(ONE * (1 + 1e-6)), ""),
    "values": (call(ONE), call(ONE * 1.1), "tensor 1 is off by 0.1"),
    "nan": (call(ONE), call(ONE / 0 * 0), "tensor 1 is another"),
    "dtype": (call(ONE), call(ONE.double()), "tensor 1 is another"),
    "count": (call(ONE), call(ONE, ONE), "2 tensors instead of 1"),
    "error": (call(ONE), call(error="ValueError: x"), "raises ValueError: x instead of nothing"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_counts_as_different(name: str) -> None:
    want, got, words = DIFFERENCES[name]
    told = findings.difference(findings.Run(calls=[want]), None, findings.Run(calls=[got]))
    assert told.partition(": ")[2] == words


def test_as_far_from_float64_as_eager_is_right() -> None:
    exact = ONE.double()
    eager, ours = call(ONE * 1.01), call(ONE * 0.985)
    again = findings.Run(calls=[call(ONE * 1.01, exact=[exact])])
    assert findings.difference(findings.Run(calls=[eager]), None, findings.Run(calls=[ours]))
    assert not findings.difference(findings.Run(calls=[eager]), again, findings.Run(calls=[ours]))
    far = findings.Run(calls=[call(ONE * 0.9)])
    assert findings.difference(findings.Run(calls=[eager]), again, far)


STAGES = {
    "capture": ("wrong", "wrong", "wrong"),
    "the backend: fusion or generated code": ("", "", "wrong"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_first_run_that_is_wrong_names_the_stage(stage: str) -> None:
    wrong = dict(zip(findings.STAGES, STAGES[stage]))
    lines = "\n".join(findings.verdict(wrong, findings.Run(calls=[call(ONE)]), None))
    assert f"What is wrong comes from {stage}." in lines
