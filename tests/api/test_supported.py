"""Unknown versions are refused: what was found, what is supported, what to do."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dovetail.bytecode.pythons import CAPTURED, PYTHONS, VERSION
from dovetail.supported import TORCH, check

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.15.1", "2.12.0a0+gitabc"])
def test_known_versions(version):
    for minor in CAPTURED:
        check(version, (3, minor, 0))


@pytest.mark.parametrize("version", ["2.10.1", "2.16.0", "2.16.0.dev20260901+cpu", "3.0.0"])
def test_another_pytorch(version):
    with pytest.raises(ImportError, match=r"pip install 'torch>=2\.11,<2\.16'") as raised:
        check(version)
    assert f"PyTorch {version}" in str(raised.value) and "PyTorch 2.11 to 2.15" in str(raised.value)


@pytest.mark.parametrize("version", [(3, 10, 2), (3, 14, 2), (4, 0, 0)])
def test_another_python(version):
    with pytest.raises(ImportError, match=r"python3\.13 -m venv") as raised:
        check("2.13.0", version)
    assert f"this is Python {version[0]}.{version[1]}.{version[2]} " in str(raised.value)


def test_importing_asks():
    """Before anything else is loaded."""
    program = "import torch; torch.__version__ = '2.99.0'; import dovetail"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: dovetail runs on Python 3.11 to 3.13" in done.stderr.splitlines()[-1]


def test_the_package_asks_for_the_same_versions():
    assert PROJECT["requires-python"] == f">=3.{CAPTURED[0]},<3.{CAPTURED[-1] + 1}"
    assert f"torch>=2.{TORCH[0]},<2.{TORCH[-1] + 1}" in PROJECT["dependencies"]
    named = {int(line.rpartition(".")[2]) for line in PROJECT["classifiers"] if "Python :: 3." in line}
    assert named == set(CAPTURED)


def test_every_captured_python_has_a_row():
    assert set(CAPTURED) <= set(PYTHONS) and VERSION[1] in PYTHONS
