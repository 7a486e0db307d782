"""`dovetail report`: a page of what was recorded, from recordings of real programs."""

from __future__ import annotations

import json
import os
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import dovetail
from dovetail.commands import again, main, overview
from dovetail.commands import report as reporting
from tests.forks import python

ROOT = Path(__file__).parents[2]
OPEN = {"meta", "br"}  # elements without an end


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_TRACE", str(tmp_path / "trace"))
    return tmp_path / "trace"


class Page(HTMLParser):
    """The text of a page, without scripts and styles; fails if elements do not nest."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.inside, self.texts, self.ids, self.links = [], [], set(), set()
        self.feed(markup)
        assert not self.inside
        self.text = re.sub(r"[ \t\r\f\v]*\n\s*\n\s*", "\n", "".join(self.texts))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        assert not {"src", "integrity"} & given.keys() and tag not in ("link", "img", "iframe")
        self.ids |= {given["id"]} if "id" in given else set()
        self.links |= {given["href"]} if "href" in given else set()
        self.inside += [tag] if tag not in OPEN else []

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag
        self.texts.append(" ")

    def handle_data(self, data):
        self.texts += [data] if not {"style", "script"} & set(self.inside) else []


def page(folder: Path) -> Page:
    out = folder.parent / "out.html"
    reporting.report(folder, out)
    return Page(out.read_text())


def chrome(folder: Path) -> list[dict]:
    return json.loads((folder.parent / "out.json").read_text())["traceEvents"]


def run(text: str, folder: Path, **environment: str) -> int:
    program = folder.parent / "program.py"
    program.write_text("import torch, dovetail\n" + text)
    given = {**os.environ, "DOVETAIL_TRACE": str(folder), "PYTHONPATH": str(ROOT), **environment}
    return python(str(program), env=given).returncode


def test_a_break_is_shown_once_with_its_line_caret_and_remedy(folder) -> None:
    def broken(x):
        y = x + 1
        dovetail.graph_break()
        return y * 2

    for size in (2, 3):
        dovetail.reset()
        dovetail.compile(broken)(torch.ones(size))
    shown = page(folder)
    assert re.search(r"dovetail\.graph_break\(\)\n\^{22}\s+What to do:\s+Remove the call", shown.text)
    assert shown.text.count("[explicit-break]  · 2 times · ") == 1
    assert "2 graph breaks, 1 cause" in shown.text and "#break0" in shown.links


def test_recompilations_are_one_cause_for_all_values(folder) -> None:
    compiled = dovetail.compile(lambda x, flag: x + 1 if flag == "a" else x * 2 if flag == "b" else x)
    for flag in "abc":
        compiled(torch.ones(2), flag)
    shown = page(folder)
    assert "2 recompilations, 1 cause" in shown.text and "flag == 'a' (actual 'b')" in shown.text
    assert "<lambda>: flag changes" in shown.text
    raw = (folder.parent / "out.html").read_text()
    assert "&lt;lambda&gt;" in raw and "<lambda>" not in raw


def test_a_recompilation_shows_the_line_that_relies_on_what_changes_and_a_caret(folder) -> None:
    @dovetail.compile
    def scaled(x, settings):
        y = x + 1
        return y * 2 if settings["mode"] == "a" else y

    for mode in "ab":
        scaled(torch.ones(2), {"mode": mode})
    shown = page(folder)
    line = 'return y * 2 if settings["mode"] == "a" else y\n'
    assert re.search(re.escape(line) + r" {16}\^{8,16}\s+What to do: ", shown.text), shown.text


def test_what_is_relied_on_from_the_start_shows_the_functions_own_line(folder) -> None:
    @dovetail.compile(
        dynamic=None
    )
    def grown(x, flag=True):
        return x + 1

    for size in (2, 3):
        grown(torch.ones(size))
    shown = page(folder)
    assert re.search(r"def grown\(x, flag=True\):\n {10}\^\s+What to do: ", shown.text)
    assert "grown: x.shape[0] changes" in shown.text and "dovetail.mark_dynamic(x, 0) before" in shown.text


def test_a_function_at_the_limit_comes_first_with_what_its_arguments_ask_for(folder) -> None:
    @dovetail.compile(dynamic=False)
    def fixed(x):
        return x + 1

    dovetail.compile(lambda x, k: (x + k).sin() if k > 1 else x)(torch.ones(2), 1)
    with dovetail.config.patch(recompile_limit=2), pytest.warns(UserWarning, match="recompile_limit"):
        for size in (2, 3, 4):
            fixed(torch.ones(size))
    shown = page(folder)
    first = shown.text.partition("What to fix first\n")[2].partition("Graph breaks")[0].split("\n")
    assert "fixed: x.shape[0] changes" in first[0] and "recompile_limit (2) is reached" in "".join(first[:3])
    assert "dynamic=False compiles for each size anew" in shown.text
    assert "Mend what changes, under Recompilations" in shown.text


GUARDS = {
    "tensor 'x' size mismatch at index 1. expected 3, actual 4": ("x", "x.shape[1] changes"),
    "tensor \"k['ids']\" size mismatch at index 0. expected 3, actual 4": ("k['ids']", "k['ids'].shape[0] changes"),
    "tensor 'x' dtype mismatch. expected torch.float32, actual torch.float64": ("x", "x has another dtype"),
    "tensor 'x' stride mismatch at index 0. expected 3, actual 1": ("x", "x is laid out otherwise in memory"),
    "keys of table are ('a',) (actual ('b',))": ("table", "table has other keys"),
    "len(names) == 1 (actual 2)": ("names", "names has another length"),
    "type(f) is A (actual B)": ("f", "f has another type"),
    "self.head is None (actual 3)": ("self.head", "self.head is None in some calls only"),
    "(size > 1) is True (actual False)": ("(size > 1)", "(size > 1) is True in some calls only"),
    "fn is <function f> (now another object: <function g>)": ("fn", "fn is another object"),
    "k == 1 (actual 2)": ("k", "k changes"),
    "grad_mode changed. expected True, actual False": ("grad_mode", "grad_mode changes"),
    "a and b are different objects (now the same)": (None, "a and b are different objects (now the same)"),
}  # fmt: skip


@pytest.mark.parametrize("guard", GUARDS)
def test_guards_in_the_words_of_a_user(guard) -> None:
    what, title = GUARDS[guard]
    found = again._words(guard)
    assert found[:2] == (what or guard, title) and "{" not in found[2]


@pytest.mark.parametrize(
    "source, what, marked",
    [
        ("return f(x) + x.shape[0]", "x", "x"),
        ("y = self.layers[0].scale * 2", "self.layers[0].scale", "self.layers[0].scale"),
        ("y = self.layers[k].scale", "self.layers[0].scale", "self.layers"),
        ("k = int(h.sum())", "int(h.sum())", "int(h.sum())"),
        ("return maximum(xs)", "x", ""),
        ("a.x = 1", "x", ""),
    ],
)
def test_carets_lie_under_the_longest_part_that_a_line_mentions(source, what, marked) -> None:
    text, *carets = again.underlined(f"    {source}\n", what)
    assert text == source and [text[line.index("^") : len(line)] for line in carets] == ([marked] if marked else [])


def test_the_first_step_of_an_optimizer_is_nothing_to_mend(folder) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)  # which is made of the first gradients

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    compiled = dovetail.compile(step)
    for _ in range(3):
        compiled(torch.ones(2, 2))
    shown = page(folder)
    assert "1 recompilation" in shown.text and "Nothing to do: the first step of a training" in shown.text
    assert "Nothing: what is below needs no change" in shown.text


def test_text_of_the_program_is_never_markup(folder) -> None:
    def function(x, text):
        return x + 1 if text != "</pre><script>alert(1)</script>" else x

    compiled = dovetail.compile(function)
    compiled(torch.ones(2), "</pre><script>alert(1)</script>")
    compiled(torch.ones(2), "</details><b>")
    assert "</pre><script>alert(1)</script>" in page(folder).text  # read as text
    assert "<script>alert" not in (folder.parent / "out.html").read_text()


def test_nothing_to_fix(folder) -> None:
    dovetail.compile(lambda x: x + 1)(torch.ones(2))
    shown = page(folder)
    assert "Nothing: every function is one graph" in shown.text and "1 compilation " in shown.text


def test_kernels_stand_beside_their_lines(folder) -> None:
    def function(x):
        y = torch.sin(x)
        return y * 2

    dovetail.compile(function)(torch.ones(250, 1000))
    shown = page(folder)
    assert re.search(r"sin \+ mul\s+y = torch.sin\(x\)\s+1\s+1.0 MB\s+1.0 MB", shown.text)
    assert "y = torch.sin(x)" in shown.text and "return y * 2" in shown.text
    assert re.search(r"b\d\[x0, x1\] = sin\(a0\[x0, x1\]\) \* 2.0", shown.text) and "define internal void" in shown.text
    assert {link[1:] for link in shown.links if link.startswith("#")} <= shown.ids


def test_a_function_that_runs_eagerly(folder) -> None:
    def backend(gm, inputs):
        raise ValueError("no such thing")

    with dovetail.config.patch(suppress_errors=True), pytest.warns(UserWarning):
        dovetail.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    shown = page(folder)
    assert "1 failed" in shown.text and "eagerly, since" in shown.text and "no such thing" in shown.text


def test_what_keeps_a_whole_function_from_being_compiled_comes_first(folder) -> None:
    def whole(x):
        dovetail.graph_break()
        return x + 1

    def part(x):
        y = x + 1
        open(os.devnull).close()
        return y * 2

    dovetail.compile(part)(torch.ones(2))
    with pytest.raises(dovetail.GraphBreakError):
        dovetail.compile(whole, fullgraph=True)(torch.ones(2))
    shown = page(folder)
    assert "the whole function is not compiled" in shown.text
    first = shown.text.partition("What to fix first\n")[2].partition("Graph breaks")[0]
    assert 0 < first.index("whole function") < first.index("open is code that capture cannot look into")


def test_ranks_side_by_side(folder) -> None:
    program = """
