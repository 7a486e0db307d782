"""`dovetail minify FILE`: a repro cut down to the few operators that still fail."""

from __future__ import annotations

import functools
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch
import torch.fx

from dovetail import guards
from dovetail.capture.entry import capture
from dovetail.diagnostics import repro
from dovetail.errors import DovetailError
from dovetail.minify.candidate import Candidate
from dovetail.minify.search import Search
from dovetail.minify.trial import Ending, Patience
from dovetail.options import Options


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The smaller file (FILE with _minified).")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds in all.")
@click.option("--trial-timeout", default=30.0, show_default=True, help="Seconds after which one run counts as endless.")
def command(file: Path, out: Path | None, timeout: float, trial_timeout: float) -> None:
    """Cut the repro FILE, which a warning has named, down to the operators, sizes and types that still fail.

    A run fails in the same way if it raises the same class of error in the same stage, gives wrong values, crashes with
    the same signal, or does not end.
    """
    torch.set_num_threads(1)  # runs are forks of this process, which have none of its threads
    out = out or file.with_stem(file.stem + "_minified")
    started = runpy.run_path(str(file))
    missing = [name for name in ("function", "args", "kwargs", "choices") if name not in started]
    if missing:
        raise click.UsageError(f"{file} is no repro of Dovetail's: it defines no {missing[0]}")
    smallest, failure = minified(started, timeout, trial_timeout, _progress)
    out.write_text(_text(smallest, failure, started["choices"]), encoding="utf-8")
    click.echo(f"{len(smallest.calls)} operators fail with {failure.kind}: python {out}")


def minified(started: dict[str, Any], timeout: float, trial_timeout: float, told: Any) -> tuple[Candidate, Ending]:
    """The smallest failing part of what a repro's file defines. Raises ClickException if it does not fail."""
    choices = started["choices"]
    until = time.monotonic() + timeout
    call = started["function"], started["args"], started["kwargs"]
    patience = Patience(trial_timeout)
    failure = patience.ending(functools.partial(repro.run, *call, **choices))
    if not failure.kind:
        raise click.ClickException("the file does not fail here")
    first = _captured(started)

    def ends(candidate: Candidate) -> Ending:
        return patience.ending(functools.partial(_run, _text(candidate, failure, choices)))

    if ends(first).kind != failure.kind:
        raise click.ClickException(f"the graph alone does not fail with {failure.kind}: {failure.message}")
    return Search(ends, failure, until, told).smallest(first), failure


def _run(text: str) -> None:
    """What the file would do."""
    space: dict[str, Any] = {"__name__": "repro"}
    exec(compile(text, "repro.py", "exec"), space)
    space["main"]()


def _captured(started: dict[str, Any]) -> Candidate:
    options = Options(fullgraph=True, dynamic=started["choices"]["dynamic"])
    try:
        found = capture(started["function"], tuple(started["args"]), started["kwargs"], options)
    except DovetailError as error:
        raise click.ClickException(f"capture itself fails, so that there is no graph to cut down: {error}") from None
    inputs = guards.real_inputs(found, started["function"], tuple(started["args"]), started["kwargs"])
    return Candidate(found.graph, tuple(inputs))


def _progress(candidate: Candidate, trials: int) -> None:
    click.echo(f"\r{len(candidate.calls)} operators after {trials} runs ", nl=False, file=sys.stderr)


def _text(candidate: Candidate, failure: Ending, choices: dict[str, Any]) -> str:
    options = Options(backend=choices["backend"], dynamic=choices["dynamic"], **choices["options"])
    told = f"{failure.kind}: {failure.message}".strip(": ")
    return repro.text(told, None, options, candidate.module, candidate.inputs)
