"""Collectives that write to what they are given, as functional ones whose result is copied there.

    dist.all_reduce(t)    ->    t.copy_(wait_tensor(all_reduce(t, "sum", name)))

With `async_op=True` nobody may read or write these tensors before the program waits. The graph waits where it reads
them, so its work is done whenever the program asks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import Work

Tensor = torch.Tensor
functional = torch.ops._c10d_functional


def all_reduce(tensor: Tensor, operation: str, name: str) -> None:
    tensor.copy_(functional.wait_tensor(functional.all_reduce(tensor, operation, name)))


def broadcast(tensor: Tensor, source: int, name: str) -> None:
    tensor.copy_(functional.wait_tensor(functional.broadcast(tensor, source, name)))


def all_gather_into_tensor(output: Tensor, input: Tensor, size: int, name: str) -> None:
    found = functional.wait_tensor(functional.all_gather_into_tensor(input, size, name))
    output.copy_(found.view(output.shape))


def reduce_scatter_tensor(output: Tensor, input: Tensor, operation: str, size: int, name: str) -> None:
    whole = input.view(size * output.shape[0], *output.shape[1:])
    output.copy_(functional.wait_tensor(functional.reduce_scatter_tensor(whole, operation, size, name)))


class FinishedWork:
    """In the place of the work of a collective that writes to `tensor`; `isinstance` takes it for one."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return Work

    def wait(self, timeout: Any = None) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def block_current_stream(self) -> None:
        pass

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[Tensor]:
        return [self.tensor]

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result([self.tensor])
        return future
