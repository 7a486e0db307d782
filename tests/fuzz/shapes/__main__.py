"""`python -m tests.fuzz.shapes --count 5000 --seed 0 [--jobs 2] [--backend aot_eager] [--reduce] [--one SEED]`"""

from __future__ import annotations

from tests.fuzz.command import Command
from tests.fuzz.shapes.check import check
from tests.fuzz.shapes.generate import generate

#: Mostly with kernels; one program in four operator by operator, which says whether a graph or its code is wrong.
BACKENDS = ("dovetail", "dovetail", "aot_eager", "dovetail")


def chosen(seed: int) -> str:
    return BACKENDS[seed % len(BACKENDS)]


COMMAND = Command("tests.fuzz.shapes", generate, check, chosen, "\nSIZES")

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())
