"""Trees of arguments and results as text, by the names under which `torch.utils._pytree` knows their classes."""

from __future__ import annotations

import json
from typing import Any

import torch.utils._pytree as pytree

from dovetail.errors import InvalidArgument

FACTORIES = ("list", "dict", "set", "tuple", "int", "float", "bool", "str")


def written(spec: pytree.TreeSpec, what: str) -> str:
    """Raises InvalidArgument for a class without a name; `what` is what the tree is of."""
    try:
        text = pytree.treespec_dumps(spec)
        _refuse_factories(text)
        return text
    except (NotImplementedError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"save: a class in {what} has no name that files could have: {error}. Register it with "
            "torch.utils._pytree under a serialized_type_name, or use tuples, lists and dictionaries."
        ) from error


def read(text: str, what: str) -> pytree.TreeSpec:
    """Raises InvalidArgument, which begins with `what`, for a class that nobody has registered here."""
    try:
        _refuse_factories(text)
        return pytree.treespec_loads(text)
    except NotImplementedError as error:
        raise InvalidArgument(f"{what}: {error}. Import the module that registers the class first.") from error


def _refuse_factories(text: str) -> None:
    """What makes the items of a `defaultdict` is called later, and must be no code of the file's choice."""

    def refuse(found: dict[str, Any]) -> dict[str, Any]:
        module, name = found.get("default_factory_module"), found.get("default_factory_name")
        if module is not None and (module != "builtins" or name not in FACTORIES):
            raise NotImplementedError(f"a defaultdict of {module}.{name}")
        return found

    json.loads(text, object_hook=refuse)
