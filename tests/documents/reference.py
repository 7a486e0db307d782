"""Write the pages of settings and of public names from their declarations.

    python -m tests.documents.reference
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import dovetail
from dovetail.commands.pages import PAGES
from dovetail.config import INSTEAD, OTHERS, PREFIX, SETTINGS, Setting

SETTINGS_BEGIN = """# Settings

`dovetail.config.NAME = value` sets one, `with dovetail.config.patch(NAME=value):` does for a block or, as a decorator,
for a function, and the environment variable does for a process. A setting is read when a function is compiled. Unknown
names and values of the wrong type raise `InvalidArgument`; in the environment they are named, and the default counts.

`python -m tests.documents.reference` writes this page from `dovetail/config.py`.

| setting | variable | default | takes | meaning |
|---|---|---|---|---|
"""
API_BEGIN = """# Public names

All that `dovetail` exports, from the docstrings (`python -m tests.documents.reference` writes this page). The settings
of `dovetail.config` are in [settings.md](settings.md).
"""


def settings() -> str:
    """The page of settings."""
    rows = [
        f"| `{s.name}` | `{PREFIX}{s.name.upper()}` | {_default(s)} | {_taken(s)} | {s.doc} |"
        for s in SETTINGS.values()
    ]
    others = [f"| `{PREFIX}{name}` | {meaning} |" for name, meaning in OTHERS.items()]
    known = [f"| `{name}` | {text} |" for name, text in INSTEAD.items()]
    return SETTINGS_BEGIN + "\n".join([
        *rows, "", "## Variables that are no settings", "", "| variable | meaning |", "|---|---|", *others, "",
        "## Settings of PyTorch's that have another name here", "", "| setting | here |", "|---|---|", *known, "",
    ])  # fmt: skip


def _default(setting: Setting) -> str:
    return "a set of functions" if frozenset in setting.accepts else f"`{setting.default!r}`"


def _taken(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice!r}`" for choice in setting.choices)
    return " or ".join("None" if t is type(None) else t.__name__ for t in setting.accepts if t is not frozenset)


def api() -> str:
    """The page of public names, `compile` first."""
    names = sorted(dovetail.__all__, key=lambda name: (name != "compile", name.lower()))
    return API_BEGIN + "".join("\n".join(_entry(name, getattr(dovetail, name))) for name in names)


def _entry(name: str, found: Any) -> Iterator[str]:
    own = found if inspect.isroutine(found) or inspect.isclass(found) else type(found)
    yield from ("", f"## {name}", "")
    if own.__module__.partition(".")[0] != "dovetail":
        yield from (f"PyTorch's `{own.__module__}.{own.__qualname__}`, which capture answers.", "")
        return
    if own is found and not (inspect.isclass(found) and issubclass(found, BaseException)):
        yield from ("```text", f"dovetail.{name}{_signature(found)}", "```", "")
    yield from (_text(own.__doc__), "")


def _signature(found: Any) -> str:
    """Without annotations: the docstring says what is taken."""
    signature = inspect.signature(found)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def _text(doc: str | None) -> str:
    """Lines of `name: meaning`, with what is indented below them, become items of a list."""
    lines = []
    for line in inspect.cleandoc(doc or "").splitlines():
        word = line.partition(":")[0]
        is_item = line[:1].islower() and ": " in line and word.replace(", ", "").isidentifier()
        other = line[2:] if line.startswith("    ") else line
        lines.append(f"* `{word}`:{line[len(word) + 1 :]}" if is_item else other)
    return "\n".join(lines)


WRITTEN = {"settings": settings, "api": api}

if __name__ == "__main__":
    for name, text in WRITTEN.items():
        (PAGES / f"{name}.md").write_text(text(), encoding="utf-8")
