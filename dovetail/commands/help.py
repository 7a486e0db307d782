"""`dovetail help CODE`: its paragraph of `errors/graph-breaks.md`."""

from __future__ import annotations

import difflib

import click

from dovetail.errors.codes import CODES, SECTIONS


@click.command
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """Explain CODE, the word in brackets that a graph break or an error begins with; without it, list all."""
    click.echo(_list() if code is None else explanation(code.strip("[]")))


def explanation(code: str) -> str:
    """Raises UsageError for an unknown code, with those that it may have been meant as."""
    if code not in CODES:
        near = difflib.get_close_matches(code, CODES, 3, 0.5)
        raise click.UsageError(f"there is no code {code!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    found = CODES[code]
    text = f"[{code}] The code {found.title}.\n\n{found.explanation}\n\n{_indented(found.example)}\n\n"
    return f"{text}What to do: {found.remedy}" + (f"\n\n{_indented(found.instead)}" if found.instead else "")


def _indented(program: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in program.splitlines())


def _list() -> str:
    blocks = []
    for title, rows in SECTIONS.items():
        blocks.append("\n".join([title, *(f"  {code:28} {found.title}" for code, found in rows.items())]))
    return "\n\n".join(blocks)
