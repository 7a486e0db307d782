"""What codegen hands to the runtime: a kernel as text, made of one Group, and the host program that calls kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from types import CodeType
from typing import Any

import torch

from dovetail.ir.devices import HOST
from dovetail.ir.dims import Dim
from dovetail.ir.loops import Buffer, Param
from dovetail.ir.records import dataclass

ALIGNMENT = 64  # bytes: one cache line, one AVX-512 vector
#: The name and the kind of the buffer that a checked kernel reports to.
REPORT = "report"
#: What a word of a report holds as long as no access has failed.
NOTHING = -(2**63)
#: Places of a program's outputs: those that the caller gets together, before later ones are computed.
Buckets = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class GpuLaunch:
    """What the text of a GPU kernel does not say.

    `arguments` are Triton's types of the pointers and sizes, `*fp32` or `i32`, with `:16` where a number is known to be
    a multiple of 16. `checked`: the text has assertions. `fused`: a product and a sum may be rounded once. `stages`:
    how many steps of a loop load ahead of one another; 0: as many as Triton likes.
    """

    arguments: tuple[str, ...]
    warps: int
    checked: bool = False
    fused: bool = True
    stages: int = 0


@dataclass(frozen=True)
class Limit:
    """Among a checked kernel's sizes: the first element of the memory behind a pointer, or one past the last (`end`).

    Counted from the pointer, in elements of its buffer's dtype. `pointer` is its number.
    """

    pointer: int
    end: bool


@dataclass(frozen=True)
class Access:
    """Loads from a buffer, or stores to it. Its word of a report gets the place, in elements, of one that failed."""

    buffer: Buffer
    stores: bool


def report(device: torch.device) -> Buffer:
    """Among a checked kernel's pointers: a word for each of its accesses, NOTHING before the call."""
    return Buffer(REPORT, torch.int64, device, (), (), 0, REPORT)


@dataclass(frozen=True)
class Kernel:
    """One function of the target's language.

    Called as `status = kernel(*pointers, *sizes)`: the data pointer of each buffer (a tensor's
    `data_ptr()`; the buffer's own offset is applied inside), then 64-bit integers, and floats where
    a number of the program is one. Status 0 is
    success; n > 0 means that check number n of the group failed: `messages[n - 1]`; below 0, one of the `accesses`.

    `text` is canonical: groups that differ only in names and in sizes give equal texts, so that
    each distinct text is compiled once; `symbol` says what it computes and has a digest of it.
    """

    symbol: str
    text: str
    pointers: tuple[Buffer, ...]
    sizes: tuple[Dim | Param | Limit, ...]
    messages: tuple[str, ...] = ()
    joins: bool = False  # can it be started for several groups at once?
    many: bool = False  # is it? Then it is called with the arguments of each in turn.
    launch: GpuLaunch | None = None  # on a GPU; the last of `sizes` is then the number of programs
    accesses: tuple[Access, ...] = ()  # those that it checks
    wide: Kernel | None = None  # what to start instead where the last but one of `sizes`, its reach, takes 64 bits

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.pointers[0].device if self.pointers else HOST

    @property
    def floats(self) -> tuple[int, ...]:
        """Which of the sizes are floats."""
        return tuple(k for k, s in enumerate(self.sizes) if isinstance(s, Param) and s.dtype.is_floating_point)

    def takes_as(self, other: Kernel) -> bool:
        """Does it take the same arguments in the same order?"""
        mine, theirs = ([b.name for b in kernel.pointers] for kernel in (self, other))
        return mine == theirs and self.sizes == other.sizes

    def of_buffers(self, named: Mapping[str, Buffer], messages: tuple[str, ...]) -> Kernel:
        """The kernel for these buffers in the place of those with their names, with its group's messages. A report is
        everybody's."""
        pointers = tuple(named.get(b.name, b) for b in self.pointers)
        accesses = tuple(Access(named[a.buffer.name], a.stores) for a in self.accesses)
        wide = None if self.wide is None else self.wide.of_buffers(named, messages)
        return replace(self, pointers=pointers, messages=messages, accesses=accesses, wide=wide)


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets of the temporaries placed in one block, and the block's size in bytes.

    Those of symbolic sizes are in `slots`, at `places`: each is as large as the largest of its sizes in bytes, and lies
    behind the `size` bytes that have fixed places.
    """

    offsets: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    places: Mapping[str, int] = field(default_factory=dict)
    slots: tuple[tuple[Dim, ...], ...] = ()


@dataclass(frozen=True)
class HostProgram:
    """`text` defines `views(base, block)` and `run(block, *inputs)`.

    `block` is an `Arena` of at least `arena_bytes`; `views` makes the tensors over it that library
    calls use, once for each block. `names` are the globals that the text mentions (operators,
    dtypes, devices, constants); kernels appear in it under their symbols. `lasting`: for each
    function of the text the first line that writes to the caller's memory; what raises before it
    has changed nothing but, from where `generator` is assigned, the state of the random numbers.
    `launches`: what the lines that start kernels are shown as in a profile.

    With `symbolic` sizes it also defines `sizes(*inputs)` and `measure(*sizes)`, whose result begins with the number of
    bytes and is the second argument of `run` and the third of `views`.

    With `buckets`, places of outputs, `run` is a generator, to which inputs are given in a list, and which gives each
    bucket in that list, before it yields or ends. A program that `checks` what library operators return takes before
    all other arguments whether it is the first call.
    """

    text: str
    kernels: tuple[Kernel, ...]
    names: Mapping[str, Any] = field(default_factory=dict)
    arena_bytes: int = 0
    lasting: Mapping[str, int] = field(default_factory=dict)
    symbolic: bool = False
    launches: Mapping[int, str] = field(default_factory=dict)
    buckets: Buckets = ()
    checks: bool = False

    @cached_property
    def code(self) -> CodeType:
        """Of the text: compiled once for the process that runs it and those that it is kept for."""
        return compile(self.text, "<dovetail host program>", "exec")
