"""`make bench-compile`: where the time of a cold start goes, by stage.

python -m benchmarks.phases [NAME ...]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from .collect import worker
from .registry import CASES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}")
    names = parser.parse_args().names or [name for name, case in CASES.items() if case.demo]
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bench") as caches:
            figures = worker("phases", name, [], Path(caches))
        print(f"{CASES[name].title}: import {figures['import']:.2f} s, first call {figures['first call']:.2f} s")
        print(figures["stages"], end="\n\n")


if __name__ == "__main__":
    main()
