"""Steps of more processes than there are devices, by a model: from what one process and two take.

python -m benchmarks.distributed.simulate PIECES [--ranks 2 8 64 1024] [--node 8] [--network 50] [--measured FILE ...]

PIECES is what `pieces` writes. A collective of n processes moves what a ring moves, at the bandwidth that was measured
between two on one node and at most at the network's where it leaves a node, and begins as late as a tree of messages
takes. One at a time runs, beside the kernels, which it does not slow down; what Python does is not modelled: what
`bench-distributed` measured (`--measured`) stands beside the prediction for as many processes.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dovetail.interop.data_parallel import FIRST, OTHERS

from . import SHAKEN

#: What part of the bytes of the whole a process sends in a ring of n, by collective: all but an n-th of them, or twice.
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
SMALL = 1 << 20  # bytes of a collective that takes as long as an empty one


@dataclass(frozen=True)
class Network:
    """`measured`: milliseconds of collectives by the bytes of the whole, of `ranks` processes on one node, which has
    `node` devices; `network`: bytes that each of them sends over the network in a millisecond."""

    measured: Mapping[str, Mapping[int, float]]
    ranks: int
    node: int
    network: float

    def milliseconds(self, name: str, size: int, ranks: int) -> float:
        """Of a collective of `size` bytes."""
        if ranks == 1:
            return 0.0
        speed = self._speed(name)
        if ranks > self.node:
            speed = min(speed, self.network)
        hops = math.log2(ranks) / math.log2(self.ranks)
        return hops * self._latency(name) + size * _sent(name, ranks) / speed

    def _latency(self, name: str) -> float:
        return min(ms for size, ms in self.measured[name].items() if size <= SMALL)

    def _speed(self, name: str) -> float:
        """Bytes sent in a millisecond, of the largest collective."""
        size, ms = max(self.measured[name].items())
        return size * _sent(name, self.ranks) / (ms - self._latency(name))


def _sent(name: str, ranks: int) -> float:
    return _PASSES[name] * (ranks - 1) / ranks


@dataclass(frozen=True)
class Step:
    """Milliseconds of one process by itself. `gradients`: when each is accumulated, since the backward pass began, its
    bytes, and its layer, -1 of what belongs to none."""

    forward: float
    backward: float
    optimizer: float
    gradients: Sequence[tuple[float, int, int]]


def replicated(step: Step, network: Network, ranks: int) -> float:
    """With DistributedDataParallel: gradients are averaged in buckets."""
    free = 0.0
    for ready, size in _buckets(step.gradients):
        free = max(free, ready) + network.milliseconds("all_reduce", size, ranks)
    return step.forward + max(step.backward, free) + step.optimizer


def _buckets(gradients: Iterable[tuple[float, int, int]]) -> Iterable[tuple[float, int]]:
    """When each is full, and its bytes."""
    size, ready, most = 0, 0.0, FIRST
    for at, nbytes, _ in gradients:
        size, ready = size + nbytes, at
        if size >= most:
            yield ready, size
            size, most = 0, OTHERS
    if size:
        yield ready, size


def sharded(step: Step, network: Network, ranks: int) -> float:
    """With `fully_shard` of each layer and of the rest: a layer's parameters are gathered while the one before
    computes, in both passes, and its gradients are scattered while the next one does. The layers take alike."""
    sizes = _of_layers(step.gradients)
    gathers = [network.milliseconds("all_gather", size, ranks) for size in sizes]
    scatters = [network.milliseconds("reduce_scatter", size, ranks) for size in sizes]
    forward, _ = _pass([(gather, 0.0) for gather in gathers], step.forward)
    layers = [*zip(gathers, scatters, strict=True)]
    computed, sent = _pass(layers[::-1], step.backward)
    return forward + max(computed, sent) + step.optimizer / ranks


def _pass(layers: Sequence[tuple[float, float]], computing: float) -> tuple[float, float]:
    """When all layers are computed and when all is sent. `layers`: what gathering each takes, and scattering after it;
    the next one is gathered first."""
    sent = begun = computed = waiting = 0.0
    for gather, scatter in layers:
        sent = there = max(sent, begun) + gather
        if waiting:
            sent = max(sent, computed) + waiting
        begun = max(computed, there)
        computed, waiting = begun + computing / len(layers), scatter
    return computed, max(sent, computed) + waiting


def _of_layers(gradients: Iterable[tuple[float, int, int]]) -> list[int]:
    """Bytes of each layer, in order, with what belongs to none first."""
    found: dict[int, int] = {}
    for _, size, layer in gradients:
        found[layer] = found.get(layer, 0) + size
    return [found[layer] for layer in sorted(found)]


#: Milliseconds by the number of processes and the name that pieces have.
Measured = dict[tuple[int, str], float]
WAYS = {"ddp": replicated, "fsdp": sharded}


def table(pieces: Mapping[str, Any], ranks: Sequence[int], network: Network, measured: Measured) -> Table:
    """Milliseconds by step and number of processes, and what part of the work of one process each does then."""
    seen = sorted({n for n, _ in measured})
    made = Table("step", "alone", title=f"predicted milliseconds of a step, {network.node} devices a node")
    for n in ranks:
        made.add_column(f"{n} processes", justify="right")
    for n in seen:
        made.add_column(f"measured, {n} processes", justify="right")
    for name, found in pieces["steps"].items():
        step = Step(**{key: found[key] for key in ("forward", "backward", "optimizer", "gradients")})
        way, alone = WAYS[name.partition("/")[0]], step.forward + step.backward + step.optimizer
        times = [way(step, network, n) for n in ranks]
        cells = [f"{ms:.1f} ({alone / ms:.0%})" for ms in times]
        cells += [f"{measured[n, name]:.1f}" if (n, name) in measured else "–" for n in seen]
        made.add_row(name, f"{alone:.1f}", *cells)
    return made


def _measured(files: Iterable[Path]) -> Measured:
    """Of `bench-distributed`: the quickest way to compile."""
    found: Measured = {}
    for file in files:
        told = json.loads(file.read_text())
        for part, rows in told["figures"].items():
            for row, figures in rows.items():
                name = told["ranks"], f"{part}/{row.partition('/')[0]}"
                if "ms" in figures and SHAKEN not in row:
                    found[name] = min(figures["ms"], found.get(name, math.inf))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pieces", type=Path, help="what `pieces` has written")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 64, 1024], help="so many processes")
    parser.add_argument("--node", type=int, default=8, help="devices of a node")
    parser.add_argument("--network", type=float, default=50, help="GB/s that each device sends to other nodes")
    parser.add_argument("--measured", type=Path, nargs="*", default=[], help="what bench-distributed has written")
    options = parser.parse_args()
    pieces = json.loads(options.pieces.read_text())
    sizes = {name: {int(size): ms for size, ms in found.items()} for name, found in pieces["collectives"].items()}
    network = Network(sizes, pieces["ranks"], options.node, options.network * 1e6)
    console = Console(width=150)
    console.print(table(pieces, options.ranks, network, _measured(options.measured)))
    console.print(pieces["session"], highlight=False, markup=False)


if __name__ == "__main__":
    main()
