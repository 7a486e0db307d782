"""`dovetail logs`."""

from __future__ import annotations

import click

from dovetail.diagnostics.logs import listing


@click.command
def command() -> None:
    """List what DOVETAIL_LOGS can show."""
    click.echo(listing())
