"""Matrix products: by loops where a side is one vector, otherwise by whichever library is faster on this processor.

A product with a vector reads each element of the matrix once, so it takes as long as memory does. The BLAS gives it one
thread, and too few reads at a time: 1x768 by the transpose of 3072x768 takes 0.57 ms there and 0.23 in loops of one
thread, where the matrix is in no cache. What surrounds it is fused with it, too: a generated word's products with what
gates them and the sum with what came before are one kernel each on a GPU. A state space model multiplies its 16 states
with a vector at each position, and its loop is few kernels then. Where nothing is added up (a column by a row), a
product is a multiplication like any other.

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

from dovetail.ir import dims, dimvalues
from dovetail.ir.devices import on_host, traits
from dovetail.ir.loops import Expr
from dovetail.ir.reshape import contiguous_strides
from dovetail.ops.fake.errors import eager_trials as trials
from dovetail.ops.fake.rules import products as shapes
from dovetail.ops.lowering import build, views
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.registry import Rows
from dovetail.ops.lowering.value import Indices, Spec, Value

ROWS = Rows(rounds_otherwise=True)

#: Multiplications from which on oneDNN's dearer call pays.
LARGE = 4 << 20

#: Processors, by the name of their maker, for which MKL has no AVX-512 kernels.
SLOW_IN_MKL = frozenset({"AuthenticAMD", "HygonGenuine"})


#: So are, on a CPU, sums of rows of several matrices that are longer than this: of 8 matrices of 768x3072, the BLAS
#: takes 2.4 ms where loops take 4.1; of 64 of 1536x256, 7.2 and 5.8.
LONG_ROWS = 512


@ROWS("aten::mm", fresh=True, shape=shapes.mm, trial=trials.MIXED)
def mm(emit: Emitter, out: Spec, self: Value, mat2: Value) -> Value:
    """A matrix by a matrix."""
    return _product(emit, out, self, mat2, None)


@ROWS("aten::addmm", fresh=True, shape=shapes.addmm, trial=trials.PRODUCT)
def addmm(emit: Emitter, out: Spec, self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """beta * self + alpha * (a matrix by a matrix)."""
    if self.rank != 1 or self.sizes != out.sizes[1:] or (beta, alpha) != (1, 1):
        return NotImplemented
    return _product(emit, out, mat1, mat2, self)


@ROWS("aten::bmm", fresh=True, shape=shapes.bmm, trial=trials.MIXED)
def bmm(emit: Emitter, out: Spec, self: Value, mat2: Value) -> Value:
    """A batch of matrices by another."""
    long = traits(out.device).host and mat2.strides[-1] == 1 and dimvalues.typical(mat2.sizes[-1]) > LONG_ROWS
    if not _in_loops(out, self, mat2) or long and self.sizes[-1] != 1:
        return NotImplemented
    return _by_loops(emit, out, self, mat2)


@ROWS("aten::mv", fresh=True, trial=trials.MIXED)
def mv(emit: Emitter, out: Spec, self: Value, vec: Value) -> Value:
    """A matrix by a vector."""
    if not _sums_in_loops(out):
        return NotImplemented
    return emit.reduce(out, self.spec, [1], "sum", lambda i: _times(self.at(i), vec.at(i[1:])), _exact(out.dtype))


def _product(emit: Emitter, out: Spec, left: Value, right: Value, bias: Value | None) -> Value:
    if not _in_loops(out, left, right):
        return _by_onednn(emit, out, left, right, bias)
    if bias is None:
        return _by_loops(emit, out, left, right)
    total = _by_loops(emit, replace(out, dtype=_exact(out.dtype)), left, right, out.dtype.itemsize < 4)
    return emit.pointwise(out, lambda i: build.cast(build.add(total.at(i), _wide(bias.broadcast(i))), out.dtype))


def _in_loops(out: Spec, left: Value, right: Value) -> bool:
    if not out.dtype.is_floating_point:
        return False
    length = left.sizes[-1]
    return length == 1 or 1 in (left.sizes[-2], right.sizes[-1]) and _sums_in_loops(out)


def _sums_in_loops(out: Spec) -> bool:
    """A CPU's library has instructions of its own for half types."""
    here = traits(out.device)
    return here.loops_of_vectors and out.dtype.is_floating_point and not (here.host and out.dtype.itemsize < 4)


def _by_loops(emit: Emitter, out: Spec, left: Value, right: Value, from_zero: bool = True) -> Value:
    """Sums of products, in the order in which the matrix lies in memory.

    `from_zero`: the sum of a single -0.0 is 0.0, as PyTorch's is but for matrices that are no vectors.
    """
    at = lambda i: _times(left.at(i[:-1]), right.at((*i[:-3], *i[-2:])))
    (*batch, rows, length), columns = left.sizes, right.sizes[-1]
    if length == 1:
        matrices = not batch and 1 not in (rows, columns) and out.dtype.itemsize >= 4 and on_host(out)
        zero = build.const(0, _exact(out.dtype))

        def product(i: Indices) -> Expr:
            term = at((*i[:-1], 0, i[-1]))
            return build.cast(build.add(term, zero) if from_zero and not matrices else term, out.dtype)

        return emit.pointwise(out, product)
    across = (*right.strides[:-2], 0, *right.strides[-2:])
    terms = Spec(out.dtype, out.device, (*batch, rows, length, columns), across if rows == 1 else (*left.strides, 0))
    return emit.reduce(out, terms, [len(batch) + 1], "sum", at, _exact(out.dtype))


def _times(a: Expr, b: Expr) -> Expr:
    return build.mul(_wide(a), _wide(b))


def _wide(value: Expr) -> Expr:
    return build.cast(value, _exact(value.dtype))


def _exact(dtype: torch.dtype) -> torch.dtype:
    """What sums are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _by_onednn(emit: Emitter, out: Spec, left: Value, right: Value, bias: Value | None) -> Value:
    """`left @ right + bias` as oneDNN's linear layer, whose weight is `right` transposed, in whatever layout."""
    if dimvalues.typical(dims.product((*left.sizes, out.sizes[1]))) < max(LARGE, 1):
        return NotImplemented
    if out.dtype is not torch.float32 or traits(out.device).convolutions != "oneDNN" or not faster_by_onednn():
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
