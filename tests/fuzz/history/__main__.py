"""Compiled code must not depend on what ran before it.

    python -m tests.fuzz.history texts [--processes 4]            the text of every stage, in processes of their own
    python -m tests.fuzz.history steps [--steps 20000] [--jobs 2] random calls, each compared with eager
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import torch

from tests.fuzz.history.texts import Texts, differences
from tests.fuzz.workers import spread

LENGTH = 500  # steps of one history


def compiled(seeds: Iterable[int], pool: tuple[int, int, int, int]) -> Iterator[dict[str, Texts]]:
    """The texts of a fresh process for each seed, with its own hashes, order of programs and order of sets."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "texts.json")
        for seed in seeds:
            command = [sys.executable, "-m", "tests.fuzz.history.worker", str(out), *map(str, (seed, *pool))]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": str(seed)})
            yield json.loads(out.read_text(encoding="utf-8"))


def compare_texts(processes: int, first: int) -> int:
    wanted, *others = compiled(range(first, first + processes), (4, 24, 8, 1))
    found = [words for other in others for words in differences(wanted, other)]
    print("\n".join(found))
    print(f"{len(wanted)} compilations, each in {processes} processes: {len(found)} differ")
    return bool(found)


def _walked(length: int, seed: int) -> list[str]:
    from tests.fuzz.history.steps import walk

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return walk(seed, length)


def _crashed(seed: int, how: str) -> list[str]:
    return [f"history {seed}: the process ended: {how}"]


def compare_steps(steps: int, first: int, jobs: int) -> int:
    length = min(LENGTH, steps)
    seeds, found, start = range(first, first + -(-steps // length)), 0, time.time()
    for done, words in enumerate(spread(partial(_walked, length), seeds, jobs, _crashed), 1):
        found += len(words)
        print(*words, sep="\n", flush=True)
        print(f"{done * length} steps, {found} differences, {time.time() - start:.0f} s", file=sys.stderr)
    return bool(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("texts", "steps"))
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    chosen = parser.parse_args()
    if chosen.what == "texts":
        return compare_texts(chosen.processes, chosen.first)
    return compare_steps(chosen.steps, chosen.first, chosen.jobs)


if __name__ == "__main__":
    sys.exit(main())