import os
compiled = dovetail.compile(lambda x: x + 1)
compiled(torch.ones(2))
if os.environ["RANK"] == "1":
    compiled(torch.ones(2, 2))
"""
    for rank in "01":
        assert run(program, folder, RANK=rank, WORLD_SIZE="2") == 0
    shown = page(folder)
    ranks = shown.text.partition("Ranks side by side")[2].partition("Kernels and library calls")[0]
    assert re.search(r"rank 0, process \d+\s*rank 1, process \d+\s*skew", ranks) and ranks.count("missing") == 1
    assert {event["pid"] for event in chrome(folder)} == {0, 1}
    assert "the same as that of another compilation" in shown.text


def test_processes_that_are_no_ranks_side_by_side(folder) -> None:
    for _ in range(2):
        assert run("dovetail.compile(lambda x: x + 1)(torch.ones(2))", folder) == 0
    shown = page(folder)
    assert "Processes side by side" in shown.text and "Ranks" not in shown.text


def test_a_killed_process_and_a_damaged_line(folder) -> None:
    done = run("""
import os, signal
def backend(graph, inputs):
    os.kill(os.getpid(), signal.SIGKILL)
def function(x):
    return x * 2
dovetail.compile(function, backend=backend)(torch.ones(2))
""", folder)  # fmt: skip
    assert done < 0
    (file,) = folder.iterdir()
    file.write_text(file.read_text() + '{"event":"done","id":0,"outc')
    shown = page(folder)
    assert re.search(r"process \d+ ended while it compiled function \(.*program.py:6\), after capture", shown.text)
    assert "1 unfinished" in shown.text and "1 line could not be read" in shown.text


def test_the_trace_for_perfetto_has_stages_within_compilations(folder) -> None:
    dovetail.compile(lambda x: x.sum(-1))(torch.ones(2, 3))
    page(folder)
    slices = [event for event in chrome(folder) if event["ph"] == "X"]
    whole, *stages = slices
    first, *_ = [each["name"] for each in stages if each["name"] != "imports"]  # of a process's first compilation
    assert whole["name"].endswith("<lambda>") and first == "capture"
    ends = whole["ts"] + whole["dur"]
    assert all(whole["ts"] <= s["ts"] and s["ts"] + s["dur"] <= ends + 1 and s["dur"] > 0 for s in stages)


def test_long_texts_are_cut_and_say_where_the_whole_is(folder, monkeypatch) -> None:
    dovetail.compile(lambda x: x.sum(-1))(torch.ones(2, 3))
    monkeypatch.setattr(reporting, "LONGEST", 40)
    shown = page(folder)
    (file,) = folder.iterdir()
    assert re.search(rf"shown in part, 40 of \d+ characters; the whole is in {re.escape(file.name)}", shown.text)


def test_a_long_line_leaves_room_for_those_below(folder, monkeypatch) -> None:
    dovetail.compile(lambda x: x.sum(-1))(torch.ones(2, 3))
    monkeypatch.setattr(reporting, "WIDEST", 20)
    shown = page(folder)
    assert re.search(r"define internal \w*…\n", shown.text) and "shown in part" in shown.text


class Block(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 1e9:
            print("large")
        return x + 1


def test_objects_that_differ_are_one_cause(folder) -> None:
    blocks = torch.nn.ModuleList(Block() for _ in range(5))

    compiled = dovetail.compile(lambda block, x: block(x) * 2)
    for block in blocks:
        compiled(block, torch.ones(2))
    page(folder)
    titles = re.findall(r"<h3>(.*?)</h3>", (folder.parent / "out.html").read_text())
    assert any(title.endswith("is another object") for title in titles) and len(titles) == len(set(titles)), titles


def test_a_break_within_a_library_shows_the_line_that_calls_it(folder) -> None:
    def function(x):
        return x + random.SystemRandom().random()

    dovetail.compile(function)(torch.ones(2))
    shown = page(folder)
    own = r"in function\s+return x \+ random.SystemRandom\(\).random\(\)\n +\^+"
    assert re.search(own + r"\s+python3.\d+/random.py:", shown.text)


def test_paths_are_short_and_whole_where_one_points_at_them(folder) -> None:
    def function(x):
        return torch.nn.functional.gelu(x)

    dovetail.compile(function)(torch.ones(2))
    shown, raw = page(folder), (folder.parent / "out.html").read_text()
    line = function.__code__.co_firstlineno
    assert re.search(rf"(?<!/)test_report.py:{line + 1} in function", shown.text)
    assert f"files are below {Path(__file__).parent}" in shown.text
    assert f'title="{__file__}:{line + 1} in function"' in raw


@pytest.mark.parametrize(
    "files, own, model",
    [
        (["/me/train.py", "/me/model.py", "/v/lib/python3.11/site-packages/torch/nn/linear.py"], 1, 1),
        (["/me/train.py", "/v/site-packages/timm/net.py", "/v/site-packages/torch/nn/linear.py"], 0, 1),
        (["/me/train.py", "/v/lib/python3.11/site-packages/timm/net.py"], 0, 1),
        (["/me/train.py", "/usr/lib/python3.11/random.py"], 0, 0),
        (["/me/train.py", "<frozen genericpath>"], 0, 0),
        (["/v/lib/python3/dist-packages/torch/optim/adam.py"], 0, 0),
    ],
)
def test_lines_of_the_program_and_of_the_model(files, own, model) -> None:
    stack = [{"file": file} for file in files]
    assert overview.own_line(stack) is stack[own] and overview.model_line(stack) is stack[model]


def test_kernels_without_operators_have_a_name(folder) -> None:
    dovetail.compile(torch.nn.functional.embedding)(torch.tensor([1, 2]), torch.ones(3, 4))
    page(folder)
    assert "<code>check</code>" in (folder.parent / "out.html").read_text()


@pytest.mark.parametrize("made", [True, False])
def test_a_folder_without_a_trace_is_an_error(tmp_path, made) -> None:
    folder = tmp_path / "none"
    if made:
        folder.mkdir()
    done = CliRunner().invoke(main, ["report", str(folder), "-o", str(tmp_path / "out.html")])
    assert done.exit_code == 1 and "nothing is recorded in" in done.output and f"DOVETAIL_TRACE={folder}" in done.output
    assert not (tmp_path / "out.html").exists()


def test_a_trace_of_another_version_is_an_error_that_says_so(folder) -> None:
    dovetail.compile(lambda x: x + 1)(torch.ones(2))
    (file,) = folder.iterdir()
    file.write_text(re.sub(r'"version":\d+', '"version":1', file.read_text()))
    done = CliRunner().invoke(main, ["report", str(folder), "-o", str(folder / "out.html")])
    assert done.exit_code == 1 and "was recorded by another version of Dovetail" in done.output


def test_the_command(folder) -> None:
    dovetail.compile(lambda x: x + 1)(torch.ones(2))
    out = folder.parent / "page.html"
    done = CliRunner().invoke(main, ["report", str(folder), "-o", str(out)])
    assert done.exit_code == 0 and str(out) in done.output and str(out.with_suffix(".json")) in done.output
    assert out.exists() and out.with_suffix(".json").exists()
    done = CliRunner().invoke(main, ["report", "-o", str(out)])  # of the folder that DOVETAIL_TRACE names
    assert done.exit_code == 0
