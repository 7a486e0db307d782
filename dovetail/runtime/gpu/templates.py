"""Launches of kernels that templates have written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import torch

from dovetail.ir.devices import GPU
from dovetail.ir.kernel import Kernel
from dovetail.ir.stores import Store
from dovetail.ir.template import Numbers, Template, template_of
from dovetail.runtime.gpu.loading import available, compiled, load
from dovetail.runtime.templates import Tensors, as_kernel, caller

_ready = Store(256)  # what calls a template's kernel, by the template, its sizes and the device
_begun: dict[str, Future[None]] = {}  # by symbol
_POOL = ThreadPoolExecutor(4)


def begin(template: Template, device: torch.device) -> None:
    """Let the kernel be compiled while Python goes on."""
    if device.type == GPU and not available(device) and template.symbol not in _begun:
        _begun[template.symbol] = _POOL.submit(compiled, kernel_of(template, device), device)


def run(given: Sequence[torch.Tensor], code: str, sizes: Numbers) -> Tensors:
    """The results. The kernel is compiled in the first call, and found on disk by later processes."""
    device = given[0].device
    call = _ready.recall((code, sizes, device))
    if call is None:
        call = _ready.keep((code, sizes, device), _callable(template_of(code, sizes), device))
    found: Tensors = call(given)
    return found


def kernel_of(template: Template, device: torch.device) -> Kernel:
    """As `runtime.gpu.loading` takes it."""
    return dataclasses.replace(as_kernel(template, device, tables=1), launch=template.launch)


def _callable(template: Template, device: torch.device) -> Callable[[Sequence[torch.Tensor]], Tensors]:
    begun = _begun.pop(template.symbol, None)
    if begun is not None:
        wait([begun])  # where it has failed, it will again
    launch = load([kernel_of(template, device)], device)[template.symbol]
    table = torch.tensor(template.table, dtype=torch.int32, device=device)
    return caller(template, device, launch, (table,))
