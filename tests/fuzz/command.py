"""What the commands `python -m tests.fuzz.python` and `python -m tests.fuzz.aliasing` have in common."""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.fuzz.python.check import Outcome, TimedOut
from tests.fuzz.python.reduce import reduced
from tests.fuzz.workers import spread

MEMORY = 6 << 30  # a program that grows without end must not take the machine along


@dataclass(frozen=True)
class Command:
    """`generate(seed)` is a program's text, `check(text, backend)` its outcome, `backend(seed)` what compiles it.

    `start` is where the interesting part of a program's text begins.
    """

    name: str
    generate: Callable[[int], str]
    check: Callable[[str, str], Outcome]
    backend: Callable[[int], str]
    start: str

    def text(self, seed: int) -> str:
        with warnings.catch_warnings():  # shapes are found by running the steps, and PyTorch has something to say
            warnings.simplefilter("ignore")
            return self.generate(seed)

    def run(self, seed: int, backend: str = "") -> Outcome:
        """The outcome of one program; a timeout counts as a difference."""
        source = self.text(seed)
        try:
            return self.check(source, backend or self.backend(seed))
        except TimedOut:
            return Outcome("it took too long", "timeout")
        except Exception as error:  # of the checker: one program, not the end of a sweep
            return Outcome(f"the checker failed: {type(error).__name__}: {error}", "checker")

    def small(self, seed: int, outcome: Outcome, backend: str) -> str:
        """A program that fails in the same way."""

        def fails(text: str) -> bool:
            try:
                return self.check(text, backend or self.backend(seed)).kind == outcome.kind
            except TimedOut:
                return outcome.kind == "timeout"
            except Exception:  # the reduction has taken something away that the checker needs
                return False

        return reduced(self.text(seed), fails)

    def _reduced(self, job: tuple[int, Outcome, str]) -> str:
        return self.small(*job)

    def main(self) -> int:
        parser = argparse.ArgumentParser(prog=f"python -m {self.name}")
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
            return self.one(options.one, options)
        return self.sweep(options)

    def one(self, seed: int, options: Any) -> int:
        outcome = self.run(seed, options.backend)
        text = self.text(seed)
        if outcome.difference and options.reduce:
            text = self.small(seed, outcome, options.backend)
            print(text)
            outcome = self.check(text, options.backend or self.backend(seed))
        else:
            print(text[text.index(self.start) :])
        print(outcome.difference or "no difference", dict(outcome.codes), f"frames {outcome.frames}")
        return bool(outcome.difference)

    def sweep(self, options: Any) -> int:
        seeds = range(options.seed, options.seed + options.count)
        start, failed, codes, whole, raised, frames = time.time(), [], Counter(), 0, 0, 0
        jobs = [(seed, options.backend) for seed in seeds]
        gc.disable()  # a generator left in a `with torch.no_grad()` would restore its mode in another program
        results = spread(partial(_numbered, self), jobs, options.jobs, _crashed)
        for done, (seed, outcome) in enumerate(results, 1):
            codes.update(outcome.codes)
            whole, raised, frames = whole + outcome.whole, raised + bool(outcome.raised), frames + outcome.frames
            if outcome.codes["break internal-error"]:
                print(f"seed {seed}: an internal error", flush=True)
            if outcome.difference:
                failed.append((seed, outcome.kind))
                print(f"seed {seed}: {outcome.kind}: {outcome.difference[:300]}", flush=True)
                if options.reduce:
                    print(*spread(self._reduced, [(seed, outcome, options.backend)], 1, _unreduced), flush=True)
                if options.stop and len(failed) >= options.stop:
                    break
            if done % 500 == 0:
                rate = done / (time.time() - start)
                print(f"{done} programs, {len(failed)} differences, {rate:.1f}/s", file=sys.stderr)
        seconds = time.time() - start
        print(f"\n{done} programs in {seconds:.0f} s ({done / seconds:.1f}/s): {len(failed)} differences")
        print(f"{whole} whole graphs, {raised} programs that raise, {frames} frames compiled")
        for code, count in codes.most_common():
            print(f"{count:8d}  {code}")
        for kind, count in Counter(kind for _, kind in failed).most_common():
            print(f"{count:8d}  difference: {kind}")
        return bool(failed)


def _numbered(command: Command, job: tuple[int, str]) -> tuple[int, Outcome]:
    outcome = command.run(*job)
    if job[0] % 16 == 0:
        gc.collect()
    return job[0], outcome


def _crashed(job: tuple[int, str], how: str) -> tuple[int, Outcome]:
    """Memory may have been spoilt by an earlier program of the same process."""
    return job[0], Outcome(f"the process ended: {how}", "crash")


def _unreduced(job: tuple[int, Outcome, str], how: str) -> str:
    return f"not made small: {how}"
