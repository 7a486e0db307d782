"""`dovetail doctor SCRIPT`: the troubleshooting ladder in one command.

The program runs in eager mode, once more with each call in float64 beside it, and compiled: captured only, with
gradients' graphs, as it is written, and with sizes that may and may not change (`ladder.py`). Results are compared call
by call, which says whether and from which stage on they are wrong (`findings.py`); then settings are tried that may
make it right. Where the program compiles nothing, the modules that it calls are compiled.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dovetail.commands.findings import Findings
from dovetail.commands.ladder import (
    AGAIN,
    ASKED,
    DECOMPOSED,
    EAGER,
    GRAPHS,
    LADDER,
    SETTINGS,
    WRITTEN,
    Ladder,
    Run,
    Variant,
)
from dovetail.commands.report import report
from dovetail.commands.screen import show

Step = Callable[[Variant, int | None], Run]


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as after `python -m`: torch.distributed.run.")
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the page of a report.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds that one run may take.")
@click.option("--quick", is_flag=True, help="Only in eager mode and as it is written.")
def command(
    script: str, arguments: tuple[str, ...], module: bool, out: Path | None, timeout: float, quick: bool
) -> None:
    """Run SCRIPT as it is and compiled, and say what is wrong, what is slow and what to do.

    Exits with 1 if a compiled run is wrong or fails where eager mode does not. Options for the doctor come before
    SCRIPT, what follows it is the program's own. It is run seven times and more: what it reads from its standard
    input is the same each time.
    """
    if not module and not Path(script).is_file():
        raise click.BadParameter(f"there is no file {script!r}", param_hint="'SCRIPT'")
    command = ["-m", script, *arguments] if module else [script, *arguments]
    console = Console()
    with tempfile.TemporaryDirectory(prefix="dovetail_doctor_", ignore_cleanup_errors=True) as folder:
        found = examined(Ladder(command, timeout, Path(folder)), console, quick)
        code = show(console, found)
        written = found.runs.get(WRITTEN.name)
        if out is not None and written is not None and written.folder is not None:
            report(written.folder, out)
            console.print(f"\nThe whole record: {out}", highlight=False)
    sys.exit(code)


def examined(ladder: Ladder, console: Console, quick: bool) -> Findings:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("eager", total=2 if quick else 2 + len(LADDER))

        def step(way: Variant, modules: int | None) -> Run:
            progress.update(task, description=way.name)
            run = ladder.run(way, modules)
            progress.advance(task)
            return run

        return climbed(step, quick)


def climbed(step: Step, quick: bool = False) -> Findings:
    """The findings of as many runs as are of use."""
    eager = step(EAGER, None)
    modules = 0 if any(one.calls for one in eager.noted) else max(len(one.alone) for one in eager.noted)
    found = Findings(eager.alone() if modules else eager, modules=modules)
    if eager.failure:
        return found
    if not any(one.calls for one in found.eager.noted):
        if eager.elsewhere:
            found.add(WRITTEN.name, step(WRITTEN, 0))
        return found
    if not quick:
        found.again = step(AGAIN, modules)
    for way in (WRITTEN,) if quick else LADDER:
        found.add(way.name, step(way, modules))
    if not quick and found.first and not found.wrong[found.first].startswith(ASKED):
        _narrow(step, found, next(way for way in LADDER if way.name == found.first))
    return found


def _narrow(step: Step, found: Findings, wrong: Variant) -> None:
    """Try what may tell more about the first way that is wrong."""
    if wrong is WRITTEN:
        found.add(DECOMPOSED.name, step(DECOMPOSED, found.modules))
    for name, (variable, value, _) in SETTINGS.items():
        if name != GRAPHS or any(one.on_gpu for one in found.eager.noted):
            way = Variant(name, wrong.compile, settings={variable: value})
            found.add(name, step(way, found.modules))
