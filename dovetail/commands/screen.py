"""The one screen that `dovetail doctor` prints: right or not, what each run takes, what to mend first."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from dovetail.commands import overview
from dovetail.commands.again import recompilations
from dovetail.commands.findings import Findings, seconds
from dovetail.commands.ladder import ASKED, CHECKED, DECOMPOSED, LADDER, RANDOM, SETTINGS, WRITTEN, Noted, Run
from dovetail.commands.overview import Cause
from dovetail.commands.paths import Paths, named
from dovetail.commands.report import in_seconds

HEIGHT = 40  # lines, of which causes take what is left
MOST = 5  # causes
MOST_OF_WARNING = 6  # lines
SHARE = 0.05  # of the program's time that something must take to be named

NOTHING = (
    "The program compiles nothing and calls no module, so there is nothing to compare. Put @dovetail.compile before "
    "the function that computes, or call dovetail.compile(model)."
)
ELSEWHERE = "Only processes that the program starts call something compiled: their results are not compared."
PYTORCH = "The program calls torch.compile; here dovetail.compile takes its place."


def show(console: Console, found: Findings) -> int:
    """Print it; 1 if a compiled run is wrong or fails where eager mode does not, or the program fails by itself."""
    lines = list(_lines(found, min(console.width, 120)))
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    ended = bool(found.eager.failure) or not found.runs and found.eager.code != 0
    alone = not found.wrong.get(RANDOM, "?")  # is it random numbers alone that differ?
    return int(ended or not alone and any(found.wrong.get(way.name) for way in LADDER))


def _lines(found: Findings, width: int) -> Iterator[str]:
    eager, written = found.eager, found.runs.get(WRITTEN.name)
    if eager.failure:
        yield f"[red]The program fails without compiling: {escape(eager.failure)}"
        yield from (escape(f"  {line}") for line in eager.printed)
        return
    if written is None and eager.code:
        yield f"[red]The program ends with {eager.code} before it calls anything that could be compiled:"
        yield from (escape(f"  {line}") for line in eager.printed)
        return
    if written is None:
        yield from textwrap.wrap(NOTHING, width)
        return
    head = [*_head(found, width), ""]
    if any(one.calls for one in eager.noted):
        head += [*_table(found, width), "", *_verdict(found, width)]
    yield from head
    yield from _causes(found, written, width, HEIGHT - len(head))


def _head(found: Findings, width: int) -> Iterator[str]:
    called = Counter(call["name"] for call in found.eager.first.calls)
    if not called:
        yield ELSEWHERE
        return
    count = sum(called.values())
    whose = " in each of " + str(len(found.eager.noted)) + " ranks" if len(found.eager.noted) > 1 else ""
    if found.modules:
        yield from textwrap.wrap(
            f"The program compiles nothing. Here the modules that it calls are compiled, as model = "
            f"dovetail.compile(model) does: {', '.join(called)}.", width,
        )  # fmt: skip
    else:
        text = f"{count} call{'s' * (count != 1)}{whose}: {', '.join(called)}."
        yield textwrap.shorten(text, width, placeholder=" ...")
    if found.eager.first.by_pytorch:
        yield PYTORCH


# ---------------------------------------------------------------- the table


COLUMNS = (  # titles, and how wide each is
    ("", 19), ("right", 6), ("graphs", 7), ("breaks", 7), ("compiling", 10), ("first call", 11), ("later calls", 16),
    ("call to call", 16), ("peak", 8),
)  # fmt: skip


NARROW = ("first call", "later calls")  # are left out where there is less room


def _table(found: Findings, width: int) -> Iterator[str]:
    """`later calls` are the calls alone, `call to call` what is between them too: a backward pass, an optimizer."""
    left_out = NARROW if width < sum(room for _, room in COLUMNS) else ()
    plain = seconds(found.eager.first)
    rows = [[title for title, _ in COLUMNS], ["eager", "", "", "", "", *_times(found.eager, None)]]
    for name, run in found.runs.items():
        made = run.compilations
        rows.append([
            name, "no" if found.wrong[name] else "yes", str(sum(c.outcome == "compiled" for c in made)),
            str(sum(len(c.breaks) for c in made)), in_seconds(sum(c.seconds for c in made)), *_times(run, plain),
        ])  # fmt: skip
    for name, *cells in rows:
        placed = zip(cells, COLUMNS[1:], strict=True)
        right, *others = (cell.rjust(room) for cell, (title, room) in placed if title not in left_out)
        right = f"[red]{right}[/red]" if cells[0] == "no" else right
        yield f"{escape(name.ljust(COLUMNS[0][1]))}{right}{''.join(others)}".rstrip()


def _times(run: Run, plain: Sequence[float] | None) -> Iterator[str]:
    first, later, between = seconds(run.first)
    yield _short(first) if first else "-"
    for number, time in ((1, later), (2, between)):
        ratio = time / plain[number] if plain is not None and plain[number] else 0.0
        times = f" {ratio:.{2 if ratio < 10 else 0}f}x" if ratio else ""
        yield f"{_short(time)}{times}" if time else "-"
    yield f"{run.first.memory:.0f} MiB" if run.first.memory else "-"


def _short(time: float) -> str:
    """With three digits."""
    return f"{time:.3g} s" if time >= 1 else f"{time * 1e3:.3g} ms"


# ---------------------------------------------------------------- right or not


def _verdict(found: Findings, width: int) -> Iterator[str]:
    names = [way.name for way in LADDER if way.name in found.wrong]
    wrong = {name: found.wrong[name] for name in names if found.wrong[name]}
    if not wrong:
        yield "[green]Right in every run: results and gradients are those of eager mode, within rounding."
        if warned(found.runs[WRITTEN.name]):
            yield "[yellow]But not everything is compiled, as is said below."
    for words in dict.fromkeys(wrong.values()):
        ways = ", ".join(name for name in wrong if wrong[name] == words)
        yield from _wrapped(f"{ways}: {words}", width, "red")
    if wrong and found.wrong[found.first].startswith(ASKED):
        yield from _wrapped("fullgraph=True asks for this error: what ends the graph is named below.", width)
    elif wrong:
        yield from _blame(found, wrong, width)
    if found.noise:
        yield from _wrapped(f"Eager mode itself gives other results the second time: {found.noise}", width, "yellow")


def _blame(found: Findings, wrong: Mapping[str, str], width: int) -> Iterator[str]:
    """Which stage it comes from, what makes it right, how to report it."""
    later = [way.name for way in LADDER if way.name in found.wrong]
    later = later[later.index(found.first) :]
    text = f"What is wrong comes from {found.stage}."
    if found.first == WRITTEN.name and found.wrong.get(DECOMPOSED.name) == "":
        text += f" With backend={DECOMPOSED.compile['backend']!r} it is right."
    elif not all(name in wrong for name in later) and found.first in later[:-2]:
        text = f"{found.first} is wrong, which adds {found.stage}; but a run after it is right."
    yield from _wrapped(text, width)
    for name, (_, _, words) in SETTINGS.items():
        if found.wrong.get(name) == "":
            yield from _wrapped(words, width, "yellow")
    if "KernelFault" in found.wrong.get(CHECKED, ""):
        yield from _wrapped(f"Kernels that check their accesses say: {found.wrong[CHECKED]}", width, "yellow")
    yield "To report it: DOVETAIL_REPRO_LEVEL=4 leaves a file that shows it again; dovetail minify FILE cuts it down."


# ---------------------------------------------------------------- causes


def _causes(found: Findings, written: Run, width: int, rows: int) -> Iterator[str]:
    compilations = [c for process in written.traced for c in process.compilations.values()]
    files = (call["place"].rpartition(":")[0] for call in _every(found.eager.first))
    shorter = Paths((*named(compilations), *files)).short
    causes = [c for c in (*overview.breaks(compilations), *recompilations(compilations)) if not c.idle]
    causes.sort(key=lambda cause: (not cause.verdict, -cause.seconds, -cause.count))
    texts = [list(_cause(k, cause, shorter, width)) for k, cause in enumerate(causes[:MOST], 1)]
    outside = [line for text in _outside(found, shorter) for line in _wrapped(text, width)]
    for text in warned(written)[:MOST]:
        first, *more = shorter(text).splitlines()
        outside += [*_wrapped(first, width), *(escape(line[:width]) for line in more[: MOST_OF_WARNING - 1])]
    rows -= len(outside) + 2 if outside else 0
    shown = 0
    while shown < len(texts) and (shown < 1 or sum(map(len, texts[: shown + 1])) + 3 <= rows):
        shown += 1
    if texts:
        yield "\n[bold]What to fix first[/bold]"
        yield from (line for text in texts[:shown] for line in text)
    if len(causes) > shown:
        yield f"and {len(causes) - shown} more: dovetail doctor -o report.html makes a page of all"
    if outside:
        yield "\n[bold]Not compiled[/bold]"
        yield from outside


def warned(run: Run) -> list[str]:
    """What the program is told of functions that run eagerly."""
    return [cause.title for cause in overview.eager(run.traced) if cause.title.startswith("dovetail runs")]


def _cause(number: int, cause: Cause, shorter: Any, width: int) -> Iterator[str]:
    """Four lines or so: what, how often, the line with a caret, what to do."""
    cost = f"{cause.count}x" + (f", {in_seconds(cause.seconds)}" if cause.seconds else "")
    title = textwrap.shorten(cause.title, max(width - len(cost) - 6, 20), placeholder=" ...")
    gap = " " * max(width - len(title) - len(cost) - len(str(number)) - 2, 1)
    yield f"[bold]{number}. {escape(title)}[/bold]{gap}{cost}"
    place = next(iter(cause.places.values()))
    others = f" and {len(cause.places) - 1} more" if len(cause.places) > 1 else ""
    code = f"  \\[{cause.code}]" if cause.code else ""
    where = f"{shorter(place.where)}{others}"
    yield f"   {escape(where)}{code}"
    for line in place.text.splitlines():
        yield f"       [cyan]{escape(line[: width - 7])}[/cyan]"
    if cause.verdict:
        yield from _wrapped(cause.verdict, width, "red", "   ")
    yield from _wrapped(cause.remedy, width, "green", "   ")


def _outside(found: Findings, shorter: Any) -> Iterator[str]:
    """What takes a share of the program's time in eager mode and is no part of what is compiled."""
    first, every = found.eager.first, _every(found.eager.first)
    ends = [call["began"] + call["seconds"] for call in every]
    whole = max(ends, default=0.0) - min((call["began"] for call in every), default=0.0)
    for calls in (*first.alone, first.steps):
        spent = sum(call["seconds"] for call in calls)
        if calls and whole and spent / whole >= SHARE:
            what = f"{calls[0]['name']}, {shorter(calls[0]['place'])}: {len(calls)} calls"
            remedy = OPTIMIZER if calls is first.steps else MODULE
            yield f"{what}, {spent / whole:.0%} of the time in eager mode. {remedy}"


def _every(one: Noted) -> list[dict[str, Any]]:
    """All calls that were noted, of whatever kind."""
    return [call for calls in (one.calls, *one.alone, one.steps) for call in calls]


OPTIMIZER = "Compile a function that calls it."
MODULE = "dovetail.compile(it)."


def _wrapped(text: str, width: int, style: str = "", indent: str = "") -> Iterator[str]:
    for line in textwrap.wrap(" ".join(text.split()), width, initial_indent=indent, subsequent_indent=indent):
        yield f"[{style}]{escape(line)}[/{style}]" if style else escape(line)
