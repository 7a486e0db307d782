"""`python -m tests.fuzz.python --count 20000 --seed 0 [--jobs 2] [--backend eager] [--reduce] [--one SEED]`"""

from __future__ import annotations

from tests.fuzz.command import Command
from tests.fuzz.python.check import check
from tests.fuzz.python.generate import generate

FULL = 50  # every so many programs, one goes through the default backend too


def chosen(seed: int) -> str:
    return "dovetail" if seed % FULL == FULL - 1 else "eager"


COMMAND = Command("tests.fuzz.python", generate, check, chosen, "\nG_NODE = ")

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())
