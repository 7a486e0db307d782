"""Conversions between dtypes, with the results that eager gives.

Floating point to integer truncates; out of range it gives what the processor's conversion to 32
or 64 bits gives, then drops high bits. Anything to bool is `!= 0` (so NaN is true). bfloat16
rounds to nearest even and keeps NaN.
"""

from __future__ import annotations

import torch

from dovetail.codegen.cpu import half
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
        return w.convert("fpext", a, "float") if w.halves else half.widen(w, a)
    bits = w.binary("shl", w.convert("zext", a, "i32"), w.const(16, "i32"))
    return w.convert("bitcast", bits, "float")


def narrow_half(w: Lanes, a: Val, target: torch.dtype) -> Val:
    """float32 to bfloat16 or float16, to nearest even."""
    if target == torch.float16:
        return w.convert("fptrunc", a, "half") if w.halves else half.narrow(w, a)
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
