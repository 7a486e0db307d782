"""Convolutions of images with the channels last, against the same in NCHW: values, and writes behind memory.

    python -m tests.layouts.convolutions [--count 500] [--first 0] [--sound]

Random shapes, each in a process of its own, under a malloc that puts a page behind all memory which nobody may touch
(`guard.c`). A shape that the compiler would give the channels last, and that is wrong, is a failure; the others that
are wrong say where `channels_last.sound_gradients` draws the line. ONEDNN_MAX_CPU_ISA=AVX2 tries another machine's
kernels. `--sound`: only shapes that the compiler would take.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from dovetail.normalize.passes.channels_last import sound_gradients

aten = torch.ops.aten
CHANNELS = (2, 3, 4, 5, 6, 8, 12, 15, 16, 17, 20, 24, 32, 33, 40, 48, 64)
FEATURES = (1, 2, 3, 8, 12, 16, 17, 32, 64)
LENGTHS = (1, 7, 8, 14, 28, 56, 128)

COMMAND = ("-m", "tests.layouts.convolutions", "--guarded")


@dataclass(frozen=True)
class Shape:
    image: tuple[int, ...]
    weight: tuple[int, ...]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    @property
    def fits(self) -> bool:
        reach = [d * (k - 1) + 1 for k, d in zip(self.weight[2:], self.dilation, strict=True)]
        return all(n + 2 * p >= r for n, p, r in zip(self.image[2:], self.padding, reach, strict=True))

    @property
    def sound(self) -> bool:
        return sound_gradients(self.weight, self.stride)


def shape(seed: int, sound: bool = False) -> Shape:
    chosen = random.Random(seed)
    while not (made := _drawn(chosen)).fits or sound and not made.sound:
        pass
    return made


def _drawn(chosen: random.Random) -> Shape:
    kernel, stride = chosen.choice([1, 1, 1, 2, 3, 3, 5, 7]), chosen.choice([1, 1, 2, 2, 3])
    channels = chosen.choice(CHANNELS)
    groups = chosen.choice([g for g in (1, 1, 1, 2, channels) if channels % g == 0])
    features = chosen.choice(FEATURES) if groups == 1 else groups * chosen.choice([1, 2])
    return Shape(
        (chosen.choice([1, 2]), channels, chosen.choice(LENGTHS), chosen.choice(LENGTHS)),
        (features, channels // groups, kernel, chosen.choice([1, kernel, kernel])),
        [stride, chosen.choice([stride, stride, 1])], [chosen.choice([0, kernel // 2])] * 2,
        [chosen.choice([1, 1, 1, 2])] * 2, groups,
    )  # fmt: skip


def wrong(given: Shape) -> str:
    """What a convolution or its gradients are wrong in, in a forked process; empty if in nothing."""
    mine, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(theirs, _differing(given).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(mine) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else text.removesuffix("done")


def _differing(given: Shape) -> str:
    torch.manual_seed(0)
    x, w = torch.randn(given.image), torch.randn(given.weight)
    where = (given.stride, given.padding, given.dilation, False, [0, 0], given.groups)
    y = aten.convolution(x, w, None, *where)
    gradient = torch.randn_like(y)
    last = [t.contiguous(memory_format=torch.channels_last) for t in (gradient, x)]
    want = [y, *aten.convolution_backward(gradient, x, w, None, *where, [True, True, False])[:2]]
    got = [aten.convolution(last[1], w, None, *where),
           *aten.convolution_backward(*last, w, None, *where, [True, True, False])[:2]]
    names = ("result", "gradient of the image", "gradient of the weight")
    bad = [name for name, a, b in zip(names, got, want, strict=True)
           if not torch.allclose(a, b, rtol=0, atol=1e-3 * b.abs().max().item())]
    return ", ".join(bad) + "done"


def guarded(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Python run with these arguments under the guarding malloc."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "guard.so")
        source = Path(__file__).with_name("guard.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        surroundings = {**os.environ, "LD_PRELOAD": str(library)}
        return subprocess.run([sys.executable, *arguments], env=surroundings, text=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sound", action="store_true")
    parser.add_argument("--guarded", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not chosen.guarded:
        made = guarded([*COMMAND, *sys.argv[1:]])
        print(made.stdout, made.stderr)
        sys.exit(made.returncode)
    torch.set_num_threads(1)  # a process that has begun others' threads cannot fork
    failed = left = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        given = shape(seed, chosen.sound)
        fault = wrong(given)
        failed += bool(fault and given.sound)
        left += bool(fault and not given.sound)
        if fault:
            print(f"{seed}, {'taken' if given.sound else 'left alone'}: {given}: {fault}", flush=True)
    print(f"{failed} of {chosen.count} shapes are wrong and taken, {left} wrong and left alone")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
