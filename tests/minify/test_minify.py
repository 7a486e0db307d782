"""A sample of `make minify`: mistakes in the compiler are cut down to the operators that meet them; and the command."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import warnings
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import dovetail
from dovetail.commands.minify import command
from dovetail.diagnostics import dataless, repro
from dovetail.errors import InvalidArgument
from dovetail.minify.trial import ending
from dovetail.options import Options
from tests.forks import python
from tests.minify.faults import MOST, Bug, crashing, cut_down, endless, failing, injected, inputs, program


@pytest.fixture
def forked() -> None:
    """Runs are forks of this process, which have the mistakes that were put into it."""
    if torch.cuda.is_initialized():
        pytest.skip("no process that uses a GPU can be forked")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", ["lowered as another: exp", "the joint graph fails", "loading crashes"])
def test_a_mistake_is_cut_down(name: str) -> None:
    with injected(name) as started:
        found, failure = cut_down(started, 120.0)
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




def run(*words: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    root = str(Path(dovetail.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": root, "DOVETAIL_STRICT": "0"}
    return python(*words, env=env, cwd=cwd or os.getcwd())


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_wrong_values_at_level_four_and_the_command(device: str, tmp_path: Path) -> None:
    """The program gets eager's values and one warning; its file fails, and is cut down."""

    def halved(gm, inputs):
        return lambda *args: [r * 0.5 if any(n.target is torch.sin for n in gm.graph.nodes) else r for r in gm(*args)]

    def fn(x):
        return (torch.sin(x * 2) + 1).relu() * 3

    x = torch.randn(4, requires_grad=True, device=device)
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
    shown = run(str(path))
    assert shown.returncode == 1 and "WrongValues" in shown.stderr
    done = run("-m", "dovetail", "minify", str(path), "--out", str(tmp_path / "small.py"))
    assert done.returncode == 0 and "1 operators fail with WrongValues" in done.stdout, done.stderr
    assert "sin" in (tmp_path / "small.py").read_text() and "relu" not in (tmp_path / "small.py").read_text()


def left(told: list, words: str) -> Path:
    """The repro that the first warning with these words names."""
    text = next(str(w.message) for w in told if words in str(w.message))
    return Path(re.search(r"To see it again: python (\S+)", text)[1])


@pytest.mark.parametrize("data", [False, True])
def test_wrong_for_some_data_alone(data: bool, tmp_path: Path) -> None:
    """The file beside the repro has the tensors, if that is asked for."""

    def absolute(gm, inputs):
        return lambda *args: [r.abs() for r in gm(*args)]

    settings = {"repro_level": 2, "strict": False, "repro_dir": str(tmp_path / "found"), "repro_data": data}
    with dovetail.config.patch(**settings | {"repro_level": 4}), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dovetail.compile(lambda x: torch.sin(x) * 2, backend=absolute)(torch.tensor([-1.0, 2.0]))
    path = left(told, "WrongValues")
    assert path.with_suffix(".pt").exists() == data and str(path).startswith(str(tmp_path / "found"))
    moved = tmp_path / "moved"
    path.parent.rename(moved)
    shown = run(str(moved / path.name), cwd=str(tmp_path))
    assert shown.returncode == data and (data or "config.repro_data = True keeps that" in shown.stdout)
    done = run("-m", "dovetail", "minify", str(moved / path.name), "-o", str(tmp_path / "small.py"))
    assert done.returncode == 1 - data and (data or "config.repro_data = True keeps that" in done.stderr)
    if data:
        assert "WrongValues" in run(str(tmp_path / "small.py")).stderr
        (tmp_path / "small.pt").unlink()
        assert "keep the two together" in run(str(tmp_path / "small.py")).stderr


