"""float32 elementary functions, each with its largest error in units in the last place.

The errors are against float64, over dense samples of the whole range; tests hold them to it.
Most compute in double and round once. Special values are those of C's functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from dovetail.codegen.cpu.builder import Builder, Val, hole
from dovetail.codegen.cpu.vecmath import coefficients as table
from dovetail.codegen.cpu.vecmath.formulas import Formulas
from dovetail.ir.records import dataclass

#: Above the first, sin and cos reduce their argument in double; above the second, sin, cos and tan need
#: the C library's long reduction.
MEDIUM_ANGLE = 2.0**13
LARGE_ANGLE = 2.0**30


@dataclass(frozen=True)
class Function:
    """`emit` writes the body; `limit`: finite arguments beyond it go to the C library's function.

    `beyond`, where given, takes their place first: a function with a larger limit.
    """

    emit: Callable[..., Val]
    ulp: float = 0.51
    arity: int = 1
    limit: float | None = None
    beyond: Function | None = None


def _expm1(f: Formulas, x: Val) -> Val:
    return f.sign(f.round32(f.expm1_64(f.clamp(f.wide(x), -104.0, 90.0))), x)


def _log10(f: Formulas, x: Val) -> Val:
    return f.round32(f.mul(f.log64(f.wide(x)), math.log10(math.e)))


def _log1p(f: Formulas, x: Val) -> Val:
    return f.sign(f.round32(f.log1p_64(f.wide(x))), x)


def _pow(f: Formulas, x: Val, y: Val) -> Val:
    """exp2(y*log2|x|) in double, then the special cases of C's pow."""
    a, b = f.abs(x), f.wide(y)
    power = f.clamp(f.mul(b, f.log2_64(f.wide(a))), -1000.0, 1000.0)
    result = f.round32(f.exp64(f.mul(power, math.log(2))))
    whole = f.w.intrinsic("trunc", y)
    integer = f.test("oeq", whole, y)
    half = f.mul(y, 0.5)
    odd = f.w.both(integer, f.test("une", f.w.intrinsic("trunc", half), half))
    negative = f.w.compare("icmp slt", f.bits(x), f.w.const(0, "i32"))
    result = f.pick(f.w.both(negative, odd), f.w.negate(result), result)
    finite = f.w.both(f.test("olt", x, 0.0), f.test("ogt", x, -math.inf))
    undefined = f.w.both(finite, f.w.both(f.w.invert(integer), f.test("one", f.abs(y), math.inf)))
    result = f.pick(undefined, math.nan, result)
    result = f.pick(f.w.both(f.test("oeq", a, 1.0), f.test("oeq", f.abs(y), math.inf)), 1.0, result)
    one = f.w.binary("or", f.test("oeq", x, 1.0), f.test("oeq", y, 0.0))
    return f.pick(one, 1.0, result)


def _sin(f: Formulas, x: Val) -> Val:
    return f.pick(f.test("oeq", x, 0.0), x, _sine(f, *f.sincos32(x)))


def _sin_wide(f: Formulas, x: Val) -> Val:
    return f.pick(f.test("oeq", x, 0.0), x, f.round32(_sine(f, *f.sincos64(f.wide(x)))))


def _cos(f: Formulas, x: Val) -> Val:
    return _cosine(f, *f.sincos32(x))


def _cos_wide(f: Formulas, x: Val) -> Val:
    return f.round32(_cosine(f, *f.sincos64(f.wide(x))))


def _sine(f: Formulas, s: Val, c: Val, q: Val) -> Val:
    """In the quarter `q` of the circle; the second half of it has the other sign."""
    r = f.pick(f.bit(q, 1), c, s)
    return f.pick(f.bit(q, 2), f.w.negate(r), r)


def _cosine(f: Formulas, s: Val, c: Val, q: Val) -> Val:
    r, next_one = f.pick(f.bit(q, 1), s, c), f.w.binary("add", q, f.w.const(1, q.element))
    return f.pick(f.bit(next_one, 2), f.w.negate(r), r)


def _tan(f: Formulas, x: Val) -> Val:
    s, c, q = f.sincos64(f.wide(x))
    odd = f.bit(q, 1)
    r = f.round32(f.div(f.pick(odd, f.w.negate(c), s), f.pick(odd, s, c)))
    return f.pick(f.test("oeq", x, 0.0), x, r)


