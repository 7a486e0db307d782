"""How dtypes look in Triton's language."""

from __future__ import annotations

import math

import torch

#: dtype → the name in `triton.language`, and in a kernel's signature: in memory a bool is a byte.
TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("float32", "fp32"), torch.float64: ("float64", "fp64"), torch.float16: ("float16", "fp16"),
    torch.bfloat16: ("bfloat16", "bf16"), torch.int8: ("int8", "i8"), torch.int16: ("int16", "i16"),
    torch.int32: ("int32", "i32"), torch.int64: ("int64", "i64"), torch.uint8: ("uint8", "u8"),
    torch.uint16: ("uint16", "u16"), torch.uint32: ("uint32", "u32"), torch.uint64: ("uint64", "u64"),
    torch.bool: ("int1", "i8"),
}  # fmt: skip

FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))


def name(dtype: torch.dtype) -> str:
    """`tl.float32`; operators on complex, quantized and 8-bit float types are library calls."""
    return f"tl.{TYPES[dtype][0]}"


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A scalar of exactly that type: bare literals would take the type of what they meet."""
    if dtype is torch.bool:
        return f"tl.full((), {int(value)}, tl.int1)"
    if isinstance(value, float) and not math.isfinite(value):
        return f"tl.full((), float('{value}'), {name(dtype)})"
    return f"tl.full((), {value!r}, {name(dtype)})"
