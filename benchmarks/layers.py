"""`make bench-layers`: what a model of many equal layers costs to compile and to run, by the number of its layers.

python -m benchmarks.layers [--training] [--peer] [--layers N ...] [--device cuda] [--json FILE]

A Llama-like decoder is compiled whole, as one graph, and layer by layer, where equal layers share what was compiled of
the first one. Each figure comes from a fresh process with empty caches: of the first call, with the compiler's import,
seconds on the clock, then processor seconds and how many times those of the first row; milliseconds of a later call.
The processor seconds of the peer's helper processes do not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from . import measure
from .collect import WorkerFailed
from .collect import worker as run_worker
from .contenders import CONTENDERS, DOVETAIL, EAGER, PEER, Contender
from .session import describe
from .worker import processor_seconds

MODULE = "benchmarks.layers"
WHOLE, EACH = "whole", "each layer"
WIDTH, HEADS, WORDS = 128, 4, 500
ROUNDS = 9


class Layer(nn.Module):
    """Attention and a gated feed-forward half, each behind its norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.given, self.joined = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.given(self.before(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts.unbind(), is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """`forward(words)` gives logits."""

    def __init__(self, layers: int, width: int = WIDTH) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([Layer(width, HEADS) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def compiled(contender: Contender, model: Decoder, way: str) -> nn.Module:
    """The model, or the same one with each of its layers compiled."""
    if way == WHOLE:
        return contender.compile(model)  # type: ignore[return-value]
    model.layers = nn.ModuleList([contender.compile(layer) for layer in model.layers])  # type: ignore[misc]
    return model


def timed(layers: int, name: str, way: str, training: bool, device: str) -> dict[str, float]:
    """Seconds of the first call, processor seconds of it, and seconds of a later call, the quickest round of some."""
    torch.manual_seed(0)
    model, words = Decoder(layers).to(device), torch.randint(0, WORDS, (2, 64), device=device)

    def call() -> None:
        with torch.set_grad_enabled(training):
            result = program(words)
        if training:
            result.sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()

    program: Any = model
    call()  # PyTorch's own first call is not the compiler's
    start, before = time.perf_counter(), processor_seconds()
    program = compiled(CONTENDERS[name], model, way)
    call()
    first, busy = time.perf_counter() - start, processor_seconds() - before
    return {"first": first, "busy": busy, "steady": min(measure.interleaved([call], ROUNDS)[0])}


def measured(layers: int, name: str, way: str, training: bool, device: str) -> dict[str, Any]:
    """The same in a process of its own; or {"failed": why}."""
    with tempfile.TemporaryDirectory(prefix="bench") as caches:
        try:
            return run_worker("timed", str(layers), [name, way, str(int(training)), device], Path(caches), MODULE)
        except WorkerFailed as error:
            return {"failed": str(error)}


def table(rows: dict[int, dict[str, dict[str, Any]]], training: bool) -> Table:
    """`rows`: by the number of layers, and by contender and way."""
    made = Table("layers", title="training: forward and backward" if training else "inference")
    least = rows[min(rows)]
    for column in least:
        made.add_column(column, justify="right")
    for layers, row in rows.items():
        made.add_row(str(layers), *(_cell(found, least[column]) for column, found in row.items()))
    return made


def _cell(found: dict[str, Any], least: dict[str, Any]) -> str:
    if "failed" in found:
        return "–"
    times = f" ({found['busy'] / least['busy']:.1f})" if "busy" in least else ""
    return f"{found['first']:.2f} s, {found['busy']:.2f} s{times}, {found['steady'] * 1e3:.1f} ms"


def main() -> int:
    options = _arguments()
    ways = [(EAGER.name, WHOLE), (DOVETAIL.name, WHOLE), (DOVETAIL.name, EACH)]
    ways += [(PEER.name, WHOLE), (PEER.name, EACH)] if options.peer else []
    rows: dict[int, dict[str, dict[str, Any]]] = {}
    with Console(stderr=True).status("starting") as status:
        for layers in sorted(options.layers):
            rows[layers] = {}
            for name, way in ways:
                title = f"{CONTENDERS[name].title}, {way}" if name != EAGER.name else EAGER.title
                status.update(f"{layers} layers: {title}")
                rows[layers][title] = measured(layers, name, way, options.training, options.device)
    console = Console(width=150)
    console.print(table(rows, options.training))
    failed = [f"{what}: {found['failed']}" for row in rows.values() for what, found in row.items() if "failed" in found]
    for line in [*failed, describe()]:
        console.print(line, highlight=False, markup=False)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"session": describe(), "figures": rows}, indent=2) + "\n")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--training", action="store_true", help="forward and backward, in place of inference")
    parser.add_argument("--peer", action="store_true", help="measure torch.compile as well (takes minutes)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the model is")
    parser.add_argument("--layers", type=int, nargs="+", default=[6, 12, 24, 48], metavar="N")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def child() -> None:
    """`python -m benchmarks.layers timed LAYERS CONTENDER WAY TRAINING DEVICE` prints one line of JSON."""
    _, _, layers, name, way, training, device = sys.argv
    print(json.dumps(timed(int(layers), name, way, training == "1", device)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["timed"]:
        child()
    else:
        raise SystemExit(main())
