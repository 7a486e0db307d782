"""`dovetail minify FILE`: a repro cut down to the few operators that still fail."""

from __future__ import annotations

import functools
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import torch
import torch.fx

from dovetail import guards
from dovetail.capture.driver import capture
from dovetail.diagnostics import repro
from dovetail.errors import DovetailError
from dovetail.ir.varying import Varying
from dovetail.minify.candidate import Candidate
from dovetail.minify.search import Search
from dovetail.minify.trial import Patience, TrialEnding
from dovetail.options import Options

SECONDS = click.FloatRange(min=0, min_open=True)
DEFINED: dict[str, Any] = {"function": object, "args": (list, tuple), "kwargs": dict, "choices": dict, "main": object}


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The smaller file (FILE_minified).")
@click.option("--timeout", type=SECONDS, default=300.0, show_default=True, help="Seconds in all.")
@click.option("--trial-timeout", type=SECONDS, default=30.0, show_default=True, help="Seconds until a run is endless.")
def command(file: Path, out: Path | None, timeout: float, trial_timeout: float) -> None:
    """Cut the repro FILE, which a warning has named, down to the operators, sizes and types that still fail.

    A run fails in the same way if it raises the same class of error in the same stage, gives wrong values, crashes with
    the same signal, or does not end.
    """
    torch.set_num_threads(1)  # runs are forks of this process, which have none of its threads
    out = out or file.with_stem(file.stem + "_minified")
    if not out.parent.is_dir():
        raise click.UsageError(f"{out} cannot be written: there is no folder {out.parent}")
    started = _started(file)
    smallest, failure = minified(started, functools.partial(_whole, str(file)), timeout, trial_timeout, _progress)
    kept: list[torch.Tensor] | None = [] if smallest.data else None
    repro.save(_text(smallest, failure, started["choices"], kept), out, kept)
    click.echo(f"{len(smallest.calls)} operators fail with {failure.kind}: python {out}")


def _started(file: Path) -> dict[str, Any]:
    """What the file defines."""
    try:
        started = runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        raise click.UsageError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    for name, kind in DEFINED.items():
        if name not in started or not isinstance(started[name], kind):
            raise click.UsageError(f"{file} is no repro of Dovetail's: it defines no {name}")
    if strange := {"dynamic", "backend", "options"} - started["choices"].keys():
        raise click.UsageError(f"{file} is no repro of Dovetail's: its choices have no {min(strange)}")
    return started


def minified(
    started: dict[str, Any], whole: Callable[[], Any], timeout: float, trial_timeout: float, told: Any
) -> tuple[Candidate, TrialEnding]:
    """The smallest failing part of what a repro's file defines; `whole` runs all of it.

    Raises ClickException if it does not fail.
    """
    choices = started["choices"]
    until = time.monotonic() + timeout
    patience = Patience(trial_timeout)
    failure = patience.ending(whole)
    if not failure.kind:
        hint = "" if "kept" in started else f"; {repro.HINT}"
        raise click.ClickException(f"the file does not fail here{hint}")
    first = _captured(started)

    def ends(candidate: Candidate) -> TrialEnding:
        kept = candidate.inputs if candidate.data else None
        return patience.ending(functools.partial(_run, _text(candidate, failure, choices), kept))

    if ends(first).kind != failure.kind:
        raise click.ClickException(f"the graph alone does not fail with {failure.kind}: {failure.message}")
    return Search(ends, failure, until, told).smallest(first), failure


def _whole(file: str) -> None:
    runpy.run_path(file)["main"]()


def _run(text: str, inputs: Sequence[Any] | None) -> None:
    """What the file would do, with these inputs if they are not written in it."""
    space: dict[str, Any] = {"__name__": "repro"}
    exec(compile(text, "repro.py", "exec"), space)
    space["args"] = space["args"] if inputs is None else inputs
    space["main"]()


def _captured(started: dict[str, Any]) -> Candidate:
    options = Options(fullgraph=True, dynamic=started["choices"]["dynamic"])
    call = started["function"], tuple(started["args"]), started["kwargs"]
    try:
        found = capture(*call, options, Varying(frozenset(started.get("varying", ()))))
    except DovetailError as error:
        raise click.ClickException(f"capture itself fails, so that there is no graph to cut down: {error}") from None
    inputs = guards.real_inputs(found, *call)
    return Candidate(found.graph, tuple(inputs), "kept" in started)


def _progress(candidate: Candidate, trials: int) -> None:
    click.echo(f"\r{len(candidate.calls)} operators after {trials} runs ", nl=False, file=sys.stderr)


def _text(
    candidate: Candidate, failure: TrialEnding, choices: dict[str, Any], kept: list[torch.Tensor] | None = None
) -> str:
    options = Options(backend=choices["backend"], dynamic=choices["dynamic"], **choices["options"])
    told = f"{failure.kind}: {failure.message}".strip(": ")
    return repro.text(told, None, options, candidate.module, candidate.inputs, kept)