def _asin(f: Formulas, x: Val) -> Val:
    big, p = f.asin_parts64(f.abs(f.wide(x)))
    return f.sign(f.round32(f.pick(big, f.fma(p, -2.0, math.pi / 2), p)), x)


def _acos(f: Formulas, x: Val) -> Val:
    d = f.wide(x)
    big, p = f.asin_parts64(f.abs(d))
    twice = f.add(p, p)
    far = f.pick(f.test("olt", d, 0.0), f.sub(math.pi, twice), twice)
    return f.round32(f.pick(big, far, f.sub(math.pi / 2, f.sign(p, d))))


def _atan(f: Formulas, x: Val) -> Val:
    d = f.abs(f.wide(x))
    return f.sign(f.round32(f.atan64(d, f.num(1.0, d))), x)


def _atan2(f: Formulas, y: Val, x: Val) -> Val:
    a, b = f.abs(f.wide(y)), f.abs(f.wide(x))
    infinite = f.w.both(f.test("oeq", a, math.inf), f.test("oeq", b, math.inf))
    angle = f.atan64(f.pick(infinite, 1.0, a), f.pick(infinite, 1.0, b))
    left = f.w.compare("icmp slt", f.bits(x), f.w.const(0, "i32"))
    angle = f.round32(f.pick(left, f.sub(math.pi, angle), angle))
    return f.pick(f.test("uno", x, y), math.nan, f.sign(angle, y))


def _sinh(f: Formulas, x: Val) -> Val:
    e = f.expm1_64(f.clamp(f.abs(f.wide(x)), 0.0, 91.0))
    return f.sign(f.round32(f.mul(f.add(e, f.div(e, f.add(e, 1.0))), 0.5)), x)


def _cosh(f: Formulas, x: Val) -> Val:
    e = f.exp64(f.clamp(f.abs(f.wide(x)), 0.0, 91.0))
    return f.round32(f.mul(f.add(e, f.div(1.0, e)), 0.5))


def _tanh(f: Formulas, x: Val) -> Val:
    a = f.abs(x)
    z = f.mul(a, a)
    small = f.fma(f.mul(a, z), f.poly(z, table.TANH_32), a)
    e = f.exp32(f.add(a, a))
    big = f.sub(1.0, f.div(2.0, f.add(e, 1.0)))
    return f.sign(f.pick(f.test("olt", a, 1.0), small, big), x)


def _asinh(f: Formulas, x: Val) -> Val:
    a = f.abs(f.wide(x))
    square = f.mul(a, a)
    inner = f.add(a, f.div(square, f.add(f.sqrt(f.add(square, 1.0)), 1.0)))
    result = f.pick(f.test("oeq", a, math.inf), a, f.log1p_64(inner))
    return f.sign(f.round32(result), x)


def _acosh(f: Formulas, x: Val) -> Val:
    t = f.sub(f.wide(x), 1.0)
    result = f.round32(f.log1p_64(f.add(t, f.sqrt(f.mul(t, f.add(t, 2.0))))))
    return f.pick(f.test("olt", x, 1.0), math.nan, result)


def _atanh(f: Formulas, x: Val) -> Val:
    a = f.abs(f.wide(x))
    return f.sign(f.round32(f.mul(f.log1p_64(f.div(f.add(a, a), f.sub(1.0, a))), 0.5)), x)


def _erf(f: Formulas, x: Val) -> Val:
    a = f.abs(x)
    small = f.fma(a, f.poly(f.mul(a, a), table.ERF), a)
    t = f.pick(f.test("ogt", a, 4.0), 4.0, a)
    big = f.sub(1.0, f.exp32(f.w.negate(f.mul(t, f.poly(t, table.ERF_TAIL)))))
    return f.sign(f.pick(f.test("olt", a, 1.0), small, big), x)


