"""A program's calls of cuBLAS, cuDNN and attention, each made once on zeros while Triton compiles its kernels.

The first call of a kind takes far longer than its work: the libraries start, choose a kernel for the sizes and load its
code. Whoever compiles only waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dovetail.ir import dimvalues
from dovetail.ir.dims import Dim, Poly
from dovetail.ir.liveness import reads, references
from dovetail.ir.loops import Buffer, BufferRef, LibraryCall, Param, Program

#: What may run on zeros, and takes long to start.
_REHEARSED = frozenset(
    """mm addmm bmm baddbmm convolution convolution_backward cudnn_convolution_relu cudnn_convolution_add_relu
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward""".split()
)
#: A call takes at most this part of the device's free memory.
_MODEST = 1 / 8


def warm_up(program: Program, device: torch.device, place: Callable[[], AbstractContextManager[None]]) -> None:
    """In `place`, where the program will run; modes are as before. What fails is left for the program to meet."""
    calls = list(distinct(program, device))
    if not calls or torch.cuda.is_current_stream_capturing():
        return
    with torch.cuda.device(device), torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast():
        with _disable_current_modes(), place():
            free, _ = torch.cuda.mem_get_info(device)
            for call in calls:
                if size(call) <= free * _MODEST:
                    once(call)


def once(call: LibraryCall) -> None:
    try:
        call.operator(*_given(call.args), **_given(dict(call.kwargs)))
    except RuntimeError:  # out of memory, or what the program will be told of
        return


def distinct(program: Program, device: torch.device) -> Iterator[LibraryCall]:
    """Calls of libraries on the device, one of those that look alike."""
    seen = set()
    for item in program.items:
        if not isinstance(item, LibraryCall) or getattr(item.operator, "_opname", "") not in _REHEARSED or _draws(item):
            continue
        key = item.operator, _looks(item.args), _looks(tuple(sorted(item.kwargs.items())))
        if key not in seen and {b.device for b in reads(item).values()} == {device}:
            seen.add(key)
            yield item


def _draws(call: LibraryCall) -> bool:
    """Attention with dropout: it advances the generator, and its gradient reads seeds in the CPU's memory."""
    named = dict(zip((a.name for a in call.operator._schema.arguments), call.args, strict=False)) | dict(call.kwargs)
    return named.get("dropout_p", 0.0) != 0.0


def size(call: LibraryCall) -> int:
    """Bytes of the call's arguments."""
    return sum(_extent(b) * b.dtype.itemsize for b in references((call.args, dict(call.kwargs))))


def _looks(value: Any) -> Any:
    """What tells calls apart: sizes and strides, not which memory."""
    if isinstance(value, BufferRef):
        b = value.buffer
        return b.dtype, b.sizes, b.strides
    return tuple(map(_looks, value)) if isinstance(value, (tuple, list)) else repr(value)


def _given(value: Any) -> Any:
    """The arguments: zeros, and sizes as they typically are. Raises RuntimeError for a number that only calls know."""
    if isinstance(value, Param):
        raise RuntimeError(f"{value.name} is not known yet")
    if isinstance(value, BufferRef):
        b = value.buffer
        memory = torch.zeros(_extent(b), dtype=b.dtype, device=b.device)
        return memory.as_strided(_ints(b.sizes), _ints(b.strides))
    if isinstance(value, (tuple, list)):
        return type(value)(map(_given, value))
    if isinstance(value, dict):
        return {name: _given(inner) for name, inner in value.items()}
    return dimvalues.typical(value) if isinstance(value, Poly) else value


def _ints(values: tuple[Dim, ...]) -> list[int]:
    return [dimvalues.typical(v) for v in values]


def _extent(buffer: Buffer) -> int:
    """Elements of memory from the first of the tensor to its last."""
    sizes = _ints(buffer.sizes)
    return 1 + sum((n - 1) * s for n, s in zip(sizes, _ints(buffer.strides), strict=True)) if all(sizes) else 0
