"""The Python blocks of a page, and the one way to run them: in order, in one process, each as a file of its own."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
ERROR = re.compile(r"#.*\b(\w*(?:Error|InvalidArgument|SpecializedDimension)): \.\.\.")


@dataclass(frozen=True)
class Block:
    """One block, what a block of text right behind it says that it prints, and the error that a comment in it names."""

    source: str
    printed: str
    error: str
    name: str


def blocks(page: Path, text: str = "") -> list[Block]:
    """The page's, or those of a part of it."""
    found = BLOCK.finditer(text or page.read_text(encoding="utf-8"))
    return [
        Block(b.group(1), lines(b.group(2) or ""), "".join(ERROR.findall(b.group(1))[:1]), f"<{page.name} {k}>")
        for k, b in enumerate(found, 1)
    ]


def run(block: Block, scope: dict[str, Any]) -> str:
    """What it prints; the error that it names is raised and nothing is."""
    linecache.cache[block.name] = len(block.source), None, block.source.splitlines(keepends=True), block.name
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(block.source, block.name, "exec"), scope)
        except Exception as error:
            if type(error).__name__ != block.error:
                raise
        else:
            assert not block.error, f"{block.name} raises nothing"
    return lines(out.getvalue())


def lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
