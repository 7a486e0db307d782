"""Constants as JSON, and back: what JSON has no form for is an object with one key: {"dtype": "float32"}.

Classes are never imported for a file. A member of an enumeration whose module is not loaded is read as a `EnumMember`.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from dovetail.errors import InvalidArgument

#: Values by the key of the object that they are written as: what they are, and how they are read.
NAMED: dict[str, tuple[type, Callable[[str], Any]]] = {
    "dtype": (torch.dtype, lambda name: getattr(torch, name)),
    "layout": (torch.layout, lambda name: getattr(torch, name)),
    "memory_format": (torch.memory_format, lambda name: getattr(torch, name)),
    "device": (torch.device, torch.device),
}


class EnumMember(NamedTuple):
    """Stands for a member of an enumeration that is not there; generated code can have it as a constant."""

    module: str
    name: str
    value: Any

    @classmethod
    def of(cls, member: enum.Enum) -> EnumMember:
        return cls(type(member).__module__, type(member).__qualname__, member.value)

    def found(self) -> Any:
        """The member itself, where its class is there, else what stands for it."""
        kind = loaded_class(self.module, self.name)
        return kind(self.value) if kind is not None and issubclass(kind, enum.Enum) else self

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}({self.value!r})"


def loaded_class(module: str, name: str) -> type | None:
    """The class of this name, if its module is loaded and has it."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None


class ValueEncoder:
    """Raises InvalidArgument for what files cannot hold."""

    def value(self, value: Any) -> Any:
        """One constant, or a container of them."""
        if isinstance(value, enum.Enum):
            value = EnumMember.of(value)
        if isinstance(value, EnumMember):
            return {"enum": [value.module, value.name, self.value(value.value)]}
        if value is None or type(value) in (bool, int, str) or type(value) is float and math.isfinite(value):
            return value
        if type(value) in (float, complex):
            return {type(value).__name__: repr(value)}
        write = next((_WRITERS[kind] for kind in type(value).__mro__ if kind in _WRITERS), None)
        if write is not None:
            return write(self, value)
        for key, (kind, _) in NAMED.items():
            if isinstance(value, kind):
                return {key: str(value).removeprefix("torch.")}
        raise InvalidArgument(f"save: files cannot hold {value!r}, a {type(value).__qualname__} in the program")


_WRITERS: dict[type, Callable[[ValueEncoder, Any], Any]] = {
    bytes: lambda encoder, value: {"bytes": value.hex()},
    list: lambda encoder, items: [encoder.value(item) for item in items],
    tuple: lambda encoder, items: {"tuple": [encoder.value(item) for item in items]},
    slice: lambda encoder, value: {"slice": [encoder.value(p) for p in (value.start, value.stop, value.step)]},
    dict: lambda encoder, value: {"dict": [[encoder.value(k), encoder.value(v)] for k, v in value.items()]},
    type(...): lambda encoder, value: {"ellipsis": None},
}


class ValueDecoder:
    """Reads what a ValueEncoder wrote; raises InvalidArgument, which begins with `what`.

    `device`: the one that is read for all others.
    """

    def __init__(self, what: str, device: torch.device | None = None) -> None:
        self.what, self.device = what, device

    def value(self, written: Any) -> Any:
        if isinstance(written, list):
            return [self.value(item) for item in written]
        if not isinstance(written, dict):
            return written
        ((key, inner),) = written.items()
        if key == "device" and self.device is not None:
            return self.device
        if key not in NAMED:
            return _READERS[key](self, inner)
        kind, read = NAMED[key]
        if not isinstance(found := read(inner), kind):
            raise InvalidArgument(f"{self.what}: {inner} is no {key}")
        return found


_READERS: dict[str, Callable[[ValueDecoder, Any], Any]] = {
    "tuple": lambda decoder, items: tuple(map(decoder.value, items)),
    "slice": lambda decoder, parts: slice(*map(decoder.value, parts)),
    "dict": lambda decoder, pairs: {decoder.value(k): decoder.value(v) for k, v in pairs},
    "bytes": lambda decoder, text: bytes.fromhex(text),
    "float": lambda decoder, text: float(text),
    "complex": lambda decoder, text: complex(text),
    "ellipsis": lambda decoder, _: Ellipsis,
    "enum": lambda decoder, parts: EnumMember(*map(decoder.value, parts)).found(),
}
