"""Backends that other packages register for torch.compile, by name. Loading them loads their compiler."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

Backend = Callable[..., Callable[..., Any]]
_REGISTRY = "torch._dynamo.backends.registry"


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """A block that torch.compile does not look at, where a function of ours is compiled inside one of its regions."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    hook = torch._C._dynamo.eval_frame.set_eval_frame
    before = hook(None)
    try:
        yield
    finally:
        hook(before)


def peer_names() -> list[str]:
    """The names that torch.compile knows, its debugging ones aside."""
    return list(importlib.import_module(_REGISTRY).list_backends())


def peer_backend(name: str) -> Backend | None:
    """The backend registered under `name`, or None. Takes a second: it imports the other compiler."""
    registry = importlib.import_module(_REGISTRY)
    if name not in registry.list_backends(exclude_tags=()):
        return None
    return registry.lookup_backend(name)
