"""The instructions of each scalar operator of `ir/scalar.py`: one row each."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dovetail.codegen.cpu import casts
from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.lanes import Lanes
from dovetail.codegen.cpu.types import Type, type_of
from dovetail.ir.scalar import PHILOX_FACTORS, PHILOX_ROUNDS, PHILOX_STEPS

Row = Callable[[Lanes, Type, tuple[Val, ...]], Val]


def _arithmetic(name: str) -> Row:
    def emit(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
        return w.binary(f"f{name}" if t.kind == "float" else name, *args)

    return emit


def _safe_divisor(w: Lanes, t: Type, b: Val) -> tuple[Val, Val, Val]:
    """b with 0 and -1 replaced by 1, for which the processor would trap; and both tests."""
    zero = w.compare("icmp eq", b, w.const(0, b.element))
    minus = w.compare("icmp eq", b, w.const(-1, b.element)) if t.kind == "int" else w.const("false", "i1")
    odd = w.binary("or", zero, minus) if t.kind == "int" else zero
    return w.select(odd, w.const(1, b.element), b), zero, minus


def _truncdiv(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    a, b = args
    safe, zero, minus = _safe_divisor(w, t, b)
    quotient = w.binary("sdiv" if t.kind == "int" else "udiv", a, safe)
    if t.kind == "int":
        quotient = w.select(minus, w.binary("sub", w.const(0, a.element), a), quotient)
    return w.select(zero, w.const(0, a.element), quotient)


def _floordiv(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    a, b = args
    quotient = _truncdiv(w, t, args)
    if t.kind == "uint":
        return quotient
    rest = w.binary("sub", a, w.binary("mul", quotient, b))
    zero = w.const(0, a.element)
    inexact = w.both(w.compare("icmp ne", rest, zero), w.compare("icmp ne", b, zero))
    below = w.both(inexact, w.compare("icmp slt", w.binary("xor", rest, b), zero))
    return w.select(below, w.binary("sub", quotient, w.const(1, a.element)), quotient)


def _fmod(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    a, b = args
    if t.kind == "float":
        return w.binary("frem", a, b)
    safe, zero, _ = _safe_divisor(w, t, b)
    rest = w.binary("srem" if t.kind == "int" else "urem", a, safe)
    return w.select(zero, w.const(0, a.element), rest)


def _remainder(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    a, b = args
    rest = _fmod(w, t, args)
    if t.kind == "uint":
        return rest
    if t.kind == "float":
        zero = w.number(0.0, a.element)
        other = w.binary("xor", w.compare("fcmp olt", b, zero), w.compare("fcmp olt", rest, zero))
        wrong = w.both(w.compare("fcmp une", rest, zero), other)
        return w.select(wrong, w.binary("fadd", rest, b), rest)
    zero = w.const(0, a.element)
    wrong = w.both(
        w.compare("icmp ne", rest, zero), w.compare("icmp slt", w.binary("xor", rest, b), zero)
    )
    return w.select(wrong, w.binary("add", rest, b), rest)


def _neg(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    return w.negate(args[0]) if t.kind == "float" else w.binary("sub", w.const(0, t.register), args[0])


def _abs(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    if t.kind == "float":
        return w.intrinsic("fabs", *args)
    if t.kind == "uint":
        return args[0]
    negative = w.compare("icmp slt", args[0], w.const(0, t.register))
    return w.select(negative, w.binary("sub", w.const(0, t.register), args[0]), args[0])


def _extreme(name: str) -> Row:
    return lambda w, t, args: w.minmax(name, args[0], args[1], t.kind)


def _intrinsic(name: str) -> Row:
    return lambda w, t, args: w.intrinsic(name, *args)


def _rsqrt(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    return w.binary("fdiv", w.number(1.0, t.register), w.intrinsic("sqrt", *args))


def _isinf(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    return w.compare("fcmp oeq", w.intrinsic("fabs", *args), w.number(float("inf"), t.register))


def _signbit(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    a = args[0]
    if t.kind == "uint":
        return w.const("false", "i1")
    if t.kind == "float":
        a = w.convert("bitcast", a, f"i{t.bits}")
    return w.compare("icmp slt", a, w.const(0, a.element))


def _comparison(name: str) -> Row:
    def emit(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
        if t.kind == "float":
            return w.compare(f"fcmp {'une' if name == 'ne' else 'o' + name}", *args)
        sign = "" if name in ("eq", "ne") else "s" if t.kind == "int" else "u"
        return w.compare(f"icmp {sign}{name}", *args)

    return emit


def _instruction(name: str) -> Row:
    return lambda w, t, args: w.binary(name, *args)


def _not(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    return w.invert(args[0])


def _shift(name: str) -> Row:
    def emit(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
        a, count = args
        inside = w.compare("icmp ult", count, w.const(t.bits, t.register))
        if name == "shr" and t.kind == "int":
            return w.binary("ashr", a, w.select(inside, count, w.const(t.bits - 1, t.register)))
        safe = w.select(inside, count, w.const(0, t.register))
        return w.select(inside, w.binary("shl" if name == "shl" else "lshr", a, safe), w.const(0, t.register))

    return emit


def _nextafter(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    """One unit in the last place from a towards b, on the ordered integers of the format."""
    a, b = args
    whole = f"i{t.bits}"
    bits = w.convert("bitcast", a, whole)
    away = w.binary("xor", w.compare("fcmp olt", a, b), w.compare("icmp slt", bits, w.const(0, whole)))
    step = w.select(away, w.const(1, whole), w.const(-1, whole))
    moved = w.convert("bitcast", w.binary("add", bits, step), t.register)
    tiny = w.convert("bitcast", w.const(1, whole), t.register)
    from_zero = w.intrinsic("copysign", tiny, b)
    moved = w.select(w.compare("fcmp oeq", a, w.number(0.0, t.register)), from_zero, moved)
    result = w.select(w.compare("fcmp oeq", a, b), b, moved)
    return w.select(w.compare("fcmp uno", a, b), w.number(float("nan"), t.register), result)


def _philox(w: Lanes, t: Type, args: tuple[Val, ...]) -> Val:
    """As `ir/scalar.py` has it: 32-bit words in 64-bit registers, so that one product gives both of its halves."""
    seed, place = args
    word, half, zero = w.const(0xFFFFFFFF, t.register), w.const(32, t.register), w.const(0, t.register)

    def low(x: Val) -> Val:
        return w.binary("and", x, word)

    def high(x: Val) -> Val:
        return w.binary("lshr", x, half)

    block = w.binary("ashr", place, w.const(2, t.register))
    first, second = low(seed), high(seed)
    a, b, c, d = low(block), high(block), zero, zero
    for _ in range(PHILOX_ROUNDS):
        left, right = (w.binary("mul", x, w.const(f, t.register)) for x, f in zip((a, c), PHILOX_FACTORS, strict=True))
        a, b, c, d = (
            w.binary("xor", w.binary("xor", high(right), b), first), low(right),
            w.binary("xor", w.binary("xor", high(left), d), second), low(left),
        )  # fmt: skip
        first, second = (
            low(w.binary("add", x, w.const(step, t.register)))
            for x, step in zip((first, second), PHILOX_STEPS, strict=True)
        )
    bits = [w.compare("icmp ne", w.binary("and", place, w.const(k, t.register)), zero) for k in (1, 2)]
    return w.select(bits[0], w.select(bits[1], d, b), w.select(bits[1], c, a))


ROWS: dict[str, Row] = {
    "add": _arithmetic("add"), "sub": _arithmetic("sub"), "mul": _arithmetic("mul"), "div": _instruction("fdiv"),
    "floordiv": _floordiv, "truncdiv": _truncdiv, "remainder": _remainder, "fmod": _fmod,
    "neg": _neg, "abs": _abs, "min": _extreme("min"), "max": _extreme("max"), "fma": _intrinsic("fma"),
    "floor": _intrinsic("floor"), "ceil": _intrinsic("ceil"), "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"), "sqrt": _intrinsic("sqrt"), "rsqrt": _rsqrt,
    "copysign": _intrinsic("copysign"), "nextafter": _nextafter,
    "isnan": lambda w, t, args: w.is_nan(args[0]), "isinf": _isinf, "signbit": _signbit,
    "eq": _comparison("eq"), "ne": _comparison("ne"), "lt": _comparison("lt"), "le": _comparison("le"),
    "gt": _comparison("gt"), "ge": _comparison("ge"),
    "and": _instruction("and"), "or": _instruction("or"), "xor": _instruction("xor"),
    "not": _not, "shl": _shift("shl"), "shr": _shift("shr"), "philox": _philox,
}  # fmt: skip


def emit(w: Lanes, name: str, dtype: torch.dtype, operand: torch.dtype, args: tuple[Val, ...]) -> Val:
    """The operator `name` on arguments of dtype `operand`; `dtype` is the result's."""
    if name == "where":
        return w.select(*args)
    if name in ("cast", "rounded"):
        return casts.cast(w, args[0], operand, dtype)
    if name == "bitcast":
        return casts.bitcast(w, args[0], operand, dtype)
    if type_of(operand).kind == "half":
        wide = tuple(casts.cast(w, a, operand, torch.float32) for a in args)
        result = ROWS[name](w, type_of(torch.float32), w.align(*wide))
        return casts.narrow_half(w, result, dtype) if dtype == operand else result
    return ROWS[name](w, type_of(operand), w.align(*args))
