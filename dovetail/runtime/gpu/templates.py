"""Launches of kernels that templates have written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import torch

from dovetail.ir.devices import GPU
from dovetail.ir.kernel import GpuLaunch, Kernel
from dovetail.ir.loops import Buffer
from dovetail.ir.template import Result, Template, template_of
from dovetail.runtime.gpu.loading import available, compiled, load

Tensors = list[torch.Tensor]
_ready: dict[tuple[str, torch.device], Callable[[Sequence[torch.Tensor]], Tensors]] = {}
_begun: dict[str, Future[None]] = {}  # by symbol
_POOL = ThreadPoolExecutor(4)


def begin(code: str, device: torch.device) -> None:
    """Let the kernel be compiled while Python goes on."""
    template = template_of(code)
    if device.type == GPU and not available(device) and template.symbol not in _begun:
        _begun[template.symbol] = _POOL.submit(compiled, kernel_of(template, device), device)


def run(given: Sequence[torch.Tensor], code: str) -> Tensors:
    """The results. The kernel is compiled in the first call, and found on disk by later processes."""
    device = given[0].device
    call = _ready.get((code, device))
    if call is None:
        call = _ready[code, device] = _callable(template_of(code), device)
    return call(given)


def kernel_of(template: Template, device: torch.device) -> Kernel:
    """As `runtime.gpu.loading` takes it."""
    pointers = tuple(Buffer(f"p{k}", torch.uint8, device, (), (), 0, "input") for k in range(len(template.arguments)))
    launch = GpuLaunch(template.arguments, template.warps, checked=template.checked, stages=template.stages)
    return Kernel(template.symbol, template.text, pointers, (template.programs,), launch=launch)


def _callable(template: Template, device: torch.device) -> Callable[[Sequence[torch.Tensor]], Tensors]:
    begun = _begun.pop(template.symbol, None)
    if begun is not None:
        wait([begun])  # where it has failed, it will again
    launch = load([kernel_of(template, device)], device)[template.symbol]
    table = torch.tensor(template.table, dtype=torch.int32, device=device)
    strides, programs = template.strides, template.programs

    def call(given: Sequence[torch.Tensor]) -> Tensors:
        read = [t if t.stride() == s else _laid_out(t, s) for t, s in zip(given, strides, strict=True)]
        made = [result(r, device) for r in template.results]
        launch(*(t.data_ptr() for t in (*read, *made, table)), programs)
        return made

    return call


def result(made: Result, device: torch.device) -> torch.Tensor:
    """The memory for what a kernel gives."""
    found = torch.empty_strided(made.sizes, made.strides, dtype=made.type, device=device)
    return found.zero_() if made.zeroed else found


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