@pytest.mark.usefixtures("forked")
def test_wrong_for_another_size_alone(tmp_path: Path) -> None:
    """A repro has symbolic sizes where the program that failed had them."""
    with injected("wrong for symbolic sizes alone"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with dovetail.config.patch(repro_level=4, strict=False, repro_dir=str(tmp_path)):
            compiled = dovetail.compile(lambda x, n: torch.sin(x * n).sum())
            for rows, number in ((3, 2), (5, 2), (7, 3)):
                x = torch.rand(rows, 4)
                torch.testing.assert_close(compiled(x, number), torch.sin(x * number).sum())
        path = left(told, "WrongValues")
        started = runpy.run_path(str(path))
        assert started["varying"] == ["x.shape[0]"]
        assert ending(started["main"], 60).kind == "WrongValues"
        found, failure = cut_down(started, 60.0)
        assert ["sin" in str(n.target) for n in found.calls] == [True] and failure.kind == "WrongValues"
        with dovetail.config.patch(strict=True):
            text = repro.text("", None, Options(), found.module, found.inputs)
        assert ".shape[0]']" in text


def test_memory_that_is_read_without_showing(tmp_path: Path) -> None:
    """Values may be right by chance: kernels that check themselves tell."""

    def hidden(x):
        return (x.flip(0) > 1e30) * 0 + x

    choices = {"fullgraph": True, "dynamic": None, "backend": "dovetail", "options": {}}
    args = [torch.rand(8, 16)]
    assert ending(lambda: repro.run(hidden, args, {}, **choices), 60).kind == ""
    with injected("memory outside is read"):
        assert ending(lambda: repro.run(hidden, args, {}, **choices), 60).kind == "KernelFault"


def test_what_a_repro_restores(tmp_path: Path) -> None:
    kept: list[torch.Tensor] = []
    w = torch.nn.Parameter(torch.randn(3))
    given = {"a": w, "b": [w, w.detach()[1:]], "c": (w * 2)}
    text = dataless.written(given, kept)
    repro.save("", tmp_path / "r.py", kept)
    made = dataless.restored(text, repro.data(str(tmp_path / "r.py")))
    assert made["a"] is made["b"][0] and made["b"][1].equal(w.detach()[1:]) and made["c"].equal(w * 2)
    made["b"][1].zero_()
    assert made["a"][2] == 0  # one memory, as before
    like = dataless.restored(dataless.written(given))
    assert [t.requires_grad for t in (like["a"], like["b"][1], like["c"])] == [True, False, True]
    assert like["a"].is_leaf and not like["c"].is_leaf


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


NO_REPROS = {
    "x = 1": "is no repro of Dovetail's: it defines no function",
    "function, args, kwargs, choices, main = len, [], {}, {}, len": "its choices have no backend",
    "function, args, kwargs, choices = len, 3, {}, {}": "it defines no args",
    "def (": "cannot be run: SyntaxError", "raise ValueError('x')": "cannot be run: ValueError: x",
    "raise SystemExit(3)": "cannot be run: SystemExit: 3",
}  # fmt: skip


@pytest.mark.parametrize("text", NO_REPROS)
def test_what_is_no_repro(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    done = CliRunner().invoke(command, [str(tmp_path / "mine.py")])
    assert done.exit_code == 2 and NO_REPROS[text] in done.output


ARGUMENTS = {
    ("nofile.py",): "does not exist", (".",): "is a directory", (__file__, "--timeout", "0"): "is not in the range",
    (__file__, "--trial-timeout", "-1"): "is not in the range", (): "Missing argument 'FILE'",
    (__file__, "-o", "/no/folder/x.py"): "there is no folder", (__file__, "--other"): "No such option",
}  # fmt: skip


@pytest.mark.parametrize("words", ARGUMENTS)
def test_arguments_that_make_no_sense(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command, list(words))
    assert done.exit_code == 2 and ARGUMENTS[words] in done.output


def test_settings() -> None:
    for name in (None, "capture", "dynamo", "aot"):
        with dovetail.config.patch(repro_after=name):
            assert dovetail.config.repro_after == name
    for wrong in ({"repro_after": "inductor"}, {"repro_level": 5}, {"repro_data": 1}):
        with pytest.raises(InvalidArgument, match=f"config.{min(wrong)} must be"), dovetail.config.patch(**wrong):
            pass
