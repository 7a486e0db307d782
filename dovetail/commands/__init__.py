"""The command `dovetail`, also `python -m dovetail`: each subcommand is a file here, imported when it is used."""

from __future__ import annotations

import importlib

import click

#: Each command: the module and the line that the list of commands shows.
COMMANDS: dict[str, str] = {
    "doctor": "Run a program as it is and compiled, and say what is wrong, what is slow and what to do.",
    "minify": "Cut a repro file down to the few operators that still fail.",
    "help": "Explain a code such as [opaque-call] that a message has named, or print a page such as settings.",
    "report": "Make a page of what DOVETAIL_TRACE has recorded: breaks, recompilations, time, kernels.",
    "logs": "List what DOVETAIL_LOGS can show.",
    "cache": "Show or clear the kernels on disk.",
    "env": "Show versions, devices and settings, for a bug report.",
}


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"dovetail.commands.{name}").command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table: to list the commands none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dovetail")
def main() -> None:
    """Tools for programs that use dovetail.compile."""
