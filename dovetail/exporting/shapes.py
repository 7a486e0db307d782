"""`dynamic_shapes`: which sizes of the arguments are no constants, in the forms that `torch.export` takes.

    {"x": {0: "batch"}}                      a name: equal sizes have the same
    {"x": {0: Dim("batch", min=2, max=64)}}  with bounds; 2 * batch, batch + 1 are sizes that follow from it
    ({0: Dim.AUTO}, None)                    by position; AUTO may become a constant, DYNAMIC must not
    {"n": Dim.DYNAMIC}                       an int that is no constant
    {"x": ("batch", None)}                   all dimensions

PyTorch's `Dim`s are known by what they have: nothing of `torch.export` is loaded for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree

from dovetail.errors import InvalidArgument
from dovetail.exporting.arguments import VALUE, Arguments
from dovetail.ir.records import dataclass
from dovetail.ir.varying import marks_of

HINTS = ("AUTO", "DYNAMIC", "STATIC")


@dataclass(frozen=True)
class Wanted:
    """What the user says of one dimension. `size` is `scale` times the size called `name`, plus `offset`; without a
    name it is one of its own. `must`: is it an error if it becomes a constant? Bounds are of what has the name."""

    name: str | None = None
    low: int | None = None
    high: int | None = None
    must: bool = True
    scale: int = 1
    offset: int = 0

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """Those of the dimension."""
        low, high = (b if b is None else b * self.scale + self.offset for b in (self.low, self.high))
        return low, high


Place = tuple[int, int]  # the number of a leaf, and a dimension, or VALUE


def read(dynamic_shapes: Any, fn: Any, given: Arguments) -> dict[Place, Wanted]:
    """The dimensions that are no constants. Raises InvalidArgument for forms that fit no argument, for dimensions that
    there are not and for bounds or names that the sizes of the call contradict."""
    if dynamic_shapes is None:
        return _marked(given)
    if hasattr(dynamic_shapes, "dynamic_shapes"):  # torch.export.ShapesCollection
        dynamic_shapes = dynamic_shapes.dynamic_shapes(fn, given.args, given.kwargs)
    found: dict[Place, Wanted] = {}
    position = 0
    values = [*given.args, *given.kwargs.values()]
    for name, value, spec in zip(given.names, values, _by_argument(dynamic_shapes, given), strict=True):
        for path, leaf, wanted in _leaves(value, spec, name):
            for dim, each in _dimensions(leaf, wanted, path):
                found[position, dim] = each
            position += 1
    _agree(found, given)
    return found


def _marked(given: Arguments) -> dict[Place, Wanted]:
    """What `mark_dynamic` and its like have said of the arguments."""
    found: dict[Place, Wanted] = {}
    for k, leaf in enumerate(given.leaves):
        if isinstance(leaf, torch.Tensor):
            marks = marks_of(leaf)
            found |= {(k, dim): Wanted(must=False) for dim in marks.perhaps}
            found |= {(k, dim): Wanted(None, *bounds) for dim, bounds in marks.dynamic.items()}
    return found


def _by_argument(shapes: Any, given: Arguments) -> Iterator[Any]:
    """What is said of each argument, in their order."""
    groups = list(dict.fromkeys(given.parameters))
    if isinstance(shapes, Mapping):
        known = {*given.names, *given.parameters}
        if unknown := [name for name in shapes if name not in known]:
            raise _error(f"there is no argument {unknown[0]!r}; the arguments are {', '.join(given.names)}")
        for group in groups:
            yield from _of_group(group, shapes, given)
    elif isinstance(shapes, (tuple, list)):
        if len(shapes) == len(groups) and any(map(_is_nested, groups, shapes, [given] * len(groups))):
            yield from _by_argument(dict(zip(groups, shapes, strict=True)), given)
        elif len(shapes) == len(given.names):
            yield from shapes
        else:
            raise _error(f"it has {len(shapes)} items for {len(given.names)} arguments ({', '.join(given.names)})")
    else:
        raise _error(f"it must be a dictionary by argument or a tuple with an item each, not {_shown(shapes)}")


def _of_group(group: str, shapes: Mapping[str, Any], given: Arguments) -> Iterator[Any]:
    """What is said of the arguments that one parameter takes: by their names, or together by that of `*args`."""
    names = [name for name, parameter in zip(given.names, given.parameters, strict=True) if parameter == group]
    together = shapes.get(group) if names != [group] else None
    if isinstance(together, (tuple, list)):
        if len(together) != len(names):
            taken = f"{len(names)} arguments ({', '.join(names)})"
            raise _error(f"{group} takes {taken}, but {len(together)} are described")
        together = dict(zip(names, together, strict=True))
    elif not isinstance(together, Mapping | None):
        raise _error(f"what is said of {group} must be a dictionary or a tuple, not {_shown(together)}")
    elif strange := [name for name in together or () if name not in names]:
        raise _error(f"{group} takes no argument {strange[0]!r}; it takes {', '.join(names)}")
    yield from ({**(together or {}), **shapes}.get(name) for name in names)


def _is_nested(group: str, said: Any, given: Arguments) -> bool:
    """Is it said of all arguments that `*args` or `**kwargs` takes together?"""
    names = [name for name, parameter in zip(given.names, given.parameters, strict=True) if parameter == group]
    if names == [group]:
        return False
    if isinstance(said, Mapping):
        return said.keys() <= {*names}
    if not isinstance(said, (tuple, list)) or len(said) != len(names):
        return False
    return all(isinstance(each, Mapping | tuple | list | None) for each in said)


def _leaves(value: Any, spec: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Each leaf with its path and what is said of it."""
    kind = pytree._get_node_type(value)
    if kind not in pytree.SUPPORTED_NODES:
        yield path, value, spec
        return
    children, _ = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    keyed = isinstance(value, dict)
    for key, child in zip(value if keyed else range(len(children)), children, strict=True):
        yield from _leaves(child, _part(spec, key, value, len(children), path), f"{path}[{key!r}]")


