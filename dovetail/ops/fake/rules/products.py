"""Matrix products, and results of LAPACK routines."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.devices import on_host
from dovetail.ops.fake.result_spec import Spec, fresh, in_one_piece
from dovetail.ops.fake.rules.elementwise import common_device
from dovetail.ops.fake.rules.layout import contiguous, is_one
from dovetail.ops.fake.rules.view_rules import expand
from dovetail.ops.fake.symbolic.size_questions import all_same, empty, same


def _simple(operands: tuple) -> bool:
    """Complex numbers and sparse layouts are left to PyTorch."""
    return all(
        not isinstance(o, torch.Tensor) or (o.layout is torch.strided and not o.dtype.is_complex) for o in operands
    )


def _matrix(a: torch.Tensor, b: torch.Tensor, sizes: tuple) -> Any:
    if not _simple((a, b)) or a.dtype != b.dtype:
        return NotImplemented
    return Spec(sizes, contiguous(sizes), a.dtype, common_device([a, b]))


def mm(a: torch.Tensor, b: torch.Tensor, dtype: Any = None) -> Any:
    """Two matrices of one type. Raises eager's error for sizes that do not fit."""
    if dtype is not None or a.dim() != 2 or b.dim() != 2:
        return NotImplemented
    if not same(a.shape[1], b.shape[0]) and a.shape[1] != b.shape[0]:  # meta kernels say it in other words
        shapes = " and ".join("x".join(map(str, t.shape)) for t in (a, b))
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({shapes})")
    return _matrix(a, b, (a.shape[0], b.shape[1]))


def addmm(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dtype: Any = None, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    """As `mm`, where what is added can be expanded."""
    if dtype is not None or c.dtype != a.dtype or a.dim() != 2 or b.dim() != 2:
        return NotImplemented
    made = mm(a, b)
    sizes = a.shape[0], b.shape[1]
    pairs = zip(c.shape[::-1], sizes[::-1], strict=False)
    if c.dim() > 2 or any(not same(x, y) and not is_one(x) and x not in (1, y) for x, y in pairs):
        expand(c, sizes)  # the meta kernel raises nothing
    return made


def bmm(a: torch.Tensor, b: torch.Tensor, dtype: Any = None) -> Any:
    """Batches of matrices."""
    if dtype is not None or a.dim() != 3 or b.dim() != 3 or not all_same((a.shape[0], a.shape[2]), b.shape[:2]):
        return NotImplemented
    sizes = a.shape[0], a.shape[1], b.shape[2]
    if a.dtype != b.dtype and empty((*sizes, a.shape[2])):  # eager has taken it by now (`eager_trials.py`)
        return in_one_piece(sizes, b)
    return _matrix(a, b, sizes)


# ---------------------------------------------------------------- LAPACK


def columns(sizes: tuple) -> tuple:
    """Strides of a batch of column-major matrices."""
    *batch, rows, width = sizes
    *outer, _, _ = contiguous((*batch, width, rows))
    return (*outer, 1, rows if not isinstance(rows, int) else max(rows, 1))


def svd(x: torch.Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """Matrices column by column, as LAPACK writes them; PyTorch's meta kernels believe that they are row-major."""
    if not on_host(x) or x.dim() < 2 or not compute_uv:
        return NotImplemented
    *batch, rows, width = x.shape
    least = min(rows, width)
    left = (*batch, rows, rows if full_matrices else least)
    right = (*batch, width if full_matrices else least, width)
    return (
        fresh(left, columns(left), x), in_one_piece((*batch, least), x, x.dtype.to_real()),
        fresh(right, columns(right), x),
    )  # fmt: skip


def eig(x: torch.Tensor) -> Any:
    """Complex values, and vectors column by column."""
    if not on_host(x) or x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        return NotImplemented
    sizes, dtype = tuple(x.shape), x.dtype.to_complex()
    return in_one_piece(sizes[:-1], x, dtype), Spec(sizes, columns(sizes), dtype, x.device)
