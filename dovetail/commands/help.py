"""`dovetail help NAME`: a paragraph of `errors/graph-breaks.md`, or one of the pages that lie in the package."""

from __future__ import annotations

import difflib

import click

from dovetail.commands import pages
from dovetail.errors.codes import CODES, SECTIONS


@click.command
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Explain NAME, the word in brackets that a message begins with, or print the page NAME; without it, list all."""
    if name is None:
        click.echo(_list())
    else:
        click.echo(pages.text(name) if name in pages.titles() else explanation(name.strip("[]")))


def explanation(code: str) -> str:
    """Raises UsageError for an unknown code, with those that it may have been meant as."""
    if code not in CODES:
        near = difflib.get_close_matches(code, (*CODES, *pages.titles()), 3, 0.5)
        raise click.UsageError(f"there is no code {code!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    found = CODES[code]
    text = f"[{code}] The code {found.title}.\n\n{found.explanation}\n\n{_indented(found.example)}\n\n"
    return f"{text}What to do: {found.remedy}" + (f"\n\n{_indented(found.instead)}" if found.instead else "")


def _indented(program: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in program.splitlines())


def _list() -> str:
    blocks = ["\n".join(["Pages", *(f"  {name:28} {title}" for name, title in pages.titles().items())])]
    for title, rows in SECTIONS.items():
        blocks.append("\n".join([title, *(f"  {code:28} {found.title}" for code, found in rows.items())]))
    return "\n\n".join(blocks)
