"""Launches of kernels that templates have written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dovetail.ir.stores import Store
from dovetail.ir.template import Numbers, Template, template_of
from dovetail.runtime.cpu import loading
from dovetail.runtime.templates import Tensors, as_kernel, caller

_ready = Store(256)  # what calls a template's kernel, by the template and its sizes


def begin(template: Template, device: torch.device) -> None:
    """Let the kernel be compiled while Python goes on."""
    loading.begin([as_kernel(template, device)])


def run(given: Sequence[torch.Tensor], code: str, sizes: Numbers) -> Tensors:
    """The results. The kernel is compiled in the first call, and found on disk by later processes."""
    call = _ready.recall((code, sizes))
    if call is None:
        template, device = template_of(code, sizes), given[0].device
        launch = loading.load([as_kernel(template, device)])[template.symbol]
        call = _ready.keep((code, sizes), caller(template, device, launch))
    found: Tensors = call(given)
    return found
