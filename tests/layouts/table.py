"""Derive `dovetail/ops/calls/layouts.txt`: which operators compute the same in any layout.

    python -m tests.layouts.table [--samples 3] [--networks 40] [--only REGEX] [--write]

Each call that the operator database and random convolutional networks make, forward and backward, is an experiment
(`experiment.py`) in a process of its own. An operator is listed for a device if there were experiments and none found a
fault; in sections of their own if only images with the channels last, all of them, were right, or nothing was. With
OPDB_DEVICE=cuda the part for GPUs is made. What the fakes say of results' layouts is compared with the real
ones along the way.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import torch

from dovetail.ops.calls import layouts
from tests.fuzz.workers import Spoilt, spread
from tests.layouts.calls import Call, of_entry, of_network
from tests.layouts.experiment import Verdict, isolated, misjudged, movable
from tests.opdb.entries import DEVICE, Entry, entries

#: Calls tried of an operator with tensors of one rank and type.
CALLS = 6


@dataclass
class Findings:
    """Of each operator how many layouts were tried, its faults, and where fakes were wrong about eager's layout."""

    tried: collections.Counter[str] = field(default_factory=collections.Counter)
    images: collections.Counter[str] = field(default_factory=collections.Counter)
    image_faults: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    faults: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    misjudged: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))

    def add(self, verdict: Verdict, surprise: str) -> None:
        self.tried[verdict.name] += verdict.tried
        self.images[verdict.name] += verdict.images
        if verdict.fault:
            self.faults[verdict.name].append(verdict.fault)
        if verdict.image_fault:
            self.image_faults[verdict.name].append(verdict.image_fault)
        if surprise:
            self.misjudged[verdict.name].append(surprise)

    def sections(self, device: str) -> dict[str, list[str]]:
        """Who takes any layout, of the others who takes images with the channels last if all are, and who neither."""
        free = sorted(name for name, count in self.tried.items() if count and name not in self.faults)
        others = {name for name, count in self.images.items() if count and name not in self.image_faults} - {*free}
        neither = sorted(self.faults.keys() - others)
        return {device: free, f"{device} images": sorted(others), f"{device} neither": neither}


def distinct(calls: Iterable[Call], counts: collections.Counter[object], seen: set[object]) -> Iterator[Call]:
    """Each call once, and of calls that differ in sizes only the first few."""
    for call in (c for given in calls for c in (given, given.as_images()) if c is not None):
        tensors = [t for t in call.tensors() if movable(t)]
        if not tensors or call.key() in seen:
            continue
        seen.add(call.key())
        alike = call.operator, max(t.dim() for t in tensors), tensors[0].dtype
        counts[alike] += 1
        if counts[alike] <= CALLS:
            yield call


Found = list[tuple[Verdict, str]]
_counts, _seen = collections.Counter[object](), set[object]()  # of this process


@cache
def rows() -> dict[str, Entry]:
    return {entry.name: entry for entry in entries()}


def found_of(source: str | int, samples: int = 3) -> Found:
    """What the calls of the entry with a name, or of the network with a seed, show."""
    torch.set_num_threads(1)  # a process that has begun others' threads cannot fork
    made = of_network(source) if isinstance(source, int) else of_entry(rows()[source], samples)
    calls = list(distinct(made, _counts, _seen))
    verdicts = isolated(calls) if calls else []
    if len(verdicts) < len(calls):  # the last one found has spoilt the GPU for what follows
        raise Spoilt([(verdict, "") for verdict in verdicts])
    return [(verdict, misjudged(call)) for call, verdict in zip(calls, verdicts, strict=True)]


def sweep(sources: Sequence[str | int], samples: int, jobs: int) -> Findings:
    findings, work = Findings(), partial(found_of, samples=samples)
    for k, pairs in enumerate(spread(work, sources, jobs, _crashed, block=20 if DEVICE == "cpu" else 200)):
        for verdict, surprise in pairs:
            findings.add(verdict, surprise)
        done = f"{k + 1} of {len(sources)}, {len(findings.tried)} operators, {len(findings.faults)} with faults"
        print(done, end="\r", file=sys.stderr, flush=True)
    return findings


def _crashed(source: str | int, how: str) -> Found:
    """As it is, even: the operator's own samples end the process."""
    print(f"{source}: {how}")
    return []


def text(names: dict[str, list[str]]) -> str:
    """The file: operators of each section, those of one name together."""
    lines = []
    for section, listed in sorted(names.items()):
        packets: dict[str, list[str]] = collections.defaultdict(list)
        for name in listed:
            packet, _, overload = name.partition(".")
            packets[packet].append(overload or "default")
        words = " ".join(f"{packet}:{','.join(sorted(overloads))}" for packet, overloads in sorted(packets.items()))
        lines += [f"[{section}]", *textwrap.wrap(words, 118, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--floats", action="store_true", help="float32 alone")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the file")
    chosen = parser.parse_args()
    names = [name for name in rows() if re.search(chosen.only, name)]
    names = [name for name in names if rows()[name].dtype is torch.float32 or not chosen.floats]
    findings = sweep([*names, *range(chosen.networks)], chosen.samples, chosen.jobs)
    kinds = {"another layout": findings.faults, "images": findings.image_faults, "as it is": findings.misjudged}
    for kind, found in kinds.items():
        for name, faults in sorted(found.items()):
            print(f"{kind}: {name}: {len(faults)} calls, as {faults[0]}")
    sections = findings.sections(DEVICE)
    print(f"{len(findings.tried)} operators; {', '.join(f'{name}: {len(found)}' for name, found in sections.items())}")
    if chosen.write:
        layouts.FILE.write_text(text({**{name: sorted(found) for name, found in layouts.LISTED.items()}, **sections}))


if __name__ == "__main__":
    main()
