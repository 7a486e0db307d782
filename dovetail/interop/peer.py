"""Backends that other packages register for torch.compile, by name. Loading them loads their compiler."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

Backend = Callable[..., Callable[..., Any]]
_REGISTRY = "torch._dynamo.backends.registry"


def peer_names() -> list[str]:
    """The names that torch.compile knows, its debugging ones aside."""
    return list(importlib.import_module(_REGISTRY).list_backends())


def peer_backend(name: str) -> Backend | None:
    """The backend registered under `name`, or None. Takes a second: it imports the other compiler."""
    registry = importlib.import_module(_REGISTRY)
    if name not in registry.list_backends(exclude_tags=()):
        return None
    return registry.lookup_backend(name)
