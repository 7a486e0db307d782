"""Results of classes that are not there: a program that returns a library's dataclass runs without the library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.utils._pytree as pytree

from dovetail.exporting.values import ValueDecoder, ValueEncoder
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class RecordKind:
    """What files say of a class: its name, what else its objects are made of, how they name their parts, and fields
    of theirs that are None."""

    name: str
    context: Any
    keys: tuple[Any, ...]
    absent: tuple[str, ...]

    def written(self) -> dict[str, Any]:
        value = ValueEncoder().value
        return {"type": self.name, "context": self.context, "keys": value([*self.keys]), "absent": [*self.absent]}

    @classmethod
    def read(cls, written: dict[str, Any]) -> RecordKind:
        keys = ValueDecoder("a Record").value(written["keys"])
        return cls(written["type"], written["context"], tuple(keys), tuple(written["absent"]))


@dataclass(frozen=True, repr=False, eq=False)
class Record:
    """The parts of a result by attribute, by key and by position: `r.logits`, `r["logits"]`, `r[0]`.

    It has `keys()`, `values()` and `items()`. It is not iterable: some classes would give keys, and others values.
    """

    _kind: RecordKind
    _parts: tuple[Any, ...]

    __iter__ = None

    def __getattr__(self, name: str) -> Any:
        kind = vars(self).get("_kind")  # not there yet while it is copied
        if kind is None or name not in kind.keys + kind.absent:
            raise AttributeError(f"{'a Record' if kind is None else kind.name} has no part {name!r}")
        return self[name] if name in kind.keys else None

    def __getitem__(self, key: Any) -> Any:
        return self._parts[self._kind.keys.index(key) if key in self._kind.keys else key]

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, key: Any) -> bool:
        return key in self._kind.keys

    def keys(self) -> tuple[Any, ...]:
        return self._kind.keys

    def values(self) -> tuple[Any, ...]:
        return self._parts

    def items(self) -> Iterator[tuple[Any, Any]]:
        return zip(self._kind.keys, self._parts, strict=True)

    def __repr__(self) -> str:
        return f"{self._kind.name}({', '.join(f'{key}={value!r}' for key, value in self.items())})"


def _kind(record: Record) -> RecordKind:
    return record._kind


pytree.register_pytree_node(
    Record,
    lambda record: ([*record.values()], _kind(record)),
    lambda parts, kind: Record(kind, tuple(parts)),
    serialized_type_name="dovetail.Record",
    to_dumpable_context=RecordKind.written,
    from_dumpable_context=RecordKind.read,
    flatten_with_keys_fn=lambda record: ([(pytree.MappingKey(k), v) for k, v in record.items()], _kind(record)),
)
