"""Elementary functions of vectors, as LLVM IR that is emitted only where used.

float32 functions are written here (`single.py`); float64 ones, and the arguments for which a
float32 one gives up, call the C library's function once a lane (`scalarized`).
"""

from __future__ import annotations

from dovetail.codegen.cpu.vecmath.library import FUNCTIONS, Library, has

__all__ = ["FUNCTIONS", "Library", "has"]
