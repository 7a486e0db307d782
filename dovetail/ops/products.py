"""Matrix products: by loops where a side is one vector, otherwise by whichever library is faster on this processor.

A product with a vector reads each element of the matrix once, so it takes as long as memory does. The BLAS gives it one
thread, and too few reads at a time: 1x768 by the transpose of 3072x768 takes 0.57 ms there and 0.23 in loops of one
thread, where the matrix is in no cache. What surrounds it is fused with it, too.

PyTorch sends float32 products to its BLAS, which is MKL in the usual builds, and MKL keeps its AVX-512 kernels from
processors that are not Intel's. oneDNN, which is in the same builds, generates code for what the processor has. On an
AMD EPYC with AVX-512, two threads, the best of 150 calls: 256x256 by 256x1024 takes 0.42 ms instead of 0.79, 4x4096 by
4096x4096 2.1 ms instead of 9.2; a call costs 10 us more, so small products stay where they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dovetail.ir import dims
from dovetail.ops import build, views
from dovetail.ops.emit import Emitter
from dovetail.ops.registry import Rows
from dovetail.ops.value import Spec, Value, contiguous_strides

ROWS = Rows()

#: Multiplications from which on oneDNN's dearer call pays.
LARGE = 4 << 20

#: Processors, by the name of their maker, for which MKL has no AVX-512 kernels.
SLOW_IN_MKL = frozenset({"AuthenticAMD", "HygonGenuine"})


@ROWS("aten::mm")
def mm(emit: Emitter, out: Spec, self: Value, mat2: Value) -> Value:
    return _product(emit, out, self, mat2, None)


@ROWS("aten::addmm")
def addmm(emit: Emitter, out: Spec, self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if self.rank != 1 or self.sizes != out.sizes[1:] or (beta, alpha) != (1, 1):
        return NotImplemented
    return _product(emit, out, mat1, mat2, self)


@ROWS("aten::mv")
def mv(emit: Emitter, out: Spec, self: Value, vec: Value) -> Value:
    if not _in_loops(out):
        return NotImplemented
    return emit.reduce(out, self.spec, [1], "sum", lambda i: build.mul(self.at(i), vec.at(i[1:])), out.dtype)


def _product(emit: Emitter, out: Spec, left: Value, right: Value, bias: Value | None) -> Value:
    if _in_loops(out) and 1 in out.sizes:
        return _with_vector(emit, out, left, right, bias)
    return _by_onednn(emit, out, left, right, bias)


def _in_loops(out: Spec) -> bool:
    return out.device.type == "cpu" and out.dtype in (torch.float32, torch.float64)


def _with_vector(emit: Emitter, out: Spec, left: Value, right: Value, bias: Value | None) -> Value:
    """Sums of products, in the order in which the matrix lies in memory."""
    (rows, length), columns = left.sizes, right.sizes[1]
    strides = (0, *right.strides) if rows == 1 else (*left.strides, 0)
    terms = Spec(out.dtype, out.device, (rows, length, columns), strides)
    at = lambda i: build.mul(left.at(i[:2]), right.at(i[1:]))
    if bias is None:
        return emit.reduce(out, terms, [1], "sum", at, out.dtype)
    total = emit.reduce(replace(out), terms, [1], "sum", at, out.dtype)
    return emit.pointwise(out, lambda i: build.add(total.at(i), bias.broadcast(i)))


def _by_onednn(emit: Emitter, out: Spec, left: Value, right: Value, bias: Value | None) -> Value:
    """`left @ right + bias` as oneDNN's linear layer, whose weight is `right` transposed, in whatever layout."""
    if dims.typical(dims.product((*left.sizes, out.sizes[1]))) < max(LARGE, 1):
        return NotImplemented
    if out.dtype is not torch.float32 or out.device.type != "cpu" or not faster_by_onednn():
        return NotImplemented
    if out.strides != contiguous_strides(out.sizes):
        return NotImplemented
    result = emit.buffer(out)
    right = emit.materialize(right)
    if not _dense(right):
        right = emit.copy(right, replace(right.spec, strides=contiguous_strides(right.sizes)))
    weight = emit.reference(views.t(emit, out, right))
    added = None if bias is None else emit.reference(bias)
    operator = torch.ops.mkldnn._linear_pointwise.default
    emit.library(operator, (emit.reference(left), weight, added, "none", (), ""), {}, (result,))
    return emit.stored(result)


def _dense(matrix: Value) -> bool:
    """Rows or columns without gaps inside: what oneDNN takes as it is."""
    (m, n), (s, t) = matrix.sizes, matrix.strides
    return t == 1 and dims.known_nonnegative(s - n) or s == 1 and dims.known_nonnegative(t - m)


@cache
def faster_by_onednn() -> bool:
    """Is the BLAS of this PyTorch MKL, on a processor that it is slow on, with oneDNN beside it?"""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    return "AVX512" in torch.backends.cpu.get_cpu_capability() and _maker() in SLOW_IN_MKL


def _maker() -> str:
    """The name that the processor gives of its maker; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
