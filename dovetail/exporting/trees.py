"""Trees of arguments and results as JSON, and back.

    {"a": x, "p": Point(y, None)}
    {"type": "dict", "context": ["a", "p"], "children": ["*", {"type": "my.Point", "keys": ["x", "y"], ...}]}

Python's containers and PyTorch's return types have names of their own here, named tuples are told by their fields, and
other classes have those under which `torch.utils._pytree` knows them. No class is imported for a file.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

from dovetail.errors import InvalidArgument
from dovetail.exporting.signature import children
from dovetail.exporting.values import ValueDecoder, ValueEncoder, loaded_class
from dovetail.ir.records import dataclass

# ---------------------------------------------------------------- results of classes that are not there


@dataclass(frozen=True)
class RecordKind:
    """What files say of a class: its name, what else its objects are made of, how they name their parts, and fields
    of theirs that are None."""

    name: str
    context: Any
    keys: tuple
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

    A program that returns a library's dataclass runs without the library: it gives this instead.
    It has `keys()`, `values()` and `items()`. It is not iterable: some classes would give keys, and others values.
    """

    _kind: RecordKind
    _parts: tuple

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

    def keys(self) -> tuple:
        return self._kind.keys

    def values(self) -> tuple:
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


CONTAINERS: dict[str, Any] = {c.__name__: c for c in (tuple, list, dict, OrderedDict, deque)}
#: What makes the items of a `defaultdict` is called later, and must be no code of the file's choice.
FACTORIES: dict[str, Any] = {f.__name__: f for f in (list, dict, set, tuple, int, float, bool, str)}
RETURNS = "torch.return_types."
LEAF, PLAIN = pytree.tree_structure(0), "*"


def written(spec: pytree.TreeSpec, what: str) -> Any:
    """Raises InvalidArgument for a class without a name; `what` is what the tree is of."""
    if spec.type is None:
        return PLAIN
    return _node(spec, what) | {"children": [written(child, what) for child in children(spec)]}


def _node(spec: pytree.TreeSpec, what: str) -> dict[str, Any]:
    kind, context, value = spec.type, spec.context, ValueEncoder().value
    name = getattr(kind, "__name__", "")
    if kind is Record:
        return context.written()
    if kind is namedtuple:
        return {"type": "namedtuple", "context": [context.__module__, context.__qualname__, [*context._fields]]}
    if kind is defaultdict:
        factory, keys = context
        if factory is not None and FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
            raise InvalidArgument(f"save: {what} has a defaultdict of {factory!r}, which no file can name")
        return {"type": "defaultdict", "context": [factory and factory.__name__, value(keys)]}
    if CONTAINERS.get(name) is kind:
        return {"type": name, "context": value(context)}
    if getattr(torch.return_types, name, None) is kind:
        return {"type": f"{RETURNS}{name}", "context": None}
    return _registered(spec, what)


def _registered(spec: pytree.TreeSpec, what: str) -> dict[str, Any]:
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if known is None or known.serialized_type_name == pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
        raise InvalidArgument(
            f"save: a class in {what} has no name that files could have: {spec.type}. Register it with "
            "torch.utils._pytree under a serialized_type_name, or use tuples, lists and dictionaries."
        )
    dumped = (known.to_dumpable_context or ValueEncoder().value)(spec.context)
    return RecordKind(known.serialized_type_name, dumped, *_parts(spec)).written()


def _parts(spec: pytree.TreeSpec) -> tuple[tuple, tuple[str, ...]]:
    """How an object of the class names its parts, by attributes and keys, else by position; and its fields that are
    None instead."""
    keyed: Any = pytree.SUPPORTED_NODES[spec.type].flatten_with_keys_fn
    try:
        like = pytree.tree_unflatten([...] * spec.num_leaves, spec)
        keys = [getattr(key, "name", getattr(key, "key", n)) for n, (key, _) in enumerate(keyed(like)[0])]
        fields = [f.name for f in dataclasses.fields(like)] if dataclasses.is_dataclass(like) else []
        return tuple(keys), tuple(f for f in fields if f not in keys and getattr(like, f) is None)
    except Exception:
        return tuple(range(spec.num_children)), ()


# ---------------------------------------------------------------- and back


def read(tree: Any, what: str, lenient: bool = False) -> pytree.TreeSpec:
    """Raises InvalidArgument, which begins with `what`, for a class that nobody has registered here, unless `lenient`:
    then there are records instead of its objects."""
    if tree == PLAIN:
        return LEAF
    name, context = tree["type"], tree["context"]
    children = [read(child, what, lenient) for child in tree["children"]]
    value = ValueDecoder(what).value
    if name == "namedtuple":
        module, qualname, fields = context
        return pytree.TreeSpec(namedtuple, _named_tuple(module, qualname, fields, what, lenient), children)
    if name == "defaultdict":
        factory, keys = context
        if factory is not None and factory not in FACTORIES:
            raise InvalidArgument(f"{what}: a defaultdict of {factory}")
        return pytree.TreeSpec(defaultdict, [factory and FACTORIES[factory], value(keys)], children)
    if name in CONTAINERS:
        return pytree.TreeSpec(CONTAINERS[name], value(context), children)
    if name.startswith(RETURNS):
        return pytree.TreeSpec(_return_type(name, what), None, children)
    return _read_registered(tree, what, lenient, children)


def _read_registered(tree: dict[str, Any], what: str, lenient: bool, children: list) -> pytree.TreeSpec:
    kind = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(tree["type"])
    if kind is not None:
        reads = pytree.SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context or ValueDecoder(what).value
        return pytree.TreeSpec(kind, reads(tree["context"]), children)
    if not lenient:
        raise _missing(tree["type"], what)
    stands_for = RecordKind.read(tree)
    if len(stands_for.keys) != len(children):
        raise ValueError(f"{len(stands_for.keys)} names for {len(children)} parts")
    return pytree.TreeSpec(Record, stands_for, children)


def records(spec: pytree.TreeSpec) -> Iterator[RecordKind]:
    """The classes that the tree has records for."""
    if spec.type is Record:
        yield spec.context
    for child in children(spec) if spec.type is not None else ():
        yield from records(child)


def _missing(name: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"{what}: {name} is not registered. Import the module that registers the class first.")


def _return_type(name: str, what: str) -> type:
    found = getattr(torch.return_types, name.removeprefix(RETURNS), None)
    if not isinstance(found, type) or not issubclass(found, tuple):
        raise InvalidArgument(f"{what}: there is no {name} here")
    return found


def _named_tuple(module: str, name: str, fields: list[str], what: str, lenient: bool) -> type:
    """The class, where its module is loaded; else one like it, for results."""
    found = loaded_class(module, name)
    if found is not None and issubclass(found, tuple) and [*getattr(found, "_fields", ())] == fields:
        return found
    if not lenient:
        raise _missing(f"{module}.{name}", what)
    made = namedtuple(name.rpartition(".")[2], fields, module=module)  # type: ignore[misc]
    made.__qualname__ = name
    return made
