"""`dovetail cache info` and `dovetail cache clear`."""

from __future__ import annotations

import contextlib
import time

import click

from dovetail.runtime.store import Store, default_folder


@click.group
def command() -> None:
    """Show or clear the kernels and compilations on disk, which all programs of a user share."""


@command.command
def info() -> None:
    """Where they are, how many and how large."""
    store = _store()
    found = [path.stat() for path in store.files()]
    click.echo(f"folder  {store.folder}")
    click.echo(f"files   {len(found)}, {sum(stat.st_size for stat in found) / 2**20:.1f} MiB")
    if found:
        days = (time.time() - min(stat.st_mtime for stat in found)) / 86400
        click.echo(f"oldest  {days:.1f} days")


@command.command
@click.confirmation_option(prompt="Delete all kernels and compilations? They will be made again when they are needed.")
def clear() -> None:
    """Delete them; running programs keep what they have loaded."""
    count = 0
    for path in list(_store().files()):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            path.unlink()
            count += 1
    click.echo(f"deleted {count} files")


def _store() -> Store:
    store = Store(default_folder())
    if store.folder is None:
        raise click.ClickException("nothing is kept: DOVETAIL_CACHE_DIR is empty, or there is no home folder")
    return store
