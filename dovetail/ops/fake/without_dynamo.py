"""Run PyTorch's Python meta kernels without importing its compiler.

Many meta kernels go through functions wrapped by `torch._compile._disable_dynamo`, which imports
`torch._dynamo` (0.65 s) on first use only to make itself invisible to that compiler. The wrapper
looks for an attribute on the wrapped function first; while ours run, it finds one that says
"call the function itself". The attributes are taken away again afterwards, so that a later
`torch.compile` in the same process is not affected. `import_shims.py` does the same for the module of
symbolic shapes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch._compile
import torch._decomp
import torch._meta_registrations
import torch._prims
import torch._prims_common.wrappers
import torch._refs

from dovetail.ops.fake import import_shims

_ATTRIBUTE = "__dynamo_disable"
_MODULES: tuple[ModuleType, ...] = (
    torch._refs, torch._refs.nn.functional, torch._refs.special, torch._refs.linalg, torch._prims,
    torch._prims_common.wrappers, torch._decomp.decompositions, torch._meta_registrations,
)


class _Marks:
    """Knows its users, so that the innermost of nested or concurrent ones does not take the marks away.

    An interrupt may arrive anywhere: both operations may be made again, or after half of the other.
    """

    def __init__(self) -> None:
        self.users: set[object] = set()
        self.marked: tuple = ()
        self.lock = threading.RLock()

    def put(self, user: object) -> None:
        """The first user puts the marks on."""
        with self.lock:
            self.users.add(user)
            if len(self.users) == 1:
                import_shims.install()
                if "torch._dynamo" not in sys.modules:
                    self.marked = _wrapped()
                    for function in self.marked:
                        setattr(function, _ATTRIBUTE, function)

    def take(self, user: object) -> None:
        """The last user takes them off."""
        with self.lock:
            self.users.discard(user)
            if not self.users:
                import_shims.remove()
                for function in self.marked:
                    if getattr(function, _ATTRIBUTE, None) is function:
                        delattr(function, _ATTRIBUTE)


_marks = _Marks()


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Re-entrant."""
    user = object()
    try:
        _marks.put(user)
        yield
    finally:
        _marks.take(user)


@cache
def _wrapped() -> tuple:
    """Every function behind `_disable_dynamo` that a meta kernel or decomposition can reach (3 ms)."""
    marker = torch._compile._disable_dynamo(lambda: None).__code__
    found: list = []
    seen: set[int] = set()
    stack: list = [f for table in torch._decomp.global_decomposition_table.values() for f in table.values()]
    stack += [v for module in _MODULES for v in vars(module).values() if isinstance(v, FunctionType)]
    while stack:
        function = stack.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if function.__code__ is marker:
            found.append(cells["fn"].cell_contents)
        stack.append(getattr(function, "__wrapped__", None))
        stack += [c.cell_contents for c in cells.values() if _filled(c)]
    return tuple(found)


def _filled(cell: Any) -> bool:
    try:
        return isinstance(cell.cell_contents, FunctionType)
    except ValueError:
        return False
