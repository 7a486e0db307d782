"""A sample of `make minify`: mistakes in the compiler are cut down to the operators that meet them; and the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail.commands.minify import minified
from dovetail.diagnostics import repro
from dovetail.minify.trial import ending
from tests.minify.faults import MOST, Bug, crashing, endless, failing, injected, inputs, program


@pytest.mark.parametrize("name", ["lowered as another: gelu", "the joint graph fails", "loading crashes"])
def test_a_mistake_is_cut_down(name: str) -> None:
    with injected(name) as started:
        found, failure = minified(started, 120.0, 20.0, lambda *_: None)
    assert failure.kind and 0 < len(found.calls) <= MOST
    assert all(t.numel() <= 8 for t in found.inputs)


def test_a_repro_takes_nothing_that_was_compiled_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier process has left may be as wrong, and does not say which stage is."""
    monkeypatch.setattr(dovetail.config, "warm_start", True)
    with injected("lowered as another: gelu") as started:
        for _ in range(2):
            assert ending(lambda: repro.run(program, inputs(False), {}, **started["choices"]), 60).kind == "WrongValues"
    assert ending(lambda: repro.run(program, inputs(False), {}, **started["choices"]), 60).kind == ""


def test_how_a_run_ends() -> None:
    assert ending(lambda: None, 20).kind == ""
    assert ending(failing, 20).kind == "Bug" == Bug.__name__
    assert ending(crashing, 20).kind == "signal 11"
    assert ending(endless, 0.2).kind == "no end"
    assert ending(lambda: os._exit(3), 20).kind == "exit"




def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(dovetail.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": root, "DOVETAIL_STRICT": "0"} | environment
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, timeout=300)


def test_wrong_values_at_level_four_and_the_command(tmp_path: Path) -> None:
    """The program gets eager's values and one warning; its file fails, and is cut down."""

    def halved(gm, inputs):
        return lambda *args: [r * 0.5 if any(n.target is torch.sin for n in gm.graph.nodes) else r for r in gm(*args)]

    def fn(x):
        return (torch.sin(x * 2) + 1).relu() * 3

    x = torch.randn(4, requires_grad=True)
    with dovetail.config.patch(repro_level=4, strict=False), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compiled = dovetail.compile(fn, backend=halved)
        for _ in range(3):
            result = compiled(x)
    torch.testing.assert_close(result, fn(x))
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x), torch.autograd.grad(fn(x).sum(), x))
    (text,) = [str(w.message) for w in told if "dovetail" in str(w.message)]
    assert "values failed: WrongValues: tensor 1 is off by 0.5" in text and __file__ in text
    path = Path(re.search(r"To see it again: python (\S+)", text)[1])
    shown = python(str(path))
    assert shown.returncode == 1 and "WrongValues" in shown.stderr
    done = python("-m", "dovetail", "minify", str(path), "--out", str(tmp_path / "small.py"))
    assert done.returncode == 0 and "1 operators fail with WrongValues" in done.stdout, done.stderr
    assert "sin" in (tmp_path / "small.py").read_text() and "relu" not in (tmp_path / "small.py").read_text()


def test_right_values_at_level_four(recwarn) -> None:
    """Also for what draws numbers and writes to its inputs: the program sees one run."""

    def fn(x):
        x.mul_(2)
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(4)

    for after in (None, "dynamo", "aot"):
        with dovetail.config.patch(repro_level=4, repro_after=after):
            outcomes = []
            for call in (dovetail.compile(fn), fn):
                torch.manual_seed(1)
                x = torch.ones(4)
                outcomes.append([call(x), x, torch.rand(2)])
            torch.testing.assert_close(*outcomes)
    assert not [w for w in recwarn if "dovetail" in str(w.message)]


def test_level_zero_leaves_no_file() -> None:
    def broken(gm, inputs):
        raise ValueError("no")

    with dovetail.config.patch(repro_level=0, strict=False), pytest.warns(UserWarning, match="no") as told:
        dovetail.compile(lambda x: x + 1, backend=broken)(torch.ones(2))
    assert "To see it again" not in str(told[0].message)


def test_what_is_no_repro(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    done = python("-m", "dovetail", "minify", str(tmp_path / "mine.py"))
    assert done.returncode == 2 and "is no repro of Dovetail's: it defines no function" in done.stderr
