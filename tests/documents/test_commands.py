"""What the documents type at a shell: programs run under the environment's variables, and the files that they leave."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import dovetail
from dovetail.commands import main
from tests.forks import python

ROOT = str(Path(dovetail.__file__).parents[1])

FOO = """
import torch, dovetail
@dovetail.compile
def fn(x, k):
    x = torch.sin(x) * len(k)
    dovetail.graph_break()
    return x + 1
for k in ("a", "bc"):
    fn(torch.ones(3), k)
print(dovetail.compile_times())
"""

CRASHES = """
import torch, dovetail
def broken(gm, example_inputs):
    raise RuntimeError("the compiler crashes")
dovetail.register_backend(broken, "broken")
@dovetail.compile(backend="broken")
def fn(x):
    return torch.sin(x) * 2
print(fn(torch.ones(3)))
"""


def run(file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
    kept = {"DOVETAIL_CACHE_DIR": os.environ.get("DOVETAIL_CACHE_DIR", "")}
    return python(str(file), cwd=file.parent, env={**given, **kept, "PYTHONPATH": ROOT, **variables})


def written(folder: Path, text: str) -> Path:
    file = folder / "foo.py"
    file.write_text(text)
    return file


def test_logs_by_options(tmp_path) -> None:
    """TORCH_LOGS="<option1>,<option2>,..." python foo.py; another process takes what was compiled from the cache."""
    cache = str(tmp_path / "cache")
    done = run(written(tmp_path, FOO), DOVETAIL_LOGS="graph_breaks,recompiles", DOVETAIL_CACHE_DIR=cache)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^[\d:.]+ foo\.py:9 graph_breaks: graph break in fn, ", done.stderr, re.M)
    assert re.search(r"^[\d:.]+ foo\.py:3 recompiles: Recompiling function fn in .*foo\.py:3$", done.stderr, re.M)
    assert " guards: " not in done.stderr
    again = run(tmp_path / "foo.py", DOVETAIL_CACHE_DIR=cache)
    assert "capture" in done.stdout and "capture" not in again.stdout and "guards" in again.stdout


def test_a_trace_of_a_distributed_job_is_one_a_rank(tmp_path) -> None:
    """TORCH_TRACE="/tmp/tracedir" python foo.py; tlparse /tmp/tracedir"""
    for rank in "01":
        done = run(written(tmp_path, FOO), DOVETAIL_TRACE=str(tmp_path / "tracedir"), RANK=rank, WORLD_SIZE="2")
        assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "tracedir").iterdir())
    assert len(names) == 2 and "_rank0_" in names[0] and "_rank1_" in names[1]
    said = CliRunner().invoke(main, ["report", str(tmp_path / "tracedir"), "-o", str(tmp_path / "report.html")])
    assert said.exit_code == 0 and "Ranks side by side" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("after", ["dynamo", "aot"])
def test_the_file_that_a_crash_leaves_crashes_too(after: str, tmp_path) -> None:
    """TORCHDYNAMO_REPRO_AFTER="aot" python your_model.py, then python repro.py in TORCHDYNAMO_REPRO_DIR."""
    where = {"DOVETAIL_REPRO_AFTER": after, "DOVETAIL_REPRO_DIR": str(tmp_path / "repros")}
    done = run(written(tmp_path, CRASHES), **where)
    assert done.returncode == 0 and "1.6829" in done.stdout, done.stderr  # eager mode goes on
    (repro,) = (tmp_path / "repros").rglob("repro.py")
    assert f"To see it again: python {repro}" in done.stderr and "sin" in repro.read_text()
    again = run(repro)
    assert again.returncode != 0 and "the compiler crashes" in again.stderr


def test_env_has_the_settings_that_a_report_of_a_bug_needs(monkeypatch) -> None:
    with dovetail.config.patch(fallback_random=True, recompile_limit=4):
        shown = CliRunner().invoke(main, ["env"]).output
    assert "fallback_random=True" in shown and "recompile_limit=4" in shown and "torch " in shown


def test_compile_debug(tmp_path) -> None:
    """env TORCH_COMPILE_DEBUG=1 python repro.py"""
    done = run(written(tmp_path, FOO), DOVETAIL_COMPILE_DEBUG="1")
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in (tmp_path / "dovetail_debug").rglob("*.*")} >= {".py", ".txt", ".ll"}
