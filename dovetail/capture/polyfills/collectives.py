"""Collectives that write to what they are given, as functional ones whose result is copied there.

    dist.all_reduce(t)    ->    t.copy_(wait_tensor(all_reduce(t, "sum", name)))
"""

from __future__ import annotations

import torch

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
