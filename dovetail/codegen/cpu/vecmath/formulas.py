"""Building blocks of the elementary functions, for any lane count.

The "64" cores compute in double precision, where float32 arguments need no care about
cancellation, underflow or denormals; their results are then rounded once to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dovetail.codegen.cpu.builder import Builder, Val
from dovetail.codegen.cpu.lanes import Lanes
from dovetail.codegen.cpu.vecmath import coefficients as table

LN2_HIGH_32, LN2_LOW_32 = 0.693359375, -2.12194440e-4
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56")
HALF_PI_HIGH, HALF_PI_LOW = float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54")
#: pi/2 in three float32 parts
HALF_PI_32 = tuple(map(float.fromhex, ("0x1.921fb6p+0", "-0x1.777a5cp-25", "-0x1.ee59dap-50")))
MAGIC_32, MAGIC_64 = 12582912.0, 6755399441055744.0  # adding them rounds to an integer, kept in the low bits
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def _binary(name: str) -> Callable[[Any, Val | float, Val | float], Val]:
    return lambda self, a, b: self.w.binary(name, *self._pair(a, b))


class Formulas:
    """Arithmetic on values of one element type at a time; `scale` is native 2**n scaling."""

    def __init__(self, builder: Builder, native_scale: bool) -> None:
        self.w = Lanes(builder, "")
        self.native_scale = native_scale

    # ------------------------------------------------------------ arithmetic

    def num(self, value: float, like: Val) -> Val:
        return self.w.splat(self.w.number(value, like.element), like.lanes)

    def _pair(self, a: Val | float, b: Val | float) -> tuple[Val, Val]:
        if isinstance(a, Val):
            return a, b if isinstance(b, Val) else self.num(b, a)
        assert isinstance(b, Val)
        return self.num(a, b), b

    add, sub, mul, div = _binary("fadd"), _binary("fsub"), _binary("fmul"), _binary("fdiv")

    def fma(self, a: Val, b: Val | float, c: Val | float) -> Val:
        return self.w.intrinsic("fma", a, *(v if isinstance(v, Val) else self.num(v, a) for v in (b, c)))

    def test(self, predicate: str, a: Val, b: Val | float) -> Val:
        return self.w.compare(f"fcmp {predicate}", a, b if isinstance(b, Val) else self.num(b, a))

    def pick(self, condition: Val, a: Val | float, b: Val | float) -> Val:
        return self.w.select(condition, *self._pair(a, b))

    def abs(self, a: Val) -> Val:
        return self.w.intrinsic("fabs", a)

    def sqrt(self, a: Val) -> Val:
        return self.w.intrinsic("sqrt", a)

    def sign(self, magnitude: Val, of: Val) -> Val:
        return self.w.intrinsic("copysign", magnitude, of)

    def wide(self, a: Val) -> Val:
        return self.w.convert("fpext", a, "double")

    def round32(self, a: Val) -> Val:
        return self.w.convert("fptrunc", a, "float")

    def bits(self, a: Val) -> Val:
        return self.w.convert("bitcast", a, "i32" if a.element == "float" else "i64")

    def clamp(self, a: Val, low: float, high: float) -> Val:
        """NaN stays."""
        a = self.pick(self.test("olt", a, low), low, a)
        return self.pick(self.test("ogt", a, high), high, a)

    def poly(self, x: Val, coefficients: tuple[float, ...]) -> Val:
        total = self.num(coefficients[-1], x)
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    # ------------------------------------------------------------ float32 cores

    def scale32(self, a: Val, n: Val) -> Val:
        """a * 2**n, -252 <= n <= 254: in two steps, so that denormal results round once."""
        w = self.w
        if self.native_scale:
            suffix = ("", "") if a.lanes == 1 else (f"v{a.lanes}", f"v{a.lanes}")
            return w.b.call(f"llvm.ldexp.{suffix[0]}f32.{suffix[1]}i32", "float", [a, n], a.lanes)
        half = w.binary("ashr", n, w.const(1, "i32"))
        for part in (half, w.binary("sub", n, half)):
            power = w.binary("shl", w.binary("add", part, w.const(127, "i32")), w.const(23, "i32"))
            a = self.mul(a, w.convert("bitcast", power, "float"))
        return a

    def exp32(self, x: Val) -> Val:
        x = self.clamp(x, -104.0, 89.0)
        t = self.fma(x, math.log2(math.e), MAGIC_32)
        n = self.sub(t, MAGIC_32)
        high = self.fma(n, -LN2_HIGH_32, x)  # exact
        r = self.fma(n, -LN2_LOW_32, high)
        lost = self.fma(n, -LN2_LOW_32, self.sub(high, r))
        q = self.fma(self.mul(r, r), self.poly(r, table.EXP_32), lost)
        s = self.add(r, 1.0)
        p = self.add(s, self.add(q, self.add(self.sub(1.0, s), r)))  # 1 + r + q, 1 + r without error
        return self.scale32(p, self._integer32(t))

    def exp2_32(self, x: Val) -> Val:
        x = self.clamp(x, -151.0, 129.0)
        t = self.add(x, MAGIC_32)
        r = self.sub(x, self.sub(t, MAGIC_32))
        return self.scale32(self.fma(r, self.poly(r, table.EXP2_32), 1.0), self._integer32(t))

    def _integer32(self, t: Val) -> Val:
        return self.w.binary("sub", self.bits(t), self.w.const(0x4B400000, "i32"))

    # ------------------------------------------------------------ double cores

    def exp_parts64(self, x: Val) -> tuple[Val, Val]:
        """(p, s) with exp(x) = s*(1 + p), s a power of two; |x| < 700."""
        t = self.fma(x, math.log2(math.e), MAGIC_64)
        n = self.sub(t, MAGIC_64)
        r = self.fma(n, -LN2_LOW, self.fma(n, -LN2_HIGH, x))
        p = self.fma(self.mul(r, r), self.poly(r, table.EXP_64), r)
        w = self.w
        power = w.binary("shl", w.binary("add", self.bits(t), w.const(1023, "i64")), w.const(52, "i64"))
        return p, w.convert("bitcast", power, "double")

    def exp64(self, x: Val) -> Val:
        p, s = self.exp_parts64(x)
        return self.fma(p, s, s)

    def expm1_64(self, x: Val) -> Val:
        p, s = self.exp_parts64(x)
        return self.fma(p, s, self.sub(s, 1.0))

    def log_parts64(self, u: Val, near: Val | None = None) -> tuple[Val, Val]:
        """(k, l) with log(u) = k*log(2) + l for positive finite u; `near` is u - 1, exact where k is 0."""
        w = self.w
        bits = self.bits(u)
        k = w.binary("ashr", w.binary("sub", bits, w.const(SQRT_HALF_BITS, "i64")), w.const(52, "i64"))
        m = w.convert("bitcast", w.binary("sub", bits, w.binary("shl", k, w.const(52, "i64"))), "double")
        f = self.sub(m, 1.0)
        if near is not None:
            f = self.pick(w.compare("icmp eq", k, w.const(0, "i64")), near, f)
        s = self.div(f, self.add(f, 2.0))
        z = self.mul(s, s)
        l = self.fma(self.mul(s, z), self.poly(z, table.LOG_64), self.add(s, s))  # noqa: E741
        shifted = w.convert("bitcast", w.binary("add", k, w.const(0x4338000000000000, "i64")), "double")
        return self.sub(shifted, MAGIC_64), l

    def log_special(self, u: Val, result: Val) -> Val:
        """The values at zero, below it, at infinity and NaN."""
        result = self.pick(self.test("olt", u, math.inf), result, u)
        result = self.pick(self.test("olt", u, 0.0), math.nan, result)
        return self.pick(self.test("oeq", u, 0.0), -math.inf, result)

    def log64(self, u: Val) -> Val:
        k, l = self.log_parts64(u)  # noqa: E741
        return self.log_special(u, self.fma(k, LN2_HIGH, l))

    def log2_64(self, u: Val) -> Val:
        k, l = self.log_parts64(u)  # noqa: E741
        return self.log_special(u, self.fma(l, math.log2(math.e), k))

    def log1p_64(self, x: Val) -> Val:
        u = self.add(x, 1.0)
        k, l = self.log_parts64(u, x)  # noqa: E741
        return self.log_special(u, self.fma(k, LN2_HIGH, l))

    def sincos64(self, x: Val) -> tuple[Val, Val, Val]:
        """(sin r, cos r, q) with x = q*pi/2 + r, |r| <= pi/4; |x| <= 2**30."""
        t = self.fma(x, 2 / math.pi, MAGIC_64)
        n = self.sub(t, MAGIC_64)
        r = self.fma(n, -HALF_PI_LOW, self.fma(n, -HALF_PI_HIGH, x))
        z = self.mul(r, r)
        s = self.fma(self.mul(r, z), self.poly(z, table.SIN_64), r)
        c = self.fma(self.mul(z, z), self.poly(z, table.COS_64), self.fma(z, -0.5, 1.0))
        return s, c, self.bits(t)

    def sincos32(self, x: Val) -> tuple[Val, Val, Val]:
        """(sin r, cos r, q) with x = q*pi/2 + r, |r| <= pi/4; |x| <= 2**13.

        x - q*(first part) is exact; `e` keeps what the second subtraction rounds away (Cody and Waite, 1980).
        """
        first, second, third = HALF_PI_32
        t = self.fma(x, 2 / math.pi, MAGIC_32)
        n = self.sub(t, MAGIC_32)
        y = self.fma(n, -first, x)
        r = self.fma(n, -second, y)
        e = self.fma(n, -third, self.fma(n, -second, self.sub(y, r)))
        z = self.mul(r, r)
        s = self.add(r, self.fma(self.mul(r, z), self.poly(z, table.SIN_32), e))
        c = self.fma(z, self.fma(z, self.poly(z, table.COS_32), -0.5), self.mul(self.w.negate(r), e))
        return s, self.add(c, 1.0), self.bits(t)

    def bit(self, q: Val, which: int) -> Val:
        w = self.w
        return w.compare("icmp ne", w.binary("and", q, w.const(which, q.element)), w.const(0, q.element))

    def atan64(self, y: Val, x: Val) -> Val:
        """The angle of (x, y) in the first quadrant, both >= 0; 0 where both are 0."""
        steep = self.test("ogt", y, self.mul(x, 1 + math.sqrt(2)))
        middle = self.test("ogt", y, self.mul(x, math.sqrt(2) - 1))
        top = self.pick(steep, self.w.negate(x), self.pick(middle, self.sub(y, x), y))
        bottom = self.pick(steep, y, self.pick(middle, self.add(y, x), x))
        bottom = self.pick(self.test("oeq", bottom, 0.0), 1.0, bottom)
        base = self.pick(steep, math.pi / 2, self.pick(middle, self.num(math.pi / 4, y), 0.0))
        t = self.div(top, bottom)
        z = self.mul(t, t)
        return self.add(self.fma(self.mul(t, z), self.poly(z, table.ATAN_64), t), base)

    def asin_parts64(self, a: Val) -> tuple[Val, Val]:
        """(big, p): asin(a) is p, or pi/2 - 2*p where big; a >= 0, NaN beyond 1."""
        big = self.test("ogt", a, 0.5)
        z = self.pick(big, self.mul(self.sub(1.0, a), 0.5), self.mul(a, a))
        r = self.pick(big, self.sqrt(z), a)
        return big, self.fma(self.mul(r, z), self.poly(z, table.ASIN_64), r)
