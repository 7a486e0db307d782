"""Fourier transforms with MKL on the CPU, and with cuFFT: the library's plan decides how a result is laid out.

What is not transformed comes first, in the order of its strides; then the transformed dimensions in the order in
which they are transformed. (`aten/src/ATen/native/mkl/SpectralOps.cpp`; meta kernels describe another library.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir.devices import on_gpu, on_host
from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.fake.rules.layout import filled

aten = torch.ops.aten
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_REAL = {made: real for real, made in _COMPLEX.items()}


def _known(x: torch.Tensor, dtypes: Any) -> bool:
    """Is it MKL's, and of sizes that are known?"""
    return torch.backends.mkl.is_available() and on_host(x) and x.dtype in dtypes and _plain(x)


def _plain(x: torch.Tensor) -> bool:
    strided = x.layout is torch.strided and all(type(n) is int for n in (*x.shape, *x.stride()))
    return strided and x.numel() > 0


def _by_stride(dims: Sequence[int], strides: Sequence[int]) -> list[int]:
    return sorted(dims, key=lambda d: -strides[d])


def _planned(sizes: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a result of those sizes; `strides` are the argument's."""
    return filled(sizes, [*_by_stride([d for d in range(len(sizes)) if d not in dims], strides), *dims])


def complex_to_complex(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    """cuFFT takes three dimensions at once, and plans as MKL does."""
    at_once = on_gpu(x) and len(dim) <= 3 and _plain(x)
    if not (at_once or _known(x, _REAL)) or not dim:
        return NotImplemented
    strides = _planned(x.shape, x.stride(), _by_stride([d % x.dim() for d in dim], x.stride()))
    return Spec(tuple(x.shape), strides, x.dtype, x.device)


def real_to_complex(x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    """The last dimension is transformed first of all and stays last."""
    if not (_known(x, _COMPLEX) or _alone(x, dim)) or not dim:
        return NotImplemented
    *others, last = (d % x.dim() for d in dim)
    sizes = list(x.shape)
    sizes[last] = sizes[last] // 2 + 1 if onesided else sizes[last]
    strides = _planned(sizes, x.stride(), [*_by_stride(others, x.stride()), last])
    return Spec(tuple(sizes), strides, _COMPLEX[x.dtype], x.device)


def _alone(x: torch.Tensor, dim: Sequence[int]) -> bool:
    """Does cuFFT transform real numbers along one dimension, which begin where complex ones may?"""
    known = on_gpu(x) and x.dtype in _COMPLEX and _plain(x)
    return known and len(dim) == 1 and x.storage_offset() % 2 == 0


def complex_to_real(x: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    """All but the last dimension are transformed in a first pass."""
    if not _known(x, _REAL) or not dim or type(last_dim_size) is not int:
        return NotImplemented
    *others, last = (d % x.dim() for d in dim)
    strides = _planned(x.shape, x.stride(), _by_stride(others, x.stride())) if others else x.stride()
    sizes = list(x.shape)
    sizes[last] = last_dim_size
    return Spec(tuple(sizes), _planned(sizes, strides, [last]), _REAL[x.dtype], x.device)
