"""`make bench`: every program and every measurement, as tables and as JSON.

python -m benchmarks [--peer] [--json FILE] [--only NAME ...] [--parts cold steady memory overhead] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from .collect import Result, run_case
from .contenders import CONTENDERS, DOVETAIL, PEER
from .overhead import MODULES, call_overhead, guard_cost
from .registry import CASES
from .session import describe
from .tables import details_table, main_table, summary

PARTS = ("cold", "steady", "memory", "overhead")


def main() -> int:
    """Exit status 0 if every program was compiled and ran."""
    options = _arguments()
    contenders = options.contenders or [DOVETAIL.name] + ([PEER.name] if options.peer else [])
    console, notes, results = Console(width=150), Console(stderr=True), []
    with notes.status("starting") as status:
        for name in options.only or _chosen(options.training):
            results.append(run_case(name, contenders, options.parts, options.repeats, status.update))
            _write(options.json, results, {}, {})
    overhead = call_overhead(contenders) if "overhead" in options.parts else {}
    guards = {n: guard_cost(n) for n in MODULES} if "overhead" in options.parts else {}
    _write(options.json, results, overhead, guards)
    console.print(main_table(results, contenders))
    console.print(details_table(results, contenders))
    for name, figures in overhead.items():
        console.print(f"x + 1 on 4x8: {CONTENDERS[name].title} {figures['us']:.2f} us, {figures['ratio']:.2f}x eager")
    for modules, figures in guards.items():
        console.print(f"guards of {modules} modules: {figures['us']:.1f} us for {figures['guards']} guards")
    for line in [*summary(results, contenders), describe()]:
        console.print(line, highlight=False, markup=False)
    return 1 if any(result.failures for result in results) else 0


def _chosen(training: bool) -> list[str]:
    return [name for name, case in CASES.items() if case.training == training and name != "add-one"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="measure torch.compile as well")
    parser.add_argument("--contenders", nargs="*", choices=list(CONTENDERS)[1:], help="exactly these, beside eager")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="these programs")
    parser.add_argument("--training", action="store_true", help="the training steps instead of inference")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="these measurements")
    parser.add_argument("--repeats", type=int, default=1, help="cold starts of each; the median counts")
    return parser.parse_args()


def _write(
    path: Path | None, results: list[Result], overhead: dict[str, dict[str, float]], guards: dict[int, dict[str, float]]
) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {"session": describe(), "results": [asdict(r) for r in results], "overhead": overhead, "guards": guards}
    path.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
