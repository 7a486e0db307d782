"""The page that `dovetail report` makes, in a real browser where there is one."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

import dovetail
from benchmarks.browser import browser
from dovetail.commands.report import report

#: The texts with a contrast to what is behind them below 4.5, what WCAG 2 asks for.
FAINT = """(() => {
    const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
    const linear = (part) => part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4;
    const light = (color) => { const [r, g, b] = numbers(color).map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (at) => { while (numbers(getComputedStyle(at).backgroundColor)[3] === 0) at = at.parentElement; return getComputedStyle(at).backgroundColor; };
    const contrast = (at) => { const [low, high] = [light(getComputedStyle(at).color), light(behind(at))].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
    const texts = [...document.querySelectorAll("body *:not(script)")].filter((at) => [...at.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
    return texts.filter((at) => contrast(at) < 4.5).map((at) => at.outerHTML);
})()"""  # noqa: E501


def a_function_whose_name_is_so_long_that_no_column_of_a_table_has_room_for_it(x, flag):
    y = torch.sin(x) * 2
    dovetail.graph_break()
    return torch.cos(y) + 1 if flag == "a" else y


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOVETAIL_TRACE", str(folder / "trace"))
        compiled = dovetail.compile(a_function_whose_name_is_so_long_that_no_column_of_a_table_has_room_for_it)
        for flag in "ab":
            compiled(torch.ones(250, 1000), flag)
    report(folder / "trace", folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def window():
    with ExitStack() as opened:
        try:
            tab = opened.enter_context(browser())
        except (FileNotFoundError, ConnectionError) as error:
            pytest.skip(str(error))
        yield tab


@pytest.fixture
def tab(window, page):
    window.resize(1280, 900)
    window.scheme("light")
    window.open("about:blank")
    window.open(page)
    return window


def seen(tab, selector: str) -> bool:
    """Is there such an element, not inside what is closed, and within the window?"""
    return tab.run(f"""(() => {{ const at = document.querySelector({selector!r}), box = at.getBoundingClientRect();
        return at.checkVisibility() && box.bottom > 0 && box.top < innerHeight; }})()""")


def text(tab, selector: str) -> str:
    return tab.run(f"document.querySelector({selector!r}).innerText")


def test_opens_from_disk_and_asks_for_nothing_else(tab, page) -> None:
    assert tab.requests == [page] and tab.problems == []


def test_a_problem_would_be_noticed(tab) -> None:
    tab.run("""console.error("one"); setTimeout(() => missing());
        new Promise((done) => { const at = new Image(); at.onerror = done; at.src = "http://127.0.0.1:9/"; })""")
    assert tab.requests[1:] == ["http://127.0.0.1:9/"] and len(tab.problems) >= 2


def test_sections_are_in_order_and_have_contents(tab) -> None:
    expected = [
        "What to fix first", "graph_break()", "1 time · ", "Graph breaks", "[explicit-break]",
        "dovetail.graph_break()\n^^^", "Remove the call", "Recompilations",
        "flag == 'a' (actual 'b')", "Time", "capture", "Kernels and library calls",
        "sin + mul", "1.0 MB", "Lines", "Compilations", "compiled",
    ]  # fmt: skip
    rest = text(tab, "body").partition("failed")[2]
    for part in expected:
        _, found, rest = rest.partition(part)
        assert found, part


def test_what_to_fix_leads_to_its_cause(tab) -> None:
    tab.click(".first a[href='#break0']")
    assert seen(tab, "#break0 pre") and "dovetail.graph_break()" in text(tab, "#break0")


def test_a_kernel_opens_to_its_line_and_its_text(tab) -> None:
    kernel = "details[id^=k-]"
    assert not seen(tab, f"{kernel} td") and not seen(tab, f"{kernel} details:last-of-type pre")
    tab.click(f"{kernel} > summary")
    assert seen(tab, f"{kernel} td") and "y = torch.sin(x) * 2" in text(tab, kernel)
    tab.click(f"{kernel} details:last-of-type > summary")
    assert seen(tab, f"{kernel} details:last-of-type pre") and "define internal void" in text(tab, kernel)


def test_a_line_leads_to_its_kernel(tab) -> None:
    tab.click("#lines ~ details > summary")
    tab.click("#lines ~ details td a")
    assert tab.run("document.querySelector(location.hash).open") and seen(tab, "details[id^=k-][open] td")


def test_the_chart_zooms_and_leads_to_a_compilation(tab) -> None:
    whole, box = text(tab, ".ruler"), "document.querySelector('.lane i:not(.whole)')"
    tab.click(".lane i:not(.whole)")
    assert text(tab, ".ruler") != whole and tab.run(f"{box}.title") in text(tab, "#picked")
    width = f"{box}.offsetWidth / document.querySelector('.lane').offsetWidth"
    assert tab.run(width) > 0.95
    tab.click("#picked a")
    assert tab.run("document.querySelector(location.hash).open") and seen(tab, "#all ~ details[open] > summary")
    tab.click("#out")
    assert text(tab, ".ruler") == whole and tab.run(width) < 0.95 and not seen(tab, "#picked")


def test_the_keyboard_opens_what_the_mouse_does(tab) -> None:
    tab.run("document.querySelector('#all ~ details > summary').focus()")
    tab.enter()
    assert seen(tab, "#all ~ details[open] > summary")


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_nothing_is_wider_than_the_window(tab, width) -> None:
    tab.resize(width, 800)
    tab.run("document.querySelectorAll('details').forEach((at) => at.open = true)")
    assert tab.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out(tab, scheme) -> None:
    tab.scheme(scheme)
    tab.run("document.querySelectorAll('details').forEach((at) => at.open = true)")
    assert tab.run(FAINT) == []
