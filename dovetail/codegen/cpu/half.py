"""float16 on processors without instructions for it.

There LLVM calls functions of a compiler's run-time library, which nobody has loaded. The method is Giesen's
(float_to_half_fast3_rtne, half_to_float): the float unit moves exponents and rounds subnormals.
"""

from __future__ import annotations

from dovetail.codegen.cpu.builder import Val
from dovetail.codegen.cpu.lanes import Lanes

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
