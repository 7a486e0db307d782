"""The tour: its blocks run in order, and print what it says."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from pathlib import Path

import dovetail

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def printed(text: str) -> list[tuple[str, str]]:
    """What each block should print and what it prints. Programs are read from files: each block is one of its own."""
    scope: dict[str, object] = {"__name__": "tour"}
    found = []
    for number, block in enumerate(BLOCK.finditer(text)):
        source, expected = block.group(1), block.group(2) or ""
        name = f"<tour {number}>"
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(source, name, "exec"), scope)
        found.append((_lines(expected), _lines(out.getvalue())))
    return found


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_every_block_prints_what_the_tour_says() -> None:
    try:
        blocks = printed(TOUR.read_text(encoding="utf-8"))
    finally:
        dovetail.reset()
    assert len(blocks) > 10
    for expected, found in blocks:
        assert found == expected
