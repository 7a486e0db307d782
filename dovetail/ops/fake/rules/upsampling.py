"""Images of another size, where the size is symbolic: PyTorch computes it in C++, from plain integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dovetail.ops.fake.result_spec import Spec
from dovetail.ops.fake.rules.layout import channels_last, contiguous, in_channels, in_rows
from dovetail.ops.fake.symbolic.number import needed
from dovetail.ops.fake.symbolic.size_questions import hint

aten = torch.ops.aten
#: Factors with larger denominators are left alone: the product could be rounded to another integer.
LARGEST_DENOMINATOR = 1 << 12


def scaled(size: Any, factor: float) -> Any:
    """floor(size * factor), exactly."""
    above, below = float(factor).as_integer_ratio()
    if below > LARGEST_DENOMINATOR:
        raise needed()
    return size * above // below


def _resized(operator: Any, flags: int) -> Callable[..., Any]:
    """`f(image, sizes, *flags, factors)` by the operator that takes sizes and a factor for each dimension."""

    def call(image: torch.Tensor, sizes: Any, *rest: Any) -> Any:
        *given, factors = rest
        if len(given) != flags or factors is not None and not isinstance(factors, (list, tuple)):
            raise needed()
        if sizes is None:
            assert factors is not None
            sizes = [scaled(n, f) for n, f in zip(image.shape[2:], factors, strict=True)]
        return operator(image, list(sizes), *given, *(factors or [None] * len(sizes)))

    return call


#: Functions that are done here, by their own operators.
RESIZING: dict[Any, Callable[..., Any]] = {
    getattr(torch._C._nn, name): _resized(getattr(aten, name).default, flags)
    for name, flags in (
        ("upsample_nearest1d", 0), ("upsample_nearest2d", 0), ("upsample_nearest3d", 0),
        ("_upsample_nearest_exact1d", 0), ("_upsample_nearest_exact2d", 0), ("_upsample_nearest_exact3d", 0),
        ("upsample_linear1d", 1), ("upsample_bilinear2d", 1), ("upsample_trilinear3d", 1), ("upsample_bicubic2d", 1),
        ("_upsample_bilinear2d_aa", 1), ("_upsample_bicubic2d_aa", 1),
    )
}  # fmt: skip


def _interpolate(
    input: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:
    """`torch.nn.functional.interpolate`."""
    alike = torch.empty(list(map(hint, input.shape)), dtype=input.dtype, device="meta")
    torch.nn.functional.interpolate(
        alike, pytree.tree_map(hint, size), scale_factor, mode, align_corners, recompute_scale_factor, antialias
    )  # its checks
    rank = input.dim() - 2
    name = _MODES.get((mode, rank, antialias))
    if name is None or (size is None) == (scale_factor is None):
        raise needed()
    factors = scale_factor if scale_factor is None or isinstance(scale_factor, (list, tuple)) else [scale_factor] * rank
    sizes = size if size is None or isinstance(size, (list, tuple)) else [size] * rank
    if recompute_scale_factor:
        assert factors is not None
        sizes, factors = [scaled(n, f) for n, f in zip(input.shape[2:], factors, strict=True)], None
    flags = () if "nearest" in mode else (bool(align_corners),)
    return RESIZING[getattr(torch._C._nn, name)](input, sizes, *flags, factors)


_MODES: dict[tuple[str, int, bool], str] = {
    **{("nearest", rank, False): f"upsample_nearest{rank}d" for rank in (1, 2, 3)},
    **{("nearest-exact", rank, False): f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)},
    ("linear", 1, False): "upsample_linear1d", ("bilinear", 2, False): "upsample_bilinear2d",
    ("trilinear", 3, False): "upsample_trilinear3d", ("bicubic", 2, False): "upsample_bicubic2d",
    ("bilinear", 2, True): "_upsample_bilinear2d_aa", ("bicubic", 2, True): "_upsample_bicubic2d_aa",
}  # fmt: skip


def _max_pool1d(
    input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """`torch.nn.functional.max_pool1d` of rows as images of one row."""
    if input.dim() not in (2, 3) or return_indices:
        raise needed()
    given = kernel_size, stride, padding, dilation
    kernel, step, pad, apart = (value[0] if isinstance(value, (tuple, list)) else value for value in given)
    step = kernel if step is None else step
    image = torch.max_pool2d(input.unsqueeze(-2), (1, kernel), (1, step), (0, pad), (1, apart), ceil_mode)
    return image.squeeze(-2)


RESIZING[torch.nn.functional.interpolate] = _interpolate
RESIZING[torch.nn.functional.max_pool1d] = _max_pool1d


def interpolated(image: torch.Tensor, sizes: Any, *_: Any) -> Any:
    """Of linear interpolation in any dimension: the decompositions compute with plain sizes."""
    return _laid_out(image, (*image.shape[:2], *sizes))


def interpolated_backward(gradient: torch.Tensor, sizes: Any, image: Any, *_: Any) -> Any:
    """The gradient of an image of these sizes."""
    return _laid_out(gradient, tuple(image))


def nearest_backward(gradient: torch.Tensor, sizes: Any, image: Any, *_: Any) -> Any:
    """The same of the nearest elements. In three dimensions it is in rows whatever the gradient is."""
    if gradient.dim() == 5:
        return Spec(tuple(image), contiguous(tuple(image)), gradient.dtype, gradient.device)
    return interpolated_backward(gradient, sizes, image)


def _laid_out(like: torch.Tensor, sizes: tuple) -> Any:
    if in_rows(like):
        strides = contiguous(sizes)
    elif like.dim() > 3 and in_channels(like):
        strides = channels_last(sizes)
    else:
        return NotImplemented
    return Spec(sizes, strides, like.dtype, like.device)