def _part(spec: Any, key: Any, value: Any, count: int, path: str) -> Any:
    """What is said of one item of a container: dictionaries by key, others by position."""
    if spec is None:
        return None
    if type(spec) is type(value) and not isinstance(spec, (Mapping, tuple, list)):
        spec = list(pytree.SUPPORTED_NODES[type(value)].flatten_fn(spec)[0])
    if isinstance(spec, Mapping) and isinstance(value, dict):
        if strange := [k for k in spec if k not in value]:
            raise _error(f"{path} has no key {strange[0]!r}")
        return spec.get(key)
    if isinstance(spec, (tuple, list)) and not isinstance(value, dict):
        if len(spec) != count:
            raise _error(f"{path} has {count} items, but {len(spec)} are described")
        return spec[key]
    raise _error(f"{path} is a {type(value).__name__}, so what is said of it must be one, not {_shown(spec)}")


def _dimensions(leaf: Any, spec: Any, path: str) -> Iterator[tuple[int, Wanted]]:
    if not isinstance(leaf, torch.Tensor):
        if spec is not None and type(leaf) is not int:
            raise _error(f"{path} is {leaf!r}, no tensor and no int: it is a constant of the program, so say None")
        if spec is not None and (wanted := _wanted(spec, leaf, path)) is not None:
            yield VALUE, wanted
        return
    if isinstance(spec, (tuple, list)):
        if len(spec) != leaf.dim():
            raise _error(f"{path} has {leaf.dim()} dimensions, but {len(spec)} are described")
        spec = dict(enumerate(spec))
    if not isinstance(spec, Mapping | None):
        raise _error(f"what is said of {path} must be a dictionary by dimension or a tuple, not {_shown(spec)}")
    for dim, said in (spec or {}).items():
        if type(dim) is not int or not -leaf.dim() <= dim < leaf.dim():
            raise _error(f"{path} has {leaf.dim()} dimensions, so there is no dimension {dim!r}")
        wanted = _wanted(said, leaf.shape[dim], f"{path}.shape[{dim}]")
        if wanted is not None:
            yield dim % leaf.dim(), wanted


def _wanted(said: Any, size: int, place: str) -> Wanted | None:
    """What is said of one dimension; None if it is a constant."""
    hint = getattr(getattr(said, "type", None), "name", None)
    if said is None or hint == "STATIC":
        return None
    if type(said) is int:
        if said != size:
            raise _error(f"{place} is {size} in this call, not {said}")
        return None
    if isinstance(said, str) and said.isidentifier():
        return Wanted(said)
    if hint in HINTS:
        made = Wanted(None, *_bounds(said), must=hint == "DYNAMIC")
    elif isinstance(getattr(said, "__name__", None), str) and hasattr(said, "min"):
        made = _named(said)
    else:
        raise _error(f"{place} is described by {_shown(said)}; give a name, a Dim, an int or None")
    low, high = made.bounds
    if low is not None and size < low or high is not None and size > high:
        bounds = " and ".join(f"{w} {n}" for w, n in (("at least", low), ("at most", high)) if n is not None)
        raise _error(f"{place} is {size} in this call, which is not {bounds}")
    return made


def _named(said: Any) -> Wanted:
    """A `Dim`, or one that was computed from another."""
    scale, offset = 1, 0
    if hasattr(said, "root") and callable(getattr(said, "fn", None)):
        offset = said.fn(0)
        scale, said = said.fn(1) - offset, said.root
    return Wanted(said.__name__, *_bounds(said), True, scale, offset)


def _bounds(said: Any) -> tuple[int | None, int | None]:
    """Those that say something: not 0, not infinity, which PyTorch writes as an object of its own."""
    low, high = said.min, said.max
    return (int(low) if type(low) is int and low > 0 else None), (high if type(high) is int else None)


def _agree(found: Mapping[Place, Wanted], given: Arguments) -> None:
    """Sizes of one name are one size."""
    known: dict[str, tuple[int, str, Wanted]] = {}
    for (leaf, dim), wanted in found.items():
        if wanted.name is None:
            continue
        place, size = given.place(leaf, dim), given.size(leaf, dim)
        value, rest = divmod(size - wanted.offset, wanted.scale)
        if rest:
            formula = f"{wanted.scale} * {wanted.name} + {wanted.offset}"
            raise _error(f"{place} is {size} in this call, which is not {formula}")
        before, where, first = known.setdefault(wanted.name, (value, place, wanted))
        if before != value:
            raise _error(f"{where} and {place} are both {wanted.name!r}, but {before} and {value} in this call")
        if (first.low, first.high) != (wanted.low, wanted.high):
            raise _error(f"{where} and {place} are both {wanted.name!r}, with other bounds")


def _shown(said: Any) -> str:
    return f"{said!r} ({type(said).__name__})"


def _error(words: str) -> InvalidArgument:
    return InvalidArgument(f"export: dynamic_shapes: {words}")
