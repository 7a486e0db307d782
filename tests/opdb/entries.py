"""What is tested: operators of PyTorch's database, dtypes, sample inputs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.databases import load

INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
HALVES = (torch.bfloat16, torch.float16)
DEVICE = os.environ.get("OPDB_DEVICE", "cpu")  # where the samples lie; workers inherit it


def database() -> list[Any]:
    """`op_db`."""
    common_methods_invocations = load("common_methods_invocations")
    # The database wraps random operators to seed themselves, with machinery that is no user's code; `stages` seeds.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return list(common_methods_invocations.op_db)


@dataclass(frozen=True)
class Entry:
    """One row of the table of results: an operator with one dtype."""

    op: Any
    dtype: torch.dtype

    @property
    def name(self) -> str:
        return f"{self.op.formatted_name}[{str(self.dtype).removeprefix('torch.')}]"


@dataclass(frozen=True)
class Case:
    """One call: `fn(*args, **kwargs)` with tensors anywhere inside. `label` tells cases of an entry apart."""

    label: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: type[BaseException] | None = None
    operator: str = ""

    def fresh(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with every tensor copied, layout and sharing of memory kept."""
        memories: dict[int, torch.UntypedStorage] = {}
        return pytree.tree_map_only(torch.Tensor, lambda t: copied(t, memories), (self.args, self.kwargs))


def copied(tensor: torch.Tensor, memories: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """A tensor of the same layout over a copy of its whole memory."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return tensor.clone()
    storage = tensor.untyped_storage()
    memory = memories.get(storage.data_ptr())
    if memory is None:
        memory = memories[storage.data_ptr()] = storage.clone()
    fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return fresh.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]


def entries() -> list[Entry]:
    """Each operator with float32, one integer and one half type, as far as it supports them."""
    found = []
    for op in sorted(database(), key=lambda op: op.formatted_name):
        supported = op.supported_dtypes(DEVICE)
        for choice in ((torch.float32,), INTEGERS, HALVES):
            dtype = next((d for d in choice if d in supported), None)
            if dtype is not None:
                found.append(Entry(op, dtype))
    return found


def samples(entry: Entry, most: int | None) -> Iterator[Case]:
    """Sample inputs, each also with non-contiguous tensors, and in place for a few; at most `most` of them, spread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        found = list(entry.op.sample_inputs(DEVICE, entry.dtype))
    for k in spread(len(found), most):
        sample = found[k]
        yield Case(f"sample {k}", entry.op.op, (sample.input, *sample.args), dict(sample.kwargs),
                   operator=entry.op.name)
        if has_matrix(sample):
            other = sample.noncontiguous()
            yield Case(f"sample {k} non-contiguous", entry.op.op, (other.input, *other.args), dict(other.kwargs),
                       operator=entry.op.name)
    inplace = entry.op.inplace_variant
    for k in spread(len(found), 3 if most is None else 1) if inplace is not None else ():
        if not found[k].broadcasts_input:
            yield Case(f"sample {k} in place", inplace, (found[k].input, *found[k].args), dict(found[k].kwargs))


def errors(entry: Entry) -> Iterator[Case]:
    """Inputs that eager refuses."""
    if entry.op.error_inputs_func is None or entry.dtype is not torch.float32:
        return
    for k, bad in enumerate(entry.op.error_inputs(DEVICE)):
        sample = bad.sample_input
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        yield Case(f"error {k}", entry.op.op, args, kwargs, bad.error_type)


def spread(count: int, most: int | None) -> list[int]:
    """At most `most` of `range(count)`, evenly spread, the first included."""
    if most is None or count <= most:
        return list(range(count))
    return sorted({k * count // most for k in range(most)})


def has_matrix(sample: Any) -> bool:
    tensors = [t for t in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor)]
    strided = all(t.layout is torch.strided for t in tensors)
    return strided and any(t.numel() > 1 for t in tensors)
