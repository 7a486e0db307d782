"""Conversions between dtypes, with the results that eager gives.

Floating point to integer truncates; out of range it gives what the processor's conversion to 32
or 64 bits gives, then drops high bits. Anything to bool is `!= 0` (so NaN is true). bfloat16
rounds to nearest even and keeps NaN.
"""

from __future__ import annotations

import torch

from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.lanes import Lanes
from dovetail.codegen.cpu.types import Type, type_of


def cast(w: Lanes, a: Val, source: torch.dtype, target: torch.dtype) -> Val:
    """`a.to(target)`."""
    if source == target:
        return a
    if type_of(source).kind == "half":
        a, source = widen_half(w, a, source), torch.float32
    if type_of(target).kind == "half":
        return narrow_half(w, cast(w, a, source, torch.float32), target)
    return _KINDS[type_of(source).kind](w, a, type_of(source), type_of(target))


def widen_half(w: Lanes, a: Val, source: torch.dtype) -> Val:
    """bfloat16 or float16 to float32, exactly."""
    if source == torch.float16:
        return w.convert("fpext", a, "float") if w.halves else widen(w, a)
    bits = w.binary("shl", w.convert("zext", a, "i32"), w.const(16, "i32"))
    return w.convert("bitcast", bits, "float")


def narrow_half(w: Lanes, a: Val, target: torch.dtype) -> Val:
    """float32 to bfloat16 or float16, to nearest even."""
    if target == torch.float16:
        return w.convert("fptrunc", a, "half") if w.halves else narrow(w, a)
    bits = w.convert("bitcast", a, "i32")
    high = w.binary("lshr", bits, w.const(16, "i32"))
    odd = w.binary("and", high, w.const(1, "i32"))
    rounded = w.binary("add", w.binary("add", bits, w.const(0x7FFF, "i32")), odd)
    kept = w.convert("trunc", w.binary("lshr", rounded, w.const(16, "i32")), "i16")
    return w.select(w.is_nan(a), w.const(0x7FC0, "i16"), kept)


def _from_float(w: Lanes, a: Val, source: Type, target: Type) -> Val:
    if target.kind == "bool":
        return w.compare("fcmp une", a, w.number(0.0, a.element))
    if target.kind == "float":
        return w.convert("fpext" if target.bits > source.bits else "fptrunc", a, target.register)
    wide = "i64" if target.bits == 64 or (target.bits == 32 and target.kind == "uint") else "i32"
    whole = w.freeze(w.convert("fptosi", a, wide))
    return whole if wide == target.register else w.convert("trunc", whole, target.register)


def _from_int(w: Lanes, a: Val, source: Type, target: Type) -> Val:
    signed = source.kind == "int"
    if target.kind == "bool":
        return w.compare("icmp ne", a, w.const(0, a.element))
    if target.kind == "float":
        return w.convert("sitofp" if signed else "uitofp", a, target.register)
    if target.bits < source.bits:
        return w.convert("trunc", a, target.register)
    return w.convert("sext" if signed else "zext", a, target.register)


def _from_bool(w: Lanes, a: Val, source: Type, target: Type) -> Val:
    return w.convert("uitofp" if target.kind == "float" else "zext", a, target.register)


_KINDS = {"float": _from_float, "int": _from_int, "uint": _from_int, "bool": _from_bool}


def bitcast(w: Lanes, a: Val, source: torch.dtype, target: torch.dtype) -> Val:
    """`a.view(target)` for dtypes of one size."""
    if source == target:
        return a
    if source == torch.bool:
        a = w.convert("zext", a, "i8")
    if target == torch.bool:
        return w.compare("icmp ne", a, w.const(0, "i8"))
    return a if a.element == type_of(target).register else w.convert("bitcast", a, type_of(target).register)


def from_memory(w: Lanes, a: Val, dtype: torch.dtype) -> Val:
    """A value as loaded to a value as computed with."""
    return w.compare("icmp ne", a, w.const(0, "i8")) if dtype == torch.bool else a


def to_memory(w: Lanes, a: Val, dtype: torch.dtype) -> Val:
    return w.convert("zext", a, "i8") if dtype == torch.bool else a


# ---------------------------------------------------------------- float16 without a processor's instructions for it
# Without those LLVM calls functions of a compiler's run-time library, which nobody has loaded. The method is Giesen's
# (float_to_half_fast3_rtne, half_to_float): the float unit moves exponents and rounds subnormals.

_INFINITY = 0x7F800000
_TOO_LARGE = 0x47800000  # 2**16
_SMALLEST_NORMAL = 0x38800000  # 2**-14
_ALIGN = 0x3F000000  # 0.5, whose last place is that of a subnormal float16
_REBIAS = 0xC8000FFF - (1 << 32)  # (15 - 127) << 23, and half a last place less one

#: What LLVM calls where it sees a number negated between two roundings. Eager rounds twice, so does this.
FROM_DOUBLE = """\
define weak_odr half @__truncdfhf2(double %x) nounwind {
  %narrow = fptrunc double %x to float
  %half = fptrunc float %narrow to half
  ret half %half
}
"""


def widen(w: Lanes, a: Val) -> Val:
    """float16 to float32, exactly."""
    bits = w.convert("zext", w.convert("bitcast", a, "i16"), "i32")
    size = w.binary("and", bits, w.const(0x7FFF, "i32"))
    sign = w.binary("shl", w.binary("and", bits, w.const(0x8000, "i32")), w.const(16, "i32"))
    small = w.convert("bitcast", w.binary("shl", size, w.const(13, "i32")), "float")
    moved = w.convert("bitcast", w.binary("fmul", small, w.number(2.0**112, "float")), "i32")
    special = w.compare("icmp uge", size, w.const(0x7C00, "i32"))
    moved = w.select(special, w.binary("or", moved, w.const(_INFINITY, "i32")), moved)
    return w.convert("bitcast", w.binary("or", moved, sign), "float")


def narrow(w: Lanes, a: Val) -> Val:
    """float32 to float16, to nearest even."""
    bits = w.convert("bitcast", a, "i32")
    size = w.binary("and", bits, w.const(0x7FFFFFFF, "i32"))
    sign = w.binary("lshr", w.binary("xor", bits, size), w.const(16, "i32"))
    odd = w.binary("and", w.binary("lshr", size, w.const(13, "i32")), w.const(1, "i32"))
    rounded = w.binary("add", w.binary("add", size, w.const(_REBIAS, "i32")), odd)
    normal = w.binary("lshr", rounded, w.const(13, "i32"))
    aligned = w.binary("fadd", w.convert("bitcast", size, "float"), w.number(0.5, "float"))
    tiny = w.binary("sub", w.convert("bitcast", aligned, "i32"), w.const(_ALIGN, "i32"))
    finite = w.select(w.compare("icmp ult", size, w.const(_SMALLEST_NORMAL, "i32")), tiny, normal)
    nan = w.compare("icmp ugt", size, w.const(_INFINITY, "i32"))
    special = w.select(nan, w.const(0x7E00, "i32"), w.const(0x7C00, "i32"))
    value = w.select(w.compare("icmp uge", size, w.const(_TOO_LARGE, "i32")), special, finite)
    return w.convert("bitcast", w.convert("trunc", w.binary("or", value, sign), "i16"), "half")