def _erfc(f: Formulas, x: Val) -> Val:
    d = f.wide(x)
    a = f.clamp(f.abs(d), 0.0, 10.6)
    z = f.mul(a, a)
    near = f.sub(1.0, f.fma(d, f.poly(z, table.ERF), d))
    ratio = f.poly(f.div(f.sub(a, 4.0), f.add(a, 4.0)), table.ERFC_64)
    tail = f.div(f.mul(f.exp64(f.w.negate(z)), ratio), f.fma(a, 2.0, 1.0))
    far = f.pick(f.test("olt", d, 0.0), f.sub(2.0, tail), tail)
    return f.round32(f.pick(f.test("olt", a, 0.5), near, far))


SINGLE: dict[str, Function] = {
    "exp": Function(Formulas.exp32, 0.75),
    "exp2": Function(Formulas.exp2_32, 0.85),
    "expm1": Function(_expm1),
    "log": Function(lambda f, x: f.round32(f.log64(f.wide(x)))),
    "log2": Function(lambda f, x: f.round32(f.log2_64(f.wide(x)))),
    "log10": Function(_log10),
    "log1p": Function(_log1p),
    "pow": Function(_pow, arity=2),
    "sin": Function(_sin, 1.1, limit=MEDIUM_ANGLE, beyond=Function(_sin_wide, 0.6, limit=LARGE_ANGLE)),
    "cos": Function(_cos, 1.1, limit=MEDIUM_ANGLE, beyond=Function(_cos_wide, 0.6, limit=LARGE_ANGLE)),
    "tan": Function(_tan, 1.1, limit=LARGE_ANGLE),
    "asin": Function(_asin), "acos": Function(_acos), "atan": Function(_atan), "atan2": Function(_atan2, arity=2),
    "sinh": Function(_sinh), "cosh": Function(_cosh), "tanh": Function(_tanh, 1.1),
    "asinh": Function(_asinh), "acosh": Function(_acosh), "atanh": Function(_atanh),
    "erf": Function(_erf, 1.1), "erfc": Function(_erfc),
}  # fmt: skip


@cache
def body(entry: Function, lanes: int, native_scale: bool) -> tuple[str, str, dict[str, str]]:
    """The instructions, the result, and the declarations that they need: see `Builder.pasted`."""
    declares: dict[str, str] = {}
    builder = Builder(declares)
    arguments = [Val(hole(k), "float", lanes, 0) for k in range(entry.arity)]
    result = entry.emit(Formulas(builder, native_scale), *arguments)
    return "\n".join(builder.text()), result.text, declares


def far(f: Formulas, entry: Function, x: Val) -> Val:
    """Is an argument of any lane beyond the limit?"""
    size = f.abs(x)
    assert entry.limit is not None
    found = f.test("ogt", size, entry.limit)
    if entry.beyond is None:  # infinities are quick here and slow in the C library
        found = f.w.both(found, f.test("olt", size, math.inf))
    return found if x.lanes == 1 else f.w.b.call(f"llvm.vector.reduce.or.v{x.lanes}i1", "i1", [found], 1)


def unless_far(builder: Builder, beyond: Val, near: Val, call: str) -> Val:
    """`near`, or what the call gives where an argument is beyond its limit."""
    tag, before = builder.fresh("f"), builder.scope.block
    builder.line(f"br i1 {beyond.text}, label %{tag}.far, label %{tag}.near")
    builder.label(f"{tag}.far")
    slow = builder.op(call, near.element, near.lanes)
    builder.line(f"br label %{tag}.near")
    builder.label(f"{tag}.near")
    either = f"phi {near.type} [ {near.text}, %{before} ], [ {slow.text}, %{tag}.far ]"
    return builder.op(either, near.element, near.lanes)


def define(entry: Function, name: str, library: str, lanes: int, native_scale: bool) -> tuple[str, dict[str, str]]:
    """The text of a function with a limit, and the declarations that it needs; `library`: the C library's."""
    declares: dict[str, str] = {}
    builder, x = Builder(declares), Val("%x", "float", lanes, 0)
    formulas = Formulas(builder, native_scale)
    near = entry.emit(formulas, x)
    result = unless_far(builder, far(formulas, entry, x), near, f"call {x.type} @{library}({x.typed})")
    head = f"define internal {x.type} @{name}({x.typed}) noinline {{\nentry:\n"
    return head + "\n".join([*builder.text(), f"  ret {result.typed}", "}", ""]), declares
