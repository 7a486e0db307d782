"""The figures as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from ..contenders import CONTENDERS, EAGER
from .programs import CASES, GENERATORS
from .worker import CONSTANT, COUNT, FREE, TOKENS

ABSENT = "–"
FAILED = "[red]failed[/red]"
TOLERANCE = 10  # times eager's error, where it is more than rounding
ROUNDING = 1e-5


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    table.add_column("program", no_wrap=True)
    return table


def sequence_table(figures: dict[str, Any], contenders: Sequence[str]) -> Table:
    """One row a program; a block of columns for each compiler."""
    table = _table(f"{COUNT} different sizes, one after the other: compilations, seconds of all calls together")
    table.add_column("eager\ns", justify="right")
    for name in contenders[1:]:
        for head in (f"{CONTENDERS[name].title}\ncompilations", "\ns", "error,\nx eager's"):
            table.add_column(head, justify="right")
    for name, found in figures.items():
        table.add_row(CASES[name].title, *_cells(found, contenders, ("compilations", "seconds", "error")))
    return table


def generation_table(figures: dict[str, Any], contenders: Sequence[str]) -> Table:
    table = _table(f"{TOKENS} tokens with a growing cache: compilations, seconds in all")
    table.add_column("eager\ns", justify="right")
    for name in contenders[1:]:
        for head in (f"{CONTENDERS[name].title}\ncompilations", "\ns"):
            table.add_column(head, justify="right")
    for name, found in figures.items():
        table.add_row(GENERATORS[name][0], *_cells(found, contenders, ("compilations", "seconds")))
    return table


def _cells(found: dict[str, Any], contenders: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    eager = found[EAGER.name]
    yield FAILED if "failed" in eager else f"{eager['seconds']:.2f}"
    for name in contenders[1:]:
        for column in columns:
            yield FAILED if "failed" in found[name] else _CELLS[column](found[name])


_CELLS = {
    "compilations": lambda figures: str(figures["compilations"]),
    "seconds": lambda figures: f"{figures['seconds']:.2f}",
    "error": lambda figures: f"{figures['error'] / figures['eager error']:.1f}" if figures["eager error"] else "exact",
}


def price_table(parts: dict[str, Any]) -> Table:
    """What free sizes cost against constant ones, in compiling, running and guarding."""
    table = _table("Free sizes beside constant ones")
    for part in parts:
        title, unit = _UNITS[part]
        for head in (f"{title}\nconstant {unit}", f"\nfree {unit}", "\nratio"):
            table.add_column(head, justify="right")
    for name in next(iter(parts.values())):
        cells = [cell for found in parts.values() for cell in _prices(found[name])]
        table.add_row(CASES[name].title, *cells)
    return table


_UNITS = {"compile": ("compiling", "s"), "steady": ("running", "ms"), "guards": ("guards", "us")}


def _prices(found: dict[str, Any]) -> list[str]:
    if "failed" in found:
        return [FAILED, ABSENT, ABSENT]
    return [f"{found[CONSTANT]:.3g}", f"{found[FREE]:.3g}", f"{found['ratio']:.2f}"]


def wrong(figures: dict[str, Any]) -> list[str]:
    """What failed, what was inaccurate, and who wrote another text than eager."""
    lines = []
    for part, programs in figures.items():
        for name, found in programs.items():
            lines += [f"{name}, {part}: failed: {f['failed']}" for f in (found, *found.values()) if _failed(f)]
    for name, found in figures.get("sequence", {}).items():
        lines += [f"{name}: {who}'s error is {f['error']:.1e}" for who, f in found.items() if _inaccurate(f)]
    for name, found in figures.get("generate", {}).items():
        texts = {who: f.get("tokens") for who, f in found.items()}
        lines += [f"{name}: {who} wrote another text" for who, text in texts.items() if text != texts[EAGER.name]]
    return lines


def _failed(figures: Any) -> bool:
    return isinstance(figures, dict) and "failed" in figures


def _inaccurate(figures: dict[str, Any]) -> bool:
    return "error" in figures and figures["error"] > max(ROUNDING, TOLERANCE * figures["eager error"])
