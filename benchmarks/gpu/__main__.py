"""`make bench-gpu`: `python -m benchmarks.gpu [--bandwidth] [--peer] [--only REGEX] [--json FILE]`, on a CUDA device.

Whole models against eager; with `--bandwidth` instead programs that only move memory against a copy.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..collect import as_installed
from ..session import describe
from . import bandwidth, models, programs

WIDTH = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bandwidth", action="store_true", help="programs that only move memory")
    parser.add_argument("--peer", action="store_true", help="torch.compile too")
    parser.add_argument("--without", choices=[*models.CONTENDERS], help="of whole models, leave this contender out")
    parser.add_argument("--only", default="", help="a regular expression for programs' names")
    parser.add_argument("--together", type=int, default=1, help="so many models compile at a time")
    parser.add_argument("--parts", type=int, default=1, help="measure one of so many parts of the models")
    parser.add_argument("--part", type=int, default=1, help="this one")
    parser.add_argument("--kernels", type=Path, default=None, help="write each model's kernels into this folder")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    with multiprocessing.get_context("fork").Pool(1) as pool:  # models are measured in forks, which this must allow
        if not pool.apply(torch.cuda.is_available):
            parser.error("this PyTorch sees no CUDA device")
    (_bandwidth if options.bandwidth else _models)(options)


def _models(options: argparse.Namespace) -> None:
    names = [n for n in (models.CONTENDERS if options.peer else ["eager", "Dovetail"]) if n != options.without]
    results: dict[str, Any] = {}
    as_installed()
    cases = [case for case in models.CASES if re.search(options.only, case)][options.part - 1 :: options.parts]
    for case, row in models.measure(cases, names, options.together, options.kernels):
        results[case] = row
        print(case, "; ".join(f"{n} {models.cell(r)}" for n, r in row.items()), flush=True)
        _write(options.json, results)
    Console(width=WIDTH).print(models.table(results, names))


def _bandwidth(options: argparse.Namespace) -> None:
    names = list(bandwidth.COMPILERS) if options.peer else ["Dovetail"]
    results: dict[str, Any] = {}
    for name in programs.PROGRAMS:
        for kind, dtype in bandwidth.DTYPES.items() if re.search(options.only, name) else ():
            results.setdefault(name, {})[kind] = _figures(name, dtype, names)
            gc.collect()  # recordings are parts of cycles
            torch.cuda.empty_cache()
            _write(options.json, results)
    console = Console(width=WIDTH)
    console.print(f"{torch.cuda.get_device_name()}, {describe()}")
    console.print(bandwidth.table(results, names))
    for name in names:
        console.print(bandwidth.summary(results, name))


def _figures(name: str, dtype: torch.dtype, compilers: list[str]) -> dict[str, bandwidth.Figures]:
    """Nothing of a program that fails: the others are worth measuring."""
    try:
        return bandwidth.measure(name, dtype, compilers)
    except Exception as error:
        print(f"{name}, {dtype}: {type(error).__name__}: {error}", flush=True)
        return {}


def _write(path: Path | None, results: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
