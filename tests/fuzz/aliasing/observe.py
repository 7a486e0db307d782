"""What can be seen of every tensor within a caller's reach, as plain data that two runs can be compared by.

Tensors are numbered in the order in which they are met, and so are the memories that they lie in: `is`, shared memory
and who is a view of whom come out as equal numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

ENGINES = dict.fromkeys(("version", "strides", "is_view", "base", "memory"))


class Universe:
    """All tensors met on one side; each is kept alive, so that no other gets its id or its memory."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.memories: dict[int, tuple[int, int]] = {}  # of a storage: its number, where offsets in it count from
        self.keep: list[Any] = []

    def number(self, tensor: torch.Tensor) -> int:
        if id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = len(self.numbers)
            self.keep += [tensor, tensor.untyped_storage()]
        return self.numbers[id(tensor)]

    def memory(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """(which, bytes from the place of the first tensor met there)."""
        if not tensor.numel():
            return None
        storage = tensor.untyped_storage()
        place = tensor.data_ptr() - storage.data_ptr()
        if storage._cdata not in self.memories:
            self.memories[storage._cdata] = (len(self.memories), place)
            self.keep.append(storage)
        number, start = self.memories[storage._cdata]
        return number, place - start

    def seen(self, value: Any, made: Any = ()) -> list[dict[str, Any]]:
        """`made` are gradients and the like: how PyTorch's engine came by them is its own business."""
        theirs = [self.look(t, False) for t in tensors(made)]
        return [*(self.look(t) for t in tensors(value)), *({**seen, **ENGINES} for seen in theirs)]

    def look(self, tensor: torch.Tensor, memory: bool = True) -> dict[str, Any]:
        """`memory`: is the one that the tensor lies in counted?"""
        history = _asked(tensor, "grad_fn")  # PyTorch refuses to rebuild that of some views
        leaf = not isinstance(history, str) and tensor.is_leaf
        grad = tensor.grad if leaf or not isinstance(history, str) and tensor.retains_grad else None
        base = tensor._base
        return {
            "object": self.number(tensor), "class": type(tensor).__name__, "dtype": tensor.dtype,
            "shape": tuple(tensor.shape), "strides": steps(tensor), "memory": self.memory(tensor) if memory else None,
            "requires_grad": tensor.requires_grad, "is_leaf": leaf,
            "grad_fn": history if isinstance(history, str) else history is not None, "is_view": tensor._is_view(),
            "base": self.numbers.get(id(base)) if base is not None else None, "version": tensor._version,
            "values": tensor.detach().clone() if held(tensor) else None,
            "grad": None if grad is None else grad.detach().clone(),
            "grad requires grad": grad is not None and grad.requires_grad,
            "grad memory": grad is not None and grad.untyped_storage()._cdata in self.memories,
        }  # fmt: skip


def _asked(tensor: torch.Tensor, name: str) -> Any:
    try:
        return getattr(tensor, name)
    except RuntimeError as error:
        return f"raises {type(error).__name__}"


def held(tensor: torch.Tensor) -> bool:
    """Is all of it in its storage? `out=` that cannot be made longer leaves a tensor that is longer than its memory."""
    last = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return not tensor.numel() or (last + 1) * tensor.itemsize <= tensor.untyped_storage().nbytes()


def steps(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The strides that are ever used."""
    if not tensor.numel():
        return None
    return tuple(s if n > 1 else 0 for s, n in zip(tensor.stride(), tensor.shape, strict=True))


def tensors(value: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.nn.Module):
            yield from leaf.parameters()
            yield from leaf.buffers()
        elif isinstance(leaf, torch.Tensor):
            yield leaf


def difference(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> tuple[str, str] | None:
    """(kind, words) of the first place where two lists of tensors differ."""
    if len(ours) != len(theirs):
        return "count", f"{len(ours)} tensors, eager {len(theirs)}"
    for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        for name, value in other.items():
            if name == "grad_fn" and isinstance(value, str):
                continue  # a history that PyTorch refuses to rebuild is nobody's
            found = mine[name]
            if name == "grad" and _outlived(other) and found is not None and found.numel() == value.numel():
                found = found.view(value.shape)
            if not _same(found, value):
                return name, f"{name} of tensor {k} is {mine[name]}, eager's {value}"
    return None


def _outlived(seen: dict[str, Any]) -> bool:
    """Has the gradient the shape that its leaf had before?

    Reshaping a leaf in place leaves the engine's node for it as it is while any result of it lives (docs/numerics.md).
    """
    return seen["grad"] is not None and seen["grad"].shape != seen["shape"]


def _same(mine: Any, other: Any) -> bool:
    if not isinstance(mine, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(type(mine) is type(other) and mine == other)
    if mine.shape != other.shape or mine.dtype != other.dtype:
        return False
    slack = 1e-4 * max(1.0, float(other.double().abs().max())) if other.numel() else 0.0
    return torch.allclose(mine.double(), other.double(), rtol=0, atol=slack, equal_nan=True)
