"""Frozen dataclasses among the arguments of a function that the graph calls: the graph makes them of their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dovetail.capture.values.base import Session
from dovetail.capture.values.objects import ObjectValue


def _fields(s: Session, value: Any) -> dict[str, Any] | None:
    """The value of each field; None for what is no object of a dataclass that is made of them and of nothing else."""
    if type(value) is not ObjectValue or not dataclasses.is_dataclass(value.cls):
        return None
    listed = dataclasses.fields(value.cls)
    frozen = value.cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if not frozen or hasattr(value.cls, "__post_init__") or not all(field.init for field in listed):
        return None
    if {*value.attrs} - {field.name for field in listed}:
        return None
    return {field.name: s.get_attr(value, field.name) for field in listed}


def in_graph(s: Session, value: Any, to_graph: Callable[[Any, Any], tuple[Any, Any]]) -> tuple[Any, Any] | None:
    """(the node that makes it, one of fakes)."""
    found = _fields(s, value)
    if found is None:
        return None
    pairs = {name: to_graph(s, field) for name, field in found.items()}
    made = value.cls(**{name: fake for name, (_, fake) in pairs.items()})
    return s.graph.call_function(value.cls, (), {name: node for name, (node, _) in pairs.items()}), made
