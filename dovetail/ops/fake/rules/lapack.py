"""Results of LAPACK routines, which PyTorch's meta kernels believe to be row-major."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.ir.devices import on_host
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.fake.rules.layout import contiguous

aten = torch.ops.aten


def columns(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides of a batch of column-major matrices."""
    *batch, rows, width = sizes
    *outer, _, _ = contiguous((*batch, width, rows))
    return (*outer, 1, rows if not isinstance(rows, int) else max(rows, 1))


def svd(
    x: torch.Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Any:
    """Matrices column by column, as LAPACK writes them."""
    if not on_host(x) or x.dim() < 2 or not compute_uv:
        return NotImplemented
    *batch, rows, width = x.shape
    least = min(rows, width)
    left = (*batch, rows, rows if full_matrices else least)
    right = (*batch, width if full_matrices else least, width)
    real = x.dtype.to_real()
    values = (*batch, least)
    return (
        Spec(left, columns(left), x.dtype, x.device), Spec(values, contiguous(values), real, x.device),
        Spec(right, columns(right), x.dtype, x.device),
    )  # fmt: skip


def eig(x: torch.Tensor) -> Any:
    """Complex values, and vectors column by column."""
    if not on_host(x) or x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        return NotImplemented
    sizes = tuple(x.shape)
    dtype = x.dtype.to_complex()
    return (
        Spec(sizes[:-1], contiguous(sizes[:-1]), dtype, x.device), Spec(sizes, columns(sizes), dtype, x.device),
    )  # fmt: skip
