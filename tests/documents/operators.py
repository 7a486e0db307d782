"""Write `docs/operators.md` from the operators' rows.

    python -m tests.documents.operators
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from dovetail.ops.lowering.registry import Row, Rows
from dovetail.ops.table import MODULES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"
BEGIN = """# Operators

What is known of an operator beyond its schema stands on its row, beside its lowering (`ops/lowering/`, `ops/own/`) or,
if it is only ever a library call, in `ops/calls/library_rows.py`; [how-to-add.md](how-to-add.md) adds one. This page
lists every row. `python -m tests.documents.operators` writes it.

An operator without a row is a library call that PyTorch's meta kernel gives the result of. A name without an overload
(`add`) is a row for all overloads that have none of their own.

## Fields

| field | meaning |
|---|---|
"""


def page() -> str:
    """The document's text."""
    sections = [_section(module.__name__, module.ROWS) for module in MODULES]
    return BEGIN + "".join(f"| `{name}` | {text} |\n" for name, text in _meanings()) + "".join(sections)


def _meanings() -> list[tuple[str, str]]:
    found = re.findall(r"^    `(\w+)`: (.*?)\.$", Row.__doc__ or "", re.MULTILINE | re.DOTALL)
    return [("lowering", "makes loops of it"), *((name, " ".join(text.split())) for name, text in found)]


def _section(module: str, rows: Rows) -> str:
    """One line for each set of fields, with the operators that have it."""
    lines: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, row in rows.items():
        lines[_fields(row)].append(name.removeprefix("aten::"))
    shown = {known: " ".join(f"`{name}`" for name in sorted(names)) for known, names in lines.items()}
    text = [f"| {names} | {', '.join(known)} |" for known, names in shown.items()]
    path = module.removeprefix("dovetail.").replace(".", "/")
    return "\n".join(["", f"## {path}.py", "", "| operators | fields |", "|---|---|", *sorted(text), ""])


def _fields(row: Row) -> tuple[str, ...]:
    """The names of those that say something."""
    return tuple(name for name, value in row._asdict().items() if value != Row._field_defaults[name])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
