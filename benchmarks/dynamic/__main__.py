"""`make bench-dynamic`: sizes that change, as tables and as JSON.

python -m benchmarks.dynamic [--peer] [--json FILE] [--keep] [--only NAME ...]
                             [--parts sequence generate compile steady guards]

Every measurement runs in a fresh process with empty caches. Exit status 1 if something failed or was inaccurate.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from ..collect import WorkerFailed
from ..collect import worker as run_worker
from ..contenders import DOVETAIL, EAGER, PEER
from ..session import describe
from .programs import CASES, GENERATORS
from .tables import generation_table, price_table, sequence_table, wrong
from .worker import CONSTANT, FREE, PARTS

Figures = dict[str, dict[str, Any]]  # by part, then by program; then by contender where several are measured


def main() -> int:
    options = _arguments()
    contenders = [EAGER.name, DOVETAIL.name] + ([PEER.name] if options.peer else [])
    measure: dict[str, Callable[[str], Any]] = {
        "sequence": lambda name: {c: worker("sequence", name, c) for c in contenders},
        "generate": lambda name: {c: worker("generate", name, c) for c in contenders},
        "compile": lambda name: _compile_seconds(name, options.repeats),
        "steady": lambda name: worker("steady", name),
        "guards": lambda name: worker("guards", name),
    }
    figures = _known(options.json) if options.keep else {}
    figures |= {part: figures.get(part, {}) for part in options.parts}
    with Console(stderr=True).status("starting") as status:
        for part in options.parts:
            for name in _names(part, options.only):
                if name in figures[part]:
                    continue
                status.update(f"{part}: {name}")
                figures[part][name] = measure[part](name)
                _write(options.json, figures)
    return _show(figures, contenders)


def _names(part: str, only: list[str] | None) -> list[str]:
    return [name for name in (GENERATORS if part == "generate" else CASES) if not only or name in only]


def worker(part: str, *words: str) -> dict[str, Any]:
    """The figures, or {"failed": why}."""
    with tempfile.TemporaryDirectory(prefix="bench") as caches:
        try:
            return run_worker(part, words[0], list(words[1:]), Path(caches), "benchmarks.dynamic.worker")
        except WorkerFailed as error:
            return {"failed": str(error)}


def _compile_seconds(name: str, repeats: int) -> dict[str, Any]:
    """Medians over processes, in turns, so that what else the machine does falls on both."""
    runs = [(worker("compile", name, CONSTANT), worker("compile", name, FREE)) for _ in range(repeats)]
    failed = [figures for run in runs for figures in run if "failed" in figures]
    if failed:
        return failed[0]
    ratio = median(free["seconds"] / constant["seconds"] for constant, free in runs)
    constant, free = (median(run[k]["seconds"] for run in runs) for k in range(2))
    return {CONSTANT: constant, FREE: free, "ratio": ratio}


def _show(figures: Figures, contenders: list[str]) -> int:
    console = Console(width=150)
    if figures.get("sequence"):
        console.print(sequence_table(figures["sequence"], contenders))
    if figures.get("generate"):
        console.print(generation_table(figures["generate"], contenders))
    prices = {part: figures[part] for part in ("compile", "steady", "guards") if part in figures}
    if prices:
        console.print(price_table(prices))
    mistakes = wrong(figures)
    for line in [*mistakes, describe()]:
        console.print(line, highlight=False, markup=False)
    return 1 if mistakes else 0


def _known(path: Path | None) -> Figures:
    """What a run before has measured."""
    found = json.loads(path.read_text()) if path is not None and path.exists() else {}
    return {part: found[part] for part in PARTS if part in found}


def _write(path: Path | None, figures: Figures) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"session": describe(), **figures}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="measure torch.compile as well")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--keep", action="store_true", help="measure only what that file does not hold yet")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[*CASES, *GENERATORS], help="these programs")
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS), help="these measurements")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each time of compiling")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
