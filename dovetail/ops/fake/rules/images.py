"""Convolutions, batch norm, pooling, padding: where the memory format of images is decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dovetail.ir.devices import GPU, HOST, on_gpu, on_host
from dovetail.ops.fake.result_spec import Spec, fresh, in_one_piece
from dovetail.ops.fake.rules.layout import (
    channels_last,
    contiguous,
    elementwise_strides,
    strides_suggest_channels_last,
)
from dovetail.ops.fake.symbolic.size_questions import all_same, empty, general, same

aten = torch.ops.aten


def suggests_channels_last(t: torch.Tensor) -> bool:
    """`at::suggest_memory_format`: the strides' order decides, ambiguous ones count as contiguous."""
    return strides_suggest_channels_last(t.shape, t.stride())


def image(sizes: tuple, like: torch.Tensor, last: bool | None = None) -> Spec:
    """A result in the memory format that `like` suggests, or as told."""
    last = suggests_channels_last(like) if last is None else last
    return fresh(sizes, channels_last(sizes) if last and len(sizes) in (4, 5) else contiguous(sizes), like)


def batch_norm_eval(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, *_: Any) -> Any:
    """Inference: the statistics come back empty; on a GPU they are the running ones."""
    if _image_on_gpu(x) and mean is not None:
        return image(tuple(x.shape), x), *_wide_statistics(x)
    if x.layout is not torch.strided or not on_host(x):
        return NotImplemented
    nothing = Spec((0,), (1,), (mean if mean is not None else x).dtype, x.device)
    return image(tuple(x.shape), x), nothing, nothing


