"""What commands have in common whose random programs are checked one after the other, in this process."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def sweep(name: str, check: Callable[[int], str | None], count: int, text: Callable[[int], str] | None = None) -> int:
    """The command `python -m {name}`: prints what `check(seed)` says of each program; 1 if that is anything.

    `count` is how many programs there are if nothing else is asked for, `text(seed)` what `--one` shows of one.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--one", type=int, metavar="SEED", help="show one program and what differs")
    options = parser.parse_args()
    first, count = (options.first, options.count) if options.one is None else (options.one, 1)
    if options.one is not None and text is not None:
        print(text(first))
    failed = 0
    for seed in range(first, first + count):
        words = check(seed)
        if words:
            failed += 1
            print(words, flush=True)
    print(f"{failed} of {count} differ")
    return int(failed > 0)
