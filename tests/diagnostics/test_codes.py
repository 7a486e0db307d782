"""Every reason has a registered code, an explanation that a newcomer understands, and a place in the documents."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import dovetail
from dovetail.commands import main
from dovetail.errors import Unsupported, marked
from dovetail.errors.codes import CODES, PAGE, SECTIONS, explained_by

from .programs import MISTAKES, NEEDS, REFUSALS, UNLIKE_EAGER, codes_of, put_back, results, same

PACKAGE = Path(dovetail.__file__).parent
ROOT = PACKAGE.parent
SENTENCE = re.compile(r"[A-Z_`].*\.", re.DOTALL)
RAISERS = ("unsupported", "Unsupported", "GraphBreakError")


@functools.cache
def calls() -> list[tuple[str, ast.Call]]:
    return [*_calls()]


def _calls() -> Iterator[tuple[str, ast.Call]]:
    """Every place in the package that gives up, and what it gives up with."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in RAISERS and node.args:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_every_code_in_use_is_registered() -> None:
    bad = [
        f"{where}: {node.args[0].value!r}"
        for where, node in calls()
        if isinstance(node.args[0], ast.Constant) and node.args[0].value not in CODES
    ]
    assert bad == [], "explain them in dovetail/errors/graph-breaks.md"


def test_a_remedy_is_a_sentence() -> None:
    bad = [
        f"{where}: {given.value}"
        for where, node in calls()
        for given in node.args[2:3]
        if isinstance(given, ast.Constant) and given.value and not SENTENCE.fullmatch(given.value)
    ]
    assert bad == []


def test_the_search_finds_places() -> None:
    found = calls()
    assert len(found) > 50 and sum(isinstance(n.args[0], ast.Constant) for _, n in found) > 40


def test_a_code_is_registered_once() -> None:
    assert sum(len(rows) for rows in SECTIONS.values()) == len(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_row_is_complete(code: str) -> None:
    row = CODES[code]
    assert code == code.lower() and " " not in code
    assert row.title[0].islower() and not row.title.endswith(".")
    assert row.explanation.endswith(".") and row.remedy.endswith(".") and row.example.strip()
    assert row.remedy[0].isupper() and row.explanation[0] in "`_." + row.explanation[0].upper()
    words = (row.title + row.explanation + row.remedy).lower()
    assert not any(inside in words for inside in ("symbolic", "tracker", "residual", "session", "fake tensor"))


def test_all_of_the_page_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [line[4:] for line in text.splitlines() if line.startswith("### ")] == list(CODES)
    assert text.count('<a id="') == text.count("What to do: ") == len(CODES)


@pytest.mark.parametrize("code", ["data-dependent-value", "specialized-dimension"])
def test_the_command_that_a_message_ends_with_explains_the_code(code: str) -> None:
    said = CliRunner().invoke(main, explained_by(code).split()[1:])
    assert said.exit_code == 0 and CODES[code].explanation in said.output


def runs(code: str) -> bool:
    return code not in MISTAKES and NEEDS.get(code, True)


@pytest.mark.parametrize("code", [*filter(runs, CODES)])
def test_the_program_gives_the_code(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with put_back():
        found, refusals = codes_of(CODES[code].example, monkeypatch)
    assert (code in refusals) if code in REFUSALS else (found == {code})


@pytest.mark.parametrize("code", [code for code in CODES if CODES[code].instead and NEEDS.get(code, True)])
def test_the_other_program_does_not(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with put_back():
        assert codes_of(CODES[code].instead, monkeypatch) == (set(), set())


def test_both_give_what_eager_mode_gives() -> None:
    differ = []
    for code in filter(runs, CODES):
        row = CODES[code]
        for program in (row.example, row.instead):
            if "def f(" in program and code not in SECTIONS[UNLIKE_EAGER]:
                with put_back():
                    eager, compiled = results(program)
                differ += [] if same(eager, compiled) else [(code, eager, compiled)]
    assert differ == []


def test_a_message_has_every_part() -> None:
    def inside(x):
        return x.max().data_ptr()

    def outside(x):
        return x * inside(x + 1)

    with pytest.raises(dovetail.GraphBreakError) as caught:
        dovetail.compile(outside, backend="eager", fullgraph=True)(torch.ones(3))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("[data-dependent-value] ")
    places = [k for k, line in enumerate(lines) if line.startswith("  File ")]
    assert [line.rpartition(", in ")[2] for line in lines if line.startswith("  File ")] == ["outside", "inside"]
    assert lines[places[1] + 1].strip() == "return x.max().data_ptr()" and set(lines[places[1] + 2].strip()) == {"^"}
    assert lines[-2].startswith("  What to do: ") and lines[-1].endswith(explained_by("data-dependent-value"))


MARKED = {
    # a line, its columns in bytes of UTF-8, what is shown
    "    y = f(x)\n": (8, 12, ["y = f(x)", "    ^^^^"]),
    "    s = 'é', f(x)\n": (14, 18, ["s = 'é', f(x)", "         ^^^^"]),
    "\ta,\tf(x)": (4, 8, ["a,\tf(x)", "  \t^^^^"]),
    "  f(x,": (2, 90, ["f(x,", "^^^^"]),
    "  f(": (-1, -1, ["f("]),
    "\n": (0, 1, [""]),
}


@pytest.mark.parametrize("line", MARKED)
def test_carets_stand_under_the_columns(line: str) -> None:
    column, end_column, shown = MARKED[line]
    assert marked(line, column, end_column) == shown


def test_an_error_has_its_codes_remedy_or_its_own() -> None:
    assert Unsupported("clock", "because").remedy == CODES["clock"].remedy
    assert Unsupported("clock", "because", "Try this.").remedy == "Try this."


def test_refused_breaks_say_why(recwarn) -> None:
    def fn(x):
        y = x + 1
        exec("z = y")
        return y * 2

    x = torch.ones(3)
    torch.testing.assert_close(dovetail.compile(fn, backend="eager")(x), fn(x))
    texts = [str(r.message) for r in recwarn.list] + [str(r) for r in dovetail.explain(fn)(x).break_reasons]
    assert any("The graph cannot end there" in text and "[frame-reader]" in text for text in texts), texts
