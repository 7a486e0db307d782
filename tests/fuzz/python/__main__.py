"""`python -m tests.fuzz.python --count 20000 --seed 0 [--jobs 2] [--backend eager] [--reduce] [--one SEED]`"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import sys
import time
import warnings
from collections import Counter
from typing import Any

from tests.fuzz.python.check import Outcome, TimedOut, check
from tests.fuzz.python.generate import generate
from tests.fuzz.python.reduce import reduced

MEMORY = 6 << 30  # a program that grows without end must not take the machine along
FULL = 50  # every so many programs, one goes through the default backend too


def chosen(seed: int, backend: str) -> str:
    return backend or ("dovetail" if seed % FULL == FULL - 1 else "eager")


def run(seed: int, backend: str = "") -> Outcome:
    """The outcome of one program; a crash of the checker or a timeout counts as a difference."""
    source = generate(seed)
    try:
        return check(source, chosen(seed, backend))
    except TimedOut:
        return Outcome("it took too long", "timeout")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.python")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first program")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--backend", default="", help="every program with this backend")
    parser.add_argument("--reduce", action="store_true", help="make each failing program small")
    parser.add_argument("--one", type=int, help="show one program and its outcome")
    parser.add_argument("--stop", type=int, default=0, help="stop after so many differences")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)  # the programs' own: `1 is None`
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    if options.one is not None:
        return one(options.one, options)
    return sweep(options)


def one(seed: int, options: Any) -> int:
    outcome = run(seed, options.backend)
    text = generate(seed)
    if outcome.difference and options.reduce:
        text = small(seed, outcome, options.backend)
        print(text)
        outcome = check(text, chosen(seed, options.backend))
    else:
        print(text[text.index("\nG_NODE = ") :])
    print(outcome.difference or "no difference", dict(outcome.codes), f"frames {outcome.frames}")
    return bool(outcome.difference)


def small(seed: int, outcome: Outcome, backend: str) -> str:
    def fails(text: str) -> bool:
        try:
            return check(text, chosen(seed, backend)).kind == outcome.kind
        except TimedOut:
            return outcome.kind == "timeout"
        except Exception:  # the reduction has taken something away that the checker needs
            return False

    return reduced(generate(seed), fails)


def sweep(options: Any) -> int:
    seeds = range(options.seed, options.seed + options.count)
    start, failed, codes, whole, raised, frames = time.time(), [], Counter(), 0, 0, 0
    jobs = [(seed, options.backend) for seed in seeds]
    gc.disable()  # a generator left in a `with torch.no_grad()` would restore its mode in the middle of another program
    pool = multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=2000) if options.jobs > 1 else None
    results = pool.imap(_numbered, jobs, chunksize=20) if pool else map(_numbered, jobs)
    for done, (seed, outcome) in enumerate(results, 1):
        codes.update(outcome.codes)
        whole, raised, frames = whole + outcome.whole, raised + bool(outcome.raised), frames + outcome.frames
        if outcome.difference:
            failed.append((seed, outcome.kind))
            print(f"seed {seed}: {outcome.kind}: {outcome.difference[:300]}", flush=True)
            if options.reduce:
                print(small(seed, outcome, options.backend), flush=True)
            if options.stop and len(failed) >= options.stop:
                break
        if done % 500 == 0:
            print(f"{done} programs, {len(failed)} differences, {done / (time.time() - start):.1f}/s", file=sys.stderr)
    if pool:
        pool.terminate()
    seconds = time.time() - start
    print(f"\n{done} programs in {seconds:.0f} s ({done / seconds:.1f}/s): {len(failed)} differences")
    print(f"{whole} whole graphs, {raised} programs that raise, {frames} frames compiled")
    for code, count in codes.most_common():
        print(f"{count:8d}  {code}")
    for kind, count in Counter(kind for _, kind in failed).most_common():
        print(f"{count:8d}  difference: {kind}")
    return bool(failed)


def _numbered(job: tuple[int, str]) -> tuple[int, Outcome]:
    outcome = run(*job)
    if job[0] % 16 == 0:
        gc.collect()
    return job[0], outcome


if __name__ == "__main__":
    raise SystemExit(main())
