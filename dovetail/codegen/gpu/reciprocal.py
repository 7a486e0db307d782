"""Divisions by sizes as products: a size is an argument of its kernel, so no compiler could do that.

    n // d  =  (n * m) >> (31 + k)      for 0 <= n < 2**31, where 2**(k - 1) < d <= 2**k and m = ceil(2**(31 + k) / d)

m is below 2**32, and too large by less than one part in 2**(31 + k) of n. Granlund and Montgomery, "Division by
invariant integers using multiplication" (1994). The device's own division takes four times as long.
"""

from __future__ import annotations

from dovetail.codegen.common.signature import KernelSignature
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Factor:
    """m, as the 32 bits of a signed number."""

    divisor: int

    @property
    def value(self) -> int:
        return -(-(1 << 31 + _digits(self.divisor)) // self.divisor) - (1 << 32)


@dataclass(frozen=True)
class Shift:
    """k - 1: half of the product's bits are not computed."""

    divisor: int

    @property
    def value(self) -> int:
        return _digits(self.divisor) - 1


#: What a kernel is given in place of a divisor.
Part = Factor | Shift


def quotient(signature: KernelSignature, number: str, divisor: int) -> str:
    """The text of `number // divisor`, for divisors of two or more."""
    factor, shift = (signature.number(part).lstrip("%") for part in (Factor(divisor), Shift(divisor)))
    high = f"tl.umulhi({number}.to(tl.uint32), {factor}.to(tl.uint32, bitcast=True))"
    return f"({high}.to(tl.int32) >> {shift})"  # the last operator is what hints are put on


def _digits(divisor: int) -> int:
    return (divisor - 1).bit_length()
