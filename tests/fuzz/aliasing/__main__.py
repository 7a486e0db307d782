"""`python -m tests.fuzz.aliasing --count 20000 --seed 0 [--jobs 2] [--backend aot_eager] [--reduce] [--one SEED]`"""

from __future__ import annotations

from tests.fuzz.aliasing.check import check
from tests.fuzz.aliasing.generate import generate
from tests.fuzz.command import Command

#: One program in four each: what capture does alone, then gradients and memory twice, then kernels.
BACKENDS = ("dovetail", "aot_eager", "eager", "aot_eager")



def chosen(seed: int) -> str:
    return BACKENDS[seed % len(BACKENDS)]


COMMAND = Command("tests.fuzz.aliasing", generate, check, chosen, "\ndef make_inputs")

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())
