"""Workers that survive a crash: a worker says what it is about to do, so that a signal has a name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

import dovetail
from tests.fuzz.workers import context
from tests.opdb import gradients, stages
from tests.opdb.entries import Case, Entry, entries, errors, samples
from tests.opdb.exceptions import excused

#: Entries after which a worker is replaced: compiled code and interned expressions pile up.
ENTRIES = 60


@dataclass
class Result:
    """One entry's outcomes. `breaks` are right but take more than one graph, for a listed reason."""

    entry: str
    cases: int = 0
    passed: int = 0
    breaks: list[dict[str, str]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)

    def add(self, outcome: stages.Outcome) -> None:
        if outcome.status == "skip":
            return
        self.cases += 1
        record = {"case": outcome.case, "stage": outcome.stage, "message": outcome.message}
        reason = excused(self.entry, outcome.case, outcome.code) if outcome.status == "break" else None
        if outcome.status == "pass":
            self.passed += 1
        elif reason is None:
            self.failures.append(record)
        else:
            self.breaks.append({**record, "reason": reason})


@dataclass(frozen=True)
class Direction:
    """What is compared of an entry: its cases, at most so many samples of them, and how one is run."""

    cases: Callable[[Entry, int | None], Iterator[Case]]
    run: Callable[[Case], stages.Outcome]


def _forward_cases(entry: Entry, most: int | None) -> Iterator[Case]:
    yield from samples(entry, most)
    yield from errors(entry)


FORWARD = Direction(_forward_cases, stages.run)
BACKWARD = Direction(gradients.samples, gradients.run)


def run_entry(
    entry: Entry, most: int | None, direction: Direction = FORWARD, before: Callable[[str], None] = lambda label: None
) -> Result:
    """All cases of one entry; `before` is told each case's label first."""
    result = Result(entry.name)
    try:
        for case in direction.cases(entry, most):
            before(case.label)
            result.add(direction.run(case))
    except (RuntimeError, NotImplementedError) as error:  # from making the samples: `run` itself reports failures
        result.add(stages.Outcome("samples", "fail", "samples", f"{type(error).__name__}: {error}"[:300]))
    dovetail.reset()
    return result


def _work(pipe: Connection, rows: Sequence[Entry] | None, most: int | None, direction: Direction) -> None:
    if rows is None:
        rows = entries() if direction == FORWARD else gradients.entries()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull, "w") as nowhere:  # operators warn on stderr, from C++
        os.dup2(nowhere.fileno(), 2)
    while True:
        k = pipe.recv()
        if k is None:
            return
        result = run_entry(rows[k], most, direction, lambda label: pipe.send(("case", label)))
        pipe.send(("done", result))


class _Worker:
    def __init__(self, rows: Sequence[Entry], most: int | None, direction: Direction) -> None:
        here = context()
        self.pipe, theirs = here.Pipe()
        given = rows if here.get_start_method() == "fork" else None  # a process of its own makes them anew
        self.process = here.Process(target=_work, args=(theirs, given, most, direction), daemon=True)
        self.process.start()
        theirs.close()
        self.done, self.current, self.case = 0, -1, ""

    def give(self, k: int) -> None:
        self.current, self.case = k, ""
        self.pipe.send(k)

    def stop(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def sweep(
    entries: Sequence[Entry], todo: Sequence[int], most: int | None, count: int, direction: Direction = FORWARD
) -> Iterator[Result]:
    """Results of `entries[k]` for k in todo, as they come."""
    queue = list(reversed(todo))
    workers = [_Worker(entries, most, direction) for _ in range(min(count, len(queue)))]
    for worker in workers:
        worker.give(queue.pop())
    while workers:
        for pipe in wait([w.pipe for w in workers]):
            worker = next(w for w in workers if w.pipe is pipe)
            result = _receive(worker, entries)
            if result is None:
                continue
            yield result
            worker.done += 1
            spoilt = any("CUDA error" in failure["message"] for failure in result.failures)  # for all that follows
            if worker.done >= ENTRIES or spoilt or not worker.process.is_alive():
                worker.stop()
                workers[workers.index(worker)] = worker = _Worker(entries, most, direction)
            if queue:
                worker.give(queue.pop())
            else:
                worker.stop()
                workers.remove(worker)


def _receive(worker: _Worker, entries: Sequence[Entry]) -> Result | None:
    """A finished entry; one that crashed the worker counts as failed at the case it had begun."""
    try:
        kind, value = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        code = worker.process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        result: Any = Result(entries[worker.current].name, 1)
        result.failures.append({"case": worker.case, "stage": "crash", "message": name})
        return result
    if kind == "case":
        worker.case = value
        return None
    return value
