"""How dtypes look in LLVM: in registers, in memory, and as literals.

In registers bool is i1 and bfloat16 its raw 16 bits; in memory bool is a byte holding 0 or 1.
"""

from __future__ import annotations

import math
import struct

import torch

from dovetail.ir.records import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """`register` and `memory` are LLVM scalar types; `kind` is float, int, uint, bool or half."""

    register: str
    memory: str
    bits: int
    kind: str

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return max(self.bits, 8) // 8


TYPES: dict[torch.dtype, Type] = {
    torch.float32: Type("float", "float", 32, "float"),
    torch.float64: Type("double", "double", 64, "float"),
    torch.float16: Type("half", "half", 16, "half"),
    torch.bfloat16: Type("i16", "i16", 16, "half"),
    torch.int8: Type("i8", "i8", 8, "int"),
    torch.int16: Type("i16", "i16", 16, "int"),
    torch.int32: Type("i32", "i32", 32, "int"),
    torch.int64: Type("i64", "i64", 64, "int"),
    torch.uint8: Type("i8", "i8", 8, "uint"),
    torch.uint16: Type("i16", "i16", 16, "uint"),
    torch.uint32: Type("i32", "i32", 32, "uint"),
    torch.uint64: Type("i64", "i64", 64, "uint"),
    torch.bool: Type("i1", "i8", 1, "bool"),
}


def type_of(dtype: torch.dtype) -> Type:
    """The row of `dtype`; operators on complex, quantized and 8-bit float types are library calls."""
    return TYPES[dtype]


def vector(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; one lane is a scalar."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix(element: str, lanes: int) -> str:
    """The part of an overloaded intrinsic's name that encodes its type: v16f32, i64."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """`value` as a scalar literal of the register type of `dtype`, rounded as torch rounds it."""
    kind = type_of(dtype)
    if kind.kind == "bool":
        return "true" if value else "false"
    if kind.kind in ("int", "uint"):
        span = 1 << kind.bits
        wrapped = int(value) % span
        return str(wrapped - span if wrapped >= span // 2 else wrapped)
    if dtype == torch.bfloat16:
        return str(torch.tensor(value, dtype=dtype, device="cpu").view(torch.int16).item())
    if dtype == torch.float16:
        return f"0xH{int(torch.tensor(value, dtype=dtype, device='cpu').view(torch.int16)) & 0xFFFF:04X}"
    return float_literal(float(value), kind.register)


def float_literal(value: float, element: str) -> str:
    """A float or double literal in LLVM's exact hexadecimal form."""
    if element == "float":
        value = to_float32(value)
    if math.isnan(value):
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def to_float32(value: float) -> float:
    """The nearest float32, infinities where it overflows."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def splat(text: str, element: str, lanes: int) -> str:
    """A constant vector whose lanes are all the literal `text`."""
    return text if lanes == 1 else f"splat ({element} {text})"
