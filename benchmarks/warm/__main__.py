"""`make bench-warm`: the first call of a process, where none has compiled the program and where one has.

python -m benchmarks.warm [--peer] [--device cpu|cuda] [--only NAME ...] [--repeats N] [--json FILE]
python -m benchmarks.warm --profile [--functions] [--device cpu|cuda] [--only NAME ...]

Every measurement runs in a fresh process. The cold one finds an empty folder, the warm ones what it has left there.
Getting ready is what the first calls take beyond steady ones: of inference the first call, of training the first few,
since the optimizer's first step makes its state. Eager gets ready too: libraries start and choose algorithms.
`--profile` shows the stages of a warm start instead, and with `--functions` what cProfile says of the first call.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from ..collect import WorkerFailed
from ..collect import worker as run_worker
from ..contenders import CONTENDERS, DOVETAIL, EAGER, PEER
from ..session import describe
from .programs import CASES, title

MODULE = "benchmarks.warm.worker"
ABSENT = "–"


def main() -> int:
    options = _arguments()
    console, names = Console(width=150), options.only or CASES
    if options.profile:
        for name in names:
            _show_phases(console, name, options)
        return 0
    contenders = [EAGER.name, DOVETAIL.name] + ([PEER.name] if options.peer else [])
    figures: dict[str, dict[str, Any]] = {}
    with Console(stderr=True).status("starting") as status:
        for name in names:
            figures[name] = {}
            for contender in contenders:
                status.update(f"{title(name)}: {contender}")
                figures[name][contender] = measured(name, contender, options.device, options.repeats)
                _write(options.json, figures)
    console.print(table(figures, contenders))
    each = [(f"{name}, {who}", found) for name, row in figures.items() for who, found in row.items()]
    failed = [f"{what}: {found['failed']}" for what, found in each if "failed" in found]
    for line in [*failed, describe()]:
        console.print(line, highlight=False, markup=False)
    return 1 if failed else 0


def measured(name: str, contender: str, device: str, repeats: int) -> dict[str, Any]:
    """Of one contender: medians over warm processes, and the cold one; or {"failed": why}."""
    with tempfile.TemporaryDirectory(prefix="bench") as caches:
        try:
            runs = [
                run_worker("start", name, [contender, device], Path(caches), MODULE)
                for _ in range(repeats + (contender != EAGER.name))
            ]
        except WorkerFailed as error:
            return {"failed": str(error)}
    cold, *warm = runs if contender != EAGER.name else [runs[0], *runs]
    first = 1 if name.endswith("-inference") else None
    ready = [sum(call - run["steady"] for call in run["calls"][:first]) for run in (cold, *warm)]
    return {
        "import": median(run["import"] for run in warm), "cold": ready[0], "warm": median(ready[1:]),
        "call": median(run["calls"][0] for run in warm), "steady": median(run["steady"] for run in warm),
        "runs": runs,
    }  # fmt: skip


def table(figures: dict[str, dict[str, Any]], contenders: list[str]) -> Table:
    made = Table("program", title="Seconds until a process is ready, after an import and beyond steady calls")
    made.add_column("eager\nready", justify="right")
    for name in contenders[1:]:
        for head in (f"{CONTENDERS[name].title}\nimport", "\ncold", "\nwarm", "warm,\nfirst call", "steady\ncall"):
            made.add_column(head, justify="right")
    for name, row in figures.items():
        eager = row[EAGER.name]
        cells = [f"{eager['warm']:.2f}" if "warm" in eager else ABSENT]
        for contender in contenders[1:]:
            found = row[contender]
            cells += [f"{found[k]:.2f}" if k in found else ABSENT for k in ("import", "cold", "warm", "call", "steady")]
        made.add_row(title(name), *cells)
    return made


def _show_phases(console: Console, name: str, options: argparse.Namespace) -> None:
    """Of a warm start."""
    given = [DOVETAIL.name, options.device]
    with tempfile.TemporaryDirectory(prefix="bench") as caches:
        run_worker("start", name, given, Path(caches), MODULE)
        found = run_worker("phases", name, given, Path(caches), MODULE)
        text = run_worker("profile", name, given, Path(caches), MODULE)["text"] if options.functions else ""
    lines = [title(name), f"  import {found['import']:.3f} s"]
    for function, stages in found["compilations"]:
        lines += [f"  {function}", *(f"    {'  ' * depth}{stage} {s:.3f} s" for stage, depth, s in stages)]
    calls = ", ".join(f"{seconds:.3f}" for seconds in found["calls"])
    inside = sum(s for _, stages in found["compilations"] for _, depth, s in stages if depth == 0)
    lines += [
        f"  calls {calls}; then {found['steady']:.3f} s each",
        f"  of the first ones, {inside:.3f} s in the stages above, "
        f"{sum(c - found['steady'] for c in found['calls']) - inside:.3f} s in first launches and recordings",
    ]
    for line in [*lines, text, describe()]:
        console.print(line, highlight=False, markup=False)


def _write(path: Path | None, figures: dict[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"session": describe(), "figures": figures}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="measure torch.compile as well")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=CASES, help=f"of {', '.join(CASES)}")
    parser.add_argument("--repeats", type=int, default=3, help="warm processes of each; the medians count")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--profile", action="store_true", help="show the stages of a warm start")
    parser.add_argument("--functions", action="store_true", help="and the functions that take longest")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
