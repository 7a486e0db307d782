"""The decoder under every other Python of this machine that it has tables for; those need no PyTorch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.bytecode.decode import Code
from dovetail.bytecode.pythons import PYTHONS

from . import checks, forms

OTHERS = [minor for minor in PYTHONS if minor != sys.version_info.minor]


def interpreter(minor: int) -> str | None:
    """On the path, or where pyenv keeps its versions."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(map(str, root.glob(f"versions/3.{minor}.*/bin/python")))
    candidates = [*kept, shutil.which(f"python3.{minor}")]
    return next((found for found in candidates if found is not None and runs(found, minor)), None)


def runs(python: str, minor: int) -> bool:
    """A shim of pyenv exists for versions that are not chosen, and fails."""
    asked = [python, "-c", "import sys; print(sys.version_info.minor)"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip() == str(minor)


@pytest.mark.parametrize("minor", OTHERS)
def test_decoding_under_another_python(minor: int) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} on the path or under pyenv")
    done = subprocess.run([python, "-I", "-W", "ignore", checks.__file__], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert f"of Python 3.{minor}." in done.stdout


RECORDED = json.loads(Path(__file__).with_name("python314.json").read_text())


@pytest.mark.parametrize("text", RECORDED["codes"])
def test_code_recorded_under_another_python(text: str) -> None:
    """By Python 3.14.2, with `forms.record`: its instructions become those of every other Python."""
    code = forms.restored(RECORDED["codes"][text])
    decoded = Code(code, PYTHONS[14], RECORDED["opcodes"].split())
    assert forms.form(decoded) == forms.expected(text, 14)


def test_everything_is_recorded() -> None:
    assert list(RECORDED["codes"]) == list(forms.compiled())
