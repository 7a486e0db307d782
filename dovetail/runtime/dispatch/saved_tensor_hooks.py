"""Hooks that the user has put on saved tensors, while something is compiled.

They are for tensors that a backward pass will need. Compiling runs operators on tensors without memory, whose hooks'
work would become part of the graph, and would be done again when that runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

_C = torch._C._autograd


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """In this block tensors are saved as they are."""
    found = []
    enabled: Any = _C._saved_tensors_hooks_is_enabled  # type: ignore[attr-defined]
    while enabled() and (hooks := _C._top_saved_tensors_default_hooks(True)) is not None:
        found.append(hooks)
        _C._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(found):
            _C._push_saved_tensors_default_hooks(*hooks)