def batch_norm(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> Any:
    """The image in its memory format; in training, with two statistics a channel."""
    if not training:
        return batch_norm_eval(x, weight, bias, mean, var)
    if _image_on_gpu(x):
        return image(tuple(x.shape), x), *_wide_statistics(x)
    if x.layout is not torch.strided or not on_host(x) or not x.dtype.is_floating_point:
        return NotImplemented
    wide = any(t is not None and t.dtype is torch.float32 for t in (weight, bias, mean, var))
    statistic = Spec((x.shape[1],), (1,), torch.float32 if wide else x.dtype, x.device)
    return image(tuple(x.shape), x), statistic, statistic


def _image_on_gpu(x: torch.Tensor) -> bool:
    """Does it lie as its own memory format says? Then the result does, whichever of the GPU's functions computes it."""
    if not on_gpu(x) or x.layout is not torch.strided or not x.dtype.is_floating_point:
        return False
    return all_same(x.stride(), image(tuple(x.shape), x).strides)


def _wide_statistics(x: torch.Tensor) -> tuple[Spec, Spec]:
    wide = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    return (Spec((x.shape[1],), (1,), wide, x.device),) * 2


def batch_norm_cudnn(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> Any:
    """As `batch_norm`, without statistics in inference, and with what cuDNN keeps for a backward pass."""
    found = batch_norm(x, weight, bias, mean, var, training, *rest)
    if found is NotImplemented:
        return found
    statistics = found[1:] if training else (Spec((0,), (1,), weight.dtype, x.device),) * 2
    return found[0], *statistics, Spec((0,), (1,), torch.uint8, x.device)


def batch_norm_alone(x: torch.Tensor, weight: Any, bias: Any, training: bool, *rest: Any) -> Any:
    """Without running statistics the batch's own serve, whether it trains or not."""
    return batch_norm(x, weight, bias, None, None, True, *rest)


def batch_norm_update(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    """With a fourth result of no bytes on the CPU, kept for a backward pass on other devices."""
    found = batch_norm(x, weight, bias, mean, var, True, *rest)
    if on_gpu(x) and x.layout is torch.strided:
        found = image(tuple(x.shape), x), *_wide_statistics(x)
    if found is NotImplemented:
        return found
    return *found, Spec((0,), (1,), torch.uint8, x.device), *(fresh(tuple(t.shape), (1,), t) for t in (mean, var))


def batch_norm_updating(*args: Any) -> Any:
    """The running statistics are written to: no results."""
    found = batch_norm_update(*args)
    return found if found is NotImplemented else found[:4]


def batch_norm_functional(
    x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
) -> Any:
    """As `batch_norm`, and new running statistics."""
    found = batch_norm(x, weight, bias, mean, var, training, *rest)
    if found is NotImplemented:
        return found
    return *found, *(fresh(tuple(t.shape), (1,), t) for t in (mean, var))


def group_norm(
    x: torch.Tensor, weight: Any, bias: Any, batch: Any, channels: Any, pixels: Any, groups: int, eps: float
) -> Any:
    """The image, and two statistics for each group of each sample."""
    if not on_host(x) or x.dtype is not torch.float32 or (weight is not None and weight.dtype != x.dtype):
        return NotImplemented
    if x.layout is not torch.strided or x.dim() < 2 or channels % groups:
        return NotImplemented
    statistic = Spec((batch, groups), (groups, 1), x.dtype, x.device)
    return image(tuple(x.shape), x), statistic, statistic


def convolution(
    x: torch.Tensor, w: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:
    """PyTorch says which of its kernels would run, and with which format."""
    rank = x.dim()
    if rank not in (3, 4, 5) or w.dim() != rank or x.dtype not in _CONVOLVED.get(x.device.type, ()):
        return NotImplemented
    channels, features = (w.shape[0], w.shape[1] * groups) if transposed else (w.shape[1] * groups, w.shape[0])
    if x.shape[1] != channels or x.dtype != w.dtype or x.layout is not torch.strided or empty(x.shape):
        return NotImplemented
    stride, padding, dilation, extra = each_dimension(rank - 2, stride, padding, dilation, output_padding)
    spatial: list = []
    for k in range(rank - 2):
        reach = dilation[k] * (w.shape[k + 2] - 1)
        if transposed:
            spatial.append((x.shape[k + 2] - 1) * stride[k] - 2 * padding[k] + reach + extra[k] + 1)
        else:
            spatial.append((x.shape[k + 2] + 2 * padding[k] - reach - 1) // stride[k] + 1)
    if any(s <= 0 for s in spatial):
        return NotImplemented
    sizes = (x.shape[0], features, *spatial)
    if rank > 3:
        return image(sizes, x, _computed_last(x, w, bias, stride, padding, dilation, transposed, extra, groups, None))
    return _line(sizes, x, _rows_last(x, w, bias, stride, padding, dilation, transposed, extra, groups, None))


def _rows_last(
    x: torch.Tensor, w: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    extra: Any, groups: int, bias_sizes: Any,
) -> bool:
    """Are the images of one row that PyTorch makes of lines computed with the channels last?"""
    image, kernel = _as_row(x, contiguous(x.shape)), _as_row(w, w.stride())
    row = [1, *stride], [0, *padding], [1, *dilation], transposed, [0, *extra], groups, bias_sizes
    return _computed_last(image, kernel, bias, *row)


def _line(sizes: tuple, like: torch.Tensor, last: bool) -> Spec:
    return fresh(sizes, channels_last((*sizes, 1))[:3] if last else contiguous(sizes), like)


def _as_row(line: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
    """A line with these strides as an image of one row, in plain sizes."""
    (batch, features, length), (*steps, step) = (list(map(general, n)) for n in (line.shape, strides))
    sizes = batch, features, 1, length
    return type(line)(sizes, (*steps, step * length, step), line.dtype, line.device, 0, line.requires_grad)


def each_dimension(count: int, *numbers: Any) -> list[list]:
    """One number counts for all dimensions of an image."""
    return [list(v) * count if len(v) == 1 else list(v) for v in numbers]


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
#: What each device convolves by kernels of several memory formats.
_CONVOLVED = {HOST.type: (*_FLOATS, *_INTEGERS), GPU: _FLOATS}


def backend(x: torch.Tensor, w: torch.Tensor, *rest: Any) -> Any:
    """Which of its kernels PyTorch gives a convolution to."""
    return torch._C._select_conv_backend(typical(x), typical(w), *rest)


def _computed_last(x: torch.Tensor, w: torch.Tensor, *rest: Any) -> bool:
    """Does the kernel that a convolution is given to compute with the channels last?"""
    found = torch._C._conv_determine_backend_memory_format(typical(x), typical(w), backend(x, w, *rest))
    return bool(found is not torch.contiguous_format)


def convolution_backward(
    gradient: torch.Tensor, x: torch.Tensor, w: torch.Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Any,
) -> Any:
    """Gradients of image and weight in the format that both are computed in; not all meta kernels know it."""
    rank, floats = x.dim(), x.dtype == w.dtype == gradient.dtype and x.dtype in _FLOATS
    if rank not in (3, 4, 5) or w.dim() != rank or not floats or empty(x.shape) or x.device.type not in _CONVOLVED:
        return NotImplemented
    stride, padding, dilation, extra = each_dimension(rank - 2, stride, padding, dilation, output_padding)
    computed_last, laid_out = (_rows_last, _line) if rank == 3 else (_computed_last, image)
    last = computed_last(x, w, None, stride, padding, dilation, transposed, extra, groups, bias_sizes)
    features = w.shape[1] * groups if transposed else w.shape[0]
    found = laid_out(tuple(x.shape), x, last), laid_out(tuple(w.shape), w, last), fresh((features,), (1,), w)
    return tuple(value if wanted else None for value, wanted in zip(found, mask, strict=True))


def typical(x: torch.Tensor) -> torch.Tensor:
    """A tensor of plain sizes for questions about kernels: itself, or what it looks like in most calls."""
    if not x._has_symbolic_sizes_strides:
        return x
    strides = tuple(map(general, x.stride()))
    return type(x)(tuple(map(general, x.shape)), strides, x.dtype, x.device, 0, x.requires_grad)


def nearest(x: torch.Tensor, sizes: Any, *_: Any) -> Any:
    """Of an empty batch, whose numbers of elements the meta kernels check as if they were truths."""
    if not empty(x.shape[:1]):
        return NotImplemented
    return image((*x.shape[:2], *sizes), x)


def replication_pad2d(x: torch.Tensor, padding: Any) -> Any:
    """In the image's memory format."""
    if x.dim() != 4 or empty(x.shape):
        return NotImplemented
    left, right, top, bottom = padding
    sizes = (x.shape[0], x.shape[1], x.shape[2] + top + bottom, x.shape[3] + left + right)
    last = None if on_host(x) else False
    return NotImplemented if any(s < 1 for s in sizes) else image(sizes, x, last)


def roll(x: torch.Tensor, shifts: Any, dims: Any = ()) -> Any:
    """Along one dimension the parts are concatenated, so the format that they suggest holds."""
    if len(shifts) != 1 or len(dims) != 1 or x.dim() != 4 or empty(x.shape):
        return NotImplemented
    return image(tuple(x.shape), x)


def cat(tensors: Any, dim: int = 0) -> Any:
    """The format that all parts suggest, else contiguous."""
    first = tensors[0]
    rank = first.dim()
    if not rank or not -rank <= dim < rank or any(t.dim() != rank or t.dtype != first.dtype for t in tensors):
        return NotImplemented
    dim %= rank
    sizes = list(first.shape)
    total: Any = 0
    for t in tensors:
        if t.layout is not torch.strided or t.device != first.device:
            return NotImplemented
        shape = t.shape
        if any(not same(shape[d], sizes[d]) and shape[d] != sizes[d] for d in range(rank) if d != dim):
            return NotImplemented
        total = total + shape[dim]
    sizes[dim] = total
    return image(tuple(sizes), first, all(map(suggests_channels_last, tensors)))


def max_unpool2d(x: torch.Tensor, indices: torch.Tensor, output_size: Any) -> Any:
    """In the memory format that the image suggests."""
    fits = x.dim() in (3, 4) and all_same(indices.shape, x.shape) and len(output_size) == 2 and not empty(x.shape[1:])
    if not fits or x.layout is not torch.strided or not on_host(x) or indices.dtype is not torch.int64:
        return NotImplemented
    return image((*x.shape[:-2], *output_size), x)


def like_image(gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> Any:
    """The gradient of a padded image, in the image's memory format."""
    if x.dim() != 4 or x.layout is not torch.strided or not on_host(x):
        return NotImplemented
    return image(tuple(x.shape), x)


def reflection_pad2d(x: torch.Tensor, padding: Any) -> Any:
    """In the image's memory format."""
    left, right, top, bottom = padding
    height, width = x.shape[-2:]
    fits = all(type(n) is int for n in (height, width, *padding)) and max(left, right) < width > 0
    if x.dim() != 4 or not fits or max(top, bottom) >= height or x.layout is not torch.strided:
        return NotImplemented
    if not on_host(x) or empty(x.shape) or height + top + bottom < 1 or width + left + right < 1:
        return NotImplemented
    return image((*x.shape[:-2], height + top + bottom, width + left + right), x)


def pixel_shuffle(x: torch.Tensor, factor: int) -> Any:
    """Channels become pixels, in the image's memory format."""
    if x.dim() != 4 or x.layout is not torch.strided or not on_host(x) or factor < 1:
        return NotImplemented
    batch, channels, height, width = x.shape
    if channels % (factor * factor) or empty(x.shape):
        return NotImplemented
    return image((batch, channels // (factor * factor), height * factor, width * factor), x)


def pixel_unshuffle(x: torch.Tensor, factor: int) -> Any:
    """Of views and a copy on a GPU."""
    if x.dim() != 4 or not on_gpu(x) or factor < 1:
        return NotImplemented
    height, width = x.shape[-2:]
    if height % factor or width % factor or empty(x.shape):
        return NotImplemented
    return image((x.shape[0], x.shape[1] * factor * factor, height // factor, width // factor), x, False)


def dropout_backward(gradient: torch.Tensor, mask: torch.Tensor, scale: Any) -> Any:
    """On a GPU in the memory format that the gradient suggests."""
    sizes = tuple(gradient.shape)
    if gradient.layout is not torch.strided or not all_same(mask.shape, sizes):
        return NotImplemented
    if on_gpu(gradient):
        return image(sizes, gradient)
    dtype = torch.promote_types(gradient.dtype, mask.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()  # that of the scale
    return Spec(sizes, elementwise_strides(sizes, (gradient, mask)), dtype, gradient.device)


def channel_shuffle(x: torch.Tensor, groups: int) -> Any:
    """In the image's memory format."""
    fits = x.dim() == 4 and x.layout is torch.strided and on_host(x) and not empty(x.shape)
    if not fits or groups < 1 or x.shape[1] % groups:
        return NotImplemented
    return image(tuple(x.shape), x)


def batch_norm_backward(gradient: torch.Tensor, x: torch.Tensor, weight: Any, *rest: Any) -> Any:
    """The image's gradient, and those of weight and bias, in one piece each."""
    mask = rest[-1]
    plain = on_host(x) and x.layout is torch.strided or _image_on_gpu(x)
    if not plain or gradient.dtype != x.dtype or weight is None and any(mask[1:]):
        return NotImplemented
    parts = fresh((x.shape[1],), (1,), weight) if weight is not None else None
    return image(tuple(x.shape), x) if mask[0] else None, *(parts if wanted else None for wanted in mask[1:])


def grid_sample(x: torch.Tensor, grid: torch.Tensor, *_: Any) -> Any:
    """Images of the grid's size."""
    return in_one_piece((*x.shape[:2], *grid.shape[1:-1]), x)


def grid_sample_backward(gradient: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, *rest: Any) -> Any:
    """Gradients of image and grid, in rows."""
    of_image, of_grid = rest[-1]
    if not (of_image and of_grid):
        return NotImplemented
    return in_one_piece(x.shape, x), in_one_piece(grid.shape, grid)
