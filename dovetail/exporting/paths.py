"""Leaves of arguments and results with the paths by which users write them: `d['a']`, `pair.first`, `the result[0]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.utils._pytree as pytree

Path = tuple[Any, ...]
IsLeaf = Callable[[Any], bool] | None


def flattened(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[Path, Any]], pytree.TreeSpec]:
    """`pytree.tree_flatten_with_path`, also for classes that are registered without the names of their parts."""
    leaves, spec = pytree.tree_flatten(tree, is_leaf)
    paths = [path for path, _ in _leaves(tree, is_leaf, ())]
    return list(zip(paths, leaves, strict=True)), spec


def _leaves(tree: Any, is_leaf: IsLeaf, path: Path) -> Iterator[tuple[Path, Any]]:
    known = pytree.SUPPORTED_NODES.get(pytree._get_node_type(tree))
    if known is None or is_leaf is not None and is_leaf(tree):
        yield path, tree
        return
    if known.flatten_with_keys_fn is not None:
        keyed: Any = known.flatten_with_keys_fn(tree)[0]
    else:
        keyed = ((pytree.SequenceKey(k), part) for k, part in enumerate(known.flatten_fn(tree)[0]))
    for key, part in keyed:
        yield from _leaves(part, is_leaf, (*path, key))


def argument_path(path: Path, names: Sequence[str]) -> str:
    """How users write a leaf of `(args, kwargs)`: `d['a']`."""
    head, first, *rest = path
    name = names[first.idx] if head.idx == 0 else first.key
    return f"{name}{pytree.keystr(tuple(rest))}"
