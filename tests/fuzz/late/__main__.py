"""`python -m tests.fuzz.late --count 2000 --seed 0 [--jobs 2] [--backend eager] [--reduce] [--one SEED]`"""

from __future__ import annotations

from tests.fuzz.command import Command
from tests.fuzz.late.steps import LATE, ROUTED
from tests.fuzz.shapes.check import check
from tests.fuzz.shapes.generate import generate

#: Mostly with kernels; one program in four operator by operator, which says whether a graph or its code is wrong.
BACKENDS = ("dovetail", "dovetail", "eager", "dovetail")


def chosen(seed: int) -> str:
    return BACKENDS[seed % len(BACKENDS)]


def program(seed: int) -> str:
    return generate(seed, ROUTED if seed % 5 == 4 else LATE)


COMMAND = Command("tests.fuzz.late", program, check, chosen, "\nSIZES")

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())
