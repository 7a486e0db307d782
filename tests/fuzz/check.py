"""Run one random program compiled and in eager, and compare everything that a caller can see."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

import dovetail
from dovetail.errors import Unsupported
from tests.fuzz.generate import Program, generate
from tests.opdb.compare import Mismatch, _memories

#: Difference allowed, relative to a result's largest number, by the narrowest type that occurs.
SLACK = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


#: What may be refused loudly: writes to a view that no strides of its own describe, or to overlapping memory.
REFUSED = frozenset({"write-through-view", "metadata-mutation", "overlapping-inputs"})


def check(program: Program, compiler: Callable[..., Any] = dovetail.compile) -> None:
    """Raises Mismatch with the program's text."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        eager_inputs, inputs = program.make_inputs(), program.make_inputs()
        want = program.function()(*eager_inputs)
        try:
            try:
                got = compiler(program.function(), fullgraph=True)(*inputs)
            except Unsupported as error:
                if error.code in REFUSED:
                    return
                raise
            compare(program, got, want, (inputs, eager_inputs))
        except Exception as error:
            raise Mismatch(f"{type(error).__name__}: {error}\nseed {program.seed}\n{program.source}") from error


def compare(program: Program, got: Any, want: Any, inputs: tuple[list[Any], list[Any]]) -> None:
    slack = max(SLACK[d] for d in {torch.float32, *program.dtypes} if d in SLACK)
    own, eager = map(_memories, inputs)
    for k, (mine, theirs) in enumerate([*zip(got, want, strict=True), *zip(*inputs, strict=True)]):
        place = f"output {k}" if k < len(want) else f"input {k - len(want)} afterwards"
        for field in ("dtype", "shape"):
            if getattr(mine, field) != getattr(theirs, field):
                raise Mismatch(f"{place} has {field} {getattr(mine, field)}, eager's {getattr(theirs, field)}")
        moves = [(a, b) for n, a, b in zip(theirs.shape, mine.stride(), theirs.stride(), strict=True) if n > 1]
        if theirs.numel() and any(a != b for a, b in moves):
            raise Mismatch(f"{place} has strides {mine.stride()}, eager's {theirs.stride()}")
        scale = float(theirs.double().abs().max()) if theirs.numel() else 0.0
        exact = not theirs.is_floating_point()
        bound = 0.0 if exact else slack * max(scale, 1.0)
        if not torch.allclose(mine.double(), theirs.double(), rtol=0, atol=bound, equal_nan=True):
            worst = float((mine.double() - theirs.double()).abs().max())
            raise Mismatch(f"{place} differs by {worst}, {bound} allowed")
        if k < len(want) and theirs.numel():
            a, b = own.get(mine.untyped_storage().data_ptr()), eager.get(theirs.untyped_storage().data_ptr())
            if a != b:
                raise Mismatch(f"{place} shares memory with input {a}, eager's with {b}")


def main(first: int, last: int) -> int:
    """`python -m tests.fuzz.check FIRST LAST`: every seed in turn, failures printed; 1 if there are any."""
    failed = 0
    for seed in range(first, last):
        program = generate(seed, 4 + seed % 20, (0.0, 0.15, 0.35)[seed % 3], seed % 7 == 6)
        try:
            check(program)
        except Mismatch as error:
            failed += 1
            print(error, flush=True)
        if seed % 50 == 49:
            dovetail.reset()
    print(f"{failed} of {last - first} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:3])))
