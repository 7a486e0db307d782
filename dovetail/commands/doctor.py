"""`dovetail doctor SCRIPT`: the troubleshooting ladder in one command.

The program runs once in eager mode, once more with each call in float64 beside it, and compiled: captured only, with
gradients' graphs, as it is written, and with sizes that may and may not change. Each run is a process of its own
(`rung.py`). Results are compared call by call, which says whether and from which stage on they are wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from dovetail.commands.findings import Run, crashed, screen
from dovetail.commands.rung import WAYS


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--timeout", default=600.0, show_default=True, help="Seconds that one run may take.")
@click.option("--quick", is_flag=True, help="Only in eager mode and as it is written.")
def command(script: str, arguments: tuple[str, ...], timeout: float, quick: bool) -> None:
    """Run SCRIPT as it is and compiled, and say what is wrong, what is slow and what to do.

    Exits with 1 if a compiled run is wrong or fails where eager mode does not. Options for the doctor come before
    SCRIPT, what follows it is the program's own.
    """
    ways = ["eager", "as written"] if quick else list(WAYS)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="dovetail_doctor_") as folder, Progress(console=console) as progress:
        task = progress.add_task("eager", total=len(ways))
        runs: dict[str, Run] = {}
        for way in ways:
            progress.update(task, description=way)
            runs[way] = run(way, Path(folder), script, arguments, timeout)
            progress.advance(task)
    sys.exit(screen(console, runs))


def run(way: str, folder: Path, script: str, arguments: tuple[str, ...], timeout: float) -> Run:
    out = folder / f"{way.replace(' ', '_')}.pt"
    command = [sys.executable, "-m", "dovetail.commands.rung", str(out), way, script, *arguments]
    path = os.pathsep.join(filter(None, (os.path.dirname(os.path.abspath(script)), os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return crashed(f"did not end within {timeout:.0f} s")
    if not out.exists():
        ended = f"the process ended with {done.returncode}"
        return crashed(f"{ended}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return Run.load(out)
