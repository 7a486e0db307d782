"""Every reason why a graph ends or a function runs eagerly, by its stable code.

The page beside this file, `graph-breaks.md`, has a paragraph for each, and is read here; `dovetail help CODE` prints
it. A message adds what only the place knows: names, types, the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("graph-breaks.md")


@dataclass(frozen=True)
class Code:
    """One reason. `title` completes "The code ..."; `example` gives this reason, `instead` does not."""

    title: str
    explanation: str
    example: str
    remedy: str
    instead: str


#: How a paragraph is written.
_ROW = re.compile(
    r'<a id="(.+)"></a>\n### \1\n\.\.\. (.+)\.\n\n(.+)\n\n```(?:python|text)\n((?:.*\n)*?)```\n\nWhat to do: (.+)\n'
    r"(?:\n```python\n((?:.*\n)*?)```\n)?"
)


def _read(text: str) -> dict[str, dict[str, Code]]:
    """The rows of each section, by their codes."""
    found: dict[str, dict[str, Code]] = {}
    for section in text.split("\n## ")[1:]:
        rows = found[section.partition("\n")[0]] = {}
        for code, title, explanation, example, remedy, instead in _ROW.findall(section):
            rows[code] = Code(title, explanation, example.strip(), remedy, instead.strip())
    return found


SECTIONS = _read(PAGE.read_text(encoding="utf-8"))
CODES = {code: row for section in SECTIONS.values() for code, row in section.items()}


def explained_by(code: str) -> str:
    """The command that explains the code: who reads a message may have no browser at hand."""
    return f"dovetail help {code}"
