"""The arguments of the call that is exported, as leaves of a tree with names and paths.

    f(x, {"a": y}, flag=True)    ->    x: x        d_a: d['a']        flag: flag
"""

from __future__ import annotations

import enum
import inspect
import itertools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from dovetail.errors import InvalidArgument
from dovetail.ir.records import dataclass

TENSORS = (torch.Tensor, torch.nn.Parameter)
CONSTANTS = (
    int, float, bool, str, complex, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


VALUE = -1  # of the sizes of an int among the arguments: itself


@dataclass(frozen=True)
class Arguments:
    """`names` are those of the arguments, `positional` of them given by position, and `parameters` what takes each:
    other names for those that `*args` and `**kwargs` do. `identifiers` and `paths` name the leaves, as variables and as
    users write them. `spec` is the tree of `(args, kwargs)`. `program` is what is traced: what is exported
    (`as_given`), or, where objects among the arguments do not have the very leaves that they are put together of, a
    function of the leaves that puts them together first."""

    args: tuple
    kwargs: dict[str, Any]
    names: tuple[str, ...]
    parameters: tuple[str, ...]
    positional: int
    leaves: tuple
    identifiers: tuple[str, ...]
    paths: tuple[str, ...]
    spec: pytree.TreeSpec
    program: Callable[..., Any]
    as_given: bool

    def of_leaves(self, leaves: Sequence[Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments of `program` that have these leaves."""
        if not self.as_given:
            return tuple(leaves), {}
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    def place(self, leaf: int, dim: int) -> str:
        """How users write a size, or a number."""
        return self.paths[leaf] if dim == VALUE else f"{self.paths[leaf]}.shape[{dim}]"

    def size(self, leaf: int, dim: int) -> int:
        return self.leaves[leaf] if dim == VALUE else self.leaves[leaf].shape[dim]

    def source(self, leaf: int) -> str:
        """The path to it as the program writes it: what `*args` takes are items of a tuple there."""
        if not self.as_given:
            return f"leaves[{leaf}]"
        name = next(n for n in sorted(self.names, key=len, reverse=True) if _begins(self.paths[leaf], n))
        at = self.names.index(name)
        parameter, rest = self.parameters[at], self.paths[leaf].removeprefix(name)
        if parameter == name:
            return f"{name}{rest}"
        key = at - self.parameters.index(parameter) if at < self.positional else name
        return f"{parameter}[{key!r}]{rest}"


def _begins(path: str, name: str) -> bool:
    return path.startswith(name) and not path[len(name) :][:1].isidentifier() and not path[len(name) :][:1].isdigit()


def read(fn: Callable[..., Any], args: Any, kwargs: Mapping[str, Any] | None) -> Arguments:
    """Check and name the arguments; raises InvalidArgument for what no exported program can take.

    Every tensor is an object of its own afterwards: given twice, it may be two tensors in another call.
    """
    if not isinstance(args, (tuple, list)):
        raise InvalidArgument(f"export: args must be a tuple of arguments, not {type(args).__name__}: write (x,)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InvalidArgument(f"export: kwargs must be a dictionary, not {type(kwargs).__name__}")
    args, named = tuple(args), dict(kwargs or {})
    names, parameters = _names(fn, args, named)
    named_leaves, spec = flattened((args, named))
    paths = tuple(argument_path(path, names) for path, _ in named_leaves)
    checked = [_checked(leaf, path) for (_, leaf), path in zip(named_leaves, paths, strict=True)]
    leaves = _separate(checked, _tensors(fn))
    args, named = pytree.tree_unflatten(leaves, spec)
    found = pytree.tree_leaves((args, named))
    whole = len(found) == len(leaves) and all(map(operator.is_, found, leaves))
    program = fn if whole else assembling(fn, spec)
    identifiers = _identifiers(paths, names)
    return Arguments(
        args, named, names, parameters, len(args), tuple(leaves), identifiers, paths, spec, program, whole,
    )  # fmt: skip


def assembling(fn: Callable[..., Any], spec: pytree.TreeSpec) -> Callable[..., Any]:
    """The program, called with the leaves of its arguments."""

    def program(*leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return fn(*args, **kwargs)

    return program


def _names(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A name for each argument, those of `*args` are numbered; and the parameters that take them."""
    called = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        signature = inspect.signature(called)
    except ValueError:  # of many native functions, nobody knows it
        signature = inspect.signature(lambda *arg, **more: None)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArgument(f"export: args and kwargs do not fit the program: {error}") from None
    positional: list[tuple[str, str]] = []
    others = ""  # the parameter that takes any keyword
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            taken = {*signature.parameters, *kwargs}
            numbered = (f"{parameter.name}_{k}" for k in itertools.count())
            free = itertools.islice((n for n in numbered if n not in taken), len(args) - len(positional))
            positional += ((name, parameter.name) for name in free)
        elif parameter.kind is parameter.VAR_KEYWORD:
            others = parameter.name
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append((parameter.name, parameter.name))
    named = ((name, name if name in signature.parameters else others) for name in kwargs)
    every = [*positional[: len(args)], *named]
    return tuple(name for name, _ in every), tuple(parameter for _, parameter in every)


def _identifiers(paths: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    taken, found = Counter(names), []
    for path in paths:
        name = re.sub(r"\W+", "_", path).strip("_")
        taken[name] += name != path
        found.append(name if name == path or taken[name] == 1 else f"{name}_{taken[name]}")
    return tuple(found)


def _checked(leaf: Any, path: str) -> Any:
    if type(leaf) in TENSORS or is_constant(leaf):
        return leaf
    what, remedy = f"a {type(leaf).__module__}.{type(leaf).__qualname__}", "Register its class with torch.utils._pytree"
    if isinstance(leaf, torch.Tensor):
        what, remedy = f"{what}, a class of tensors of its own", "Pass a plain tensor"
    raise InvalidArgument(
        f"export: {path} is {what}; an exported program takes tensors, numbers, texts, None and containers of them. "
        f"{remedy}, or make it a part of the program."
    )


def is_constant(leaf: Any) -> bool:
    return type(leaf) in CONSTANTS or isinstance(leaf, enum.Enum)


def _tensors(fn: Callable[..., Any]) -> set[int]:
    return {id(t) for t in (*fn.parameters(), *fn.buffers())} if isinstance(fn, torch.nn.Module) else set()


def _separate(leaves: list, taken: set[int]) -> list:
    """Copies of tensors that come again, or that the program has already."""
    found: list = []
    for leaf in leaves:
        again = isinstance(leaf, torch.Tensor) and id(leaf) in taken
        taken |= {id(leaf)} if isinstance(leaf, torch.Tensor) else set()
        found.append(_copy(leaf) if again else leaf)
    return found


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return made.copy_(tensor).requires_grad_(tensor.requires_grad)


# ---------------------------------------------------------------- leaves as users write them

Path = tuple
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
