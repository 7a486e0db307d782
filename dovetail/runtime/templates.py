"""What launches of templates' kernels have in common: their arguments and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir.checks import CheckFailed
from dovetail.ir.kernel import Kernel
from dovetail.ir.loops import Buffer
from dovetail.ir.template import Template

Tensors = list[torch.Tensor]


def as_kernel(template: Template, device: torch.device, tables: int = 0) -> Kernel:
    """As loaders take it. `tables`: so many pointers follow those of the results."""
    count = len(template.strides) + len(template.results) + tables
    pointers = tuple(Buffer(f"p{k}", torch.uint8, device, (), (), 0, "input") for k in range(count))
    return Kernel(template.symbol, template.text, pointers, template.numbers, template.messages)


def caller(
    template: Template, device: torch.device, launch: Callable[..., Any], tables: tuple[torch.Tensor, ...] = ()
) -> Callable[[Sequence[torch.Tensor]], Tensors]:
    """Calls the loaded kernel and gives its results. Raises CheckFailed where one of its checks has."""
    strides, numbers, messages = template.strides, template.numbers, template.messages
    results: list[Any] = list(template.results)

    def call(given: Sequence[torch.Tensor]) -> Tensors:
        read = [t if t.stride() == s else _laid_out(t, s) for t, s in zip(given, strides, strict=True)]
        made = [result(r, device) for r in results]
        failed = launch(*(t.data_ptr() for t in (*read, *made, *tables)), *numbers)
        if failed and messages:
            raise CheckFailed(messages[failed - 1])
        return made

    return call


def result(made: Any, device: torch.device) -> torch.Tensor:
    """The memory for what a kernel gives."""
    found = torch.empty_strided(made.sizes, made.strides, dtype=made.type, device=device)
    return found.zero_() if made.zeroed else found


def _laid_out(tensor: torch.Tensor, strides: Any) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
