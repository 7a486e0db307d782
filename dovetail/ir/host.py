"""The host program: what codegen hands to the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import CodeType
from typing import Any

from dovetail.ir.dims import Dim
from dovetail.ir.kernel import Kernel
from dovetail.ir.records import dataclass

ALIGNMENT = 64  # bytes: one cache line, one AVX-512 vector


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
    """

    text: str
    kernels: tuple[Kernel, ...]
    names: Mapping[str, Any] = field(default_factory=dict)
    arena_bytes: int = 0
    lasting: Mapping[str, int] = field(default_factory=dict)
    symbolic: bool = False
    launches: Mapping[int, str] = field(default_factory=dict)
    code: CodeType | None = field(default=None, compare=False, repr=False)  # of the text, where it is there already
