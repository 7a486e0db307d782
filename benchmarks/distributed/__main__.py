"""`make bench-distributed`: training steps of several processes, compiled and in eager mode.

python -m benchmarks.distributed [--parts ddp,fsdp,...] [--contenders eager,dovetail,peer] [--tiny] [--json FILE]

One process a CUDA device; with `--tiny` small models on the CPU, whose processes talk over gloo. Each contender is a
fresh set of processes with empty caches, the same weights and the same batches. See worker.py for what is measured.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from pathlib import Path

from rich.console import Console

from ..collect import as_installed
from . import processes, worker
from .cases import PARTS, Part
from .machine import machine
from .tables import Rows, combined, name_of, table


def main() -> None:
    options = _arguments()
    kind, ranks, session = machine(options.tiny, options.ranks)
    as_installed()
    results: dict[str, Rows] = {}
    console = Console(width=150)
    for name in options.parts:
        part, rows = PARTS[name].tiny if options.tiny else PARTS[name], results.setdefault(name, {})
        end = time.monotonic() + options.part_limit
        ways = [(c, way) for c in part.ways for way in part.ways[c] if {c, f"{c}/{way}"} & {*options.contenders}]
        for contender, way in ways:
            left = min(options.limit, end - time.monotonic())
            rows[name_of(contender, way)] = _row(part, contender, way, kind, ranks, left, options)
            _write(options.json, {"session": session, "ranks": ranks, "figures": results})
        console.print(table(part, ranks, rows))
        for what, found in rows.items():
            if "failed" in found:
                console.print(f"{what}: {found['failed']}", highlight=False, markup=False)
    console.print(session, highlight=False, markup=False)


def _row(
    part: Part, contender: str, way: str, kind: str, ranks: int, limit: float, options: argparse.Namespace
) -> dict[str, object]:
    """The figures, or {"failed": why}: the other contenders are worth measuring."""
    if limit <= 0:
        return {"failed": "the part's time was over"}
    given = {"part": part, "contender": contender, "way": way, "steps": options.steps, "timed": options.timed}
    work = functools.partial(_measure, **given)
    try:
        found = combined(processes.together(work, kind, ranks, limit))
    except processes.Failed as error:
        found = {"failed": str(error)}
    print(name_of(contender, way), {k: v for k, v in found.items() if k != "losses"}, flush=True)
    return found


def _measure(device, **given):
    return worker.measure(device=device, **given)


def _write(path: Path | None, found: dict[str, object]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = functools.partial(str.split, sep=",")
    parser.add_argument("--parts", type=names, default=list(PARTS), help=f"of {', '.join(PARTS)}")
    ways = "with all their ways, or with one: dovetail/whole; eager/ is what is not shaken"
    parser.add_argument("--contenders", type=names, default=["eager", "dovetail", "peer"], help=ways)
    parser.add_argument("--tiny", action="store_true", help="small models, on the CPU")
    parser.add_argument("--ranks", type=int, default=0, help="so many processes")
    parser.add_argument("--steps", type=int, default=50, help="whose losses are compared")
    parser.add_argument("--timed", type=int, default=20, help="so many later steps are timed")
    parser.add_argument("--limit", type=float, default=90, help="seconds for a contender's processes")
    parser.add_argument("--part-limit", type=float, default=240, help="seconds for a part")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
