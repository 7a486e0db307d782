"""A device that is a table of blocks: memory of pools, and streams that know what has been done before."""

from __future__ import annotations

import weakref
from typing import Any

import torch

BLOCKS = 64
CPU = torch.device("cpu")


class Stream:
    """`seen`: up to which moment of each stream everything has been done before what comes next here."""

    def __init__(self) -> None:
        self.now = 0
        self.seen: dict[Stream, int] = {}

    @property
    def cuda_stream(self) -> int:
        return id(self)

    def wait_stream(self, other: Stream) -> None:
        for stream, moment in (*other.seen.items(), (other, other.now)):
            self.seen[stream] = max(moment, self.seen.get(stream, 0))


class Memory:
    """As one of PyTorch's pools: the first free block, again free when its tensor is gone. Without a graph that was
    recorded in it, what is free is given to others, whose it is from then on."""

    all: list[Memory] = []

    def __init__(self) -> None:
        self.blocks = torch.zeros(BLOCKS)
        Memory.all.append(self)
        self.free = set(range(BLOCKS))
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self.reads: dict[int, tuple[Stream, int]] = {}  # the last of each block

    def take(self) -> torch.Tensor:
        block = min(self.free)
        self.free.remove(block)
        address = self.blocks[block:].data_ptr()
        storage = torch._C._construct_storage_from_data_pointer(address, CPU, self.blocks.itemsize)
        tensor = torch.empty(0).set_(storage, 0, (1,), (1,))  # type: ignore[call-overload]
        weakref.finalize(storage, self.free.add, block)
        return tensor

    def block(self, tensor: torch.Tensor) -> int:
        return (tensor.data_ptr() - self.blocks.data_ptr()) // self.blocks.itemsize

    def read(self, tensor: torch.Tensor, stream: Stream) -> None:
        stream.now += 1
        self.reads[self.block(tensor)] = stream, stream.now

    def write(self, block: int, value: float, stream: Stream) -> None:
        other, moment = self.reads.pop(block, (stream, 0))
        assert other is stream or stream.seen.get(other, 0) >= moment, "it may still be read"
        self.blocks[block] = value

    def empty_cache(self) -> None:
        if not len(self.graphs):
            for block in self.free:
                self.blocks[block] = -1
