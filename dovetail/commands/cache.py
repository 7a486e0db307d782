"""`dovetail cache info` and `dovetail cache clear`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import click

from dovetail.runtime.cpu.store import default_folder


@click.group
def command() -> None:
    """Show or clear the compiled kernels on disk, which all programs of a user share."""


@command.command
def info() -> None:
    """Where they are, how many and how large."""
    folder = _folder()
    found = [path.stat() for path in _files(folder)]
    click.echo(f"folder  {folder}")
    click.echo(f"files   {len(found)}, {sum(stat.st_size for stat in found) / 2**20:.1f} MiB")
    if found:
        days = (time.time() - min(stat.st_mtime for stat in found)) / 86400
        click.echo(f"oldest  {days:.1f} days")


@command.command
@click.confirmation_option(prompt="Delete all compiled kernels? They will be made again when they are needed.")
def clear() -> None:
    """Delete them; running programs keep what they have loaded."""
    count = 0
    for path in list(_files(_folder())):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            path.unlink()
            count += 1
    click.echo(f"deleted {count} files")


def _folder() -> Path:
    folder = default_folder()
    if folder is None:
        raise click.ClickException("no kernels are kept: DOVETAIL_CACHE_DIR is empty, or there is no home folder")
    return folder


def _files(folder: Path) -> Iterator[Path]:
    """Those that the store has written: in folders named by the first two letters of their keys."""
    return (path for path in folder.glob("[0-9a-f][0-9a-f]/*") if path.is_file())
