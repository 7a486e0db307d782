"""`make demo`: compile whole models and the FAQ's functions, and show what it costs and what it brings.

python -m benchmarks.demo [--peer] [--svg FILE] [--readme FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from .collect import run_case
from .contenders import DOVETAIL, PEER
from .readme import markdown, update
from .registry import CASES
from .session import describe
from .tables import main_table, summary


def main() -> int:
    """Exit status 0 if every program was compiled and ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="measure torch.compile as well (takes minutes)")
    parser.add_argument("--svg", help="also write the table to this SVG file")
    parser.add_argument("--readme", type=Path, help="also put the table between the marks of this document")
    options = parser.parse_args()
    contenders = [DOVETAIL.name] + ([PEER.name] if options.peer else [])
    console = Console(record=True, width=None if sys.stdout.isatty() else 132)
    notes = Console(stderr=True)
    results = []
    with notes.status("starting") as status:
        for case in CASES.values():
            if case.demo:
                results.append(run_case(case.name, contenders, ("cold", "steady"), report=status.update))
    console.print(main_table(results, contenders))
    for line in [*summary(results, contenders), describe()]:
        console.print(line, highlight=False, markup=False, style="dim")
    if options.svg:
        console.save_svg(options.svg, title="make demo")
    if options.readme:
        update(options.readme, markdown(results, contenders))
    return 1 if any(DOVETAIL.name in result.failures for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
