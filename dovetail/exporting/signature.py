"""What an exported program takes and gives, and the check that a call fits: structure, types, sizes, constants."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from dovetail.errors import InvalidArgument
from dovetail.exporting import arguments, expressions
from dovetail.exporting.expressions import Expression
from dovetail.exporting.values import EnumMember
from dovetail.ir.records import dataclass


@dataclass(frozen=True)
class Size:
    """A size that differs from call to call: that of dimension `dim` of input number `input`, from `low` to `high`; or
    an int among the inputs, which may have no least value. `example` is what it was when the program was exported,
    `low_from` and `high_from` the lines that rely on bounds."""

    name: str
    input: int
    dim: int
    example: int
    low: int | None = 0
    high: int | None = None
    low_from: str = ""
    high_from: str = ""

    def outside(self, number: int) -> str:
        """What it should be, if the number is not; else nothing."""
        small, large = self.low is not None and number < self.low, self.high is not None and number > self.high
        if not small and not large:
            return ""
        one = f"at least {self.low}" if self.high is None else f"at most {self.high}"
        bounds = one if None in (self.low, self.high) else f"between {self.low} and {self.high}"
        return bounds + _relied(self.low_from if small else self.high_from)

    def implies(self, condition: Condition) -> bool:
        """Does the condition say nothing beyond these bounds?"""
        sides = {condition.left: condition.sign, condition.right: MIRRORED.get(condition.sign, "")}
        sign, other = sides.get(self.name), condition.right if condition.left == self.name else condition.left
        if sign is None or not isinstance(other, int):
            return False
        bound = self.low if sign in (">=", ">") else self.high
        return bound is not None and sign in MIRRORED and expressions.COMPARISONS[sign](bound, other)


@dataclass(frozen=True)
class Tensor:
    """A tensor that the program takes; `path` is how its user writes it."""

    name: str
    path: str
    dtype: torch.dtype
    sizes: tuple[Expression, ...]

    def __str__(self) -> str:
        sizes = ", ".join(map(expressions.text, self.sizes))
        return f"{self.path}: {str(self.dtype).removeprefix('torch.')}[{sizes}]"


@dataclass(frozen=True)
class Constant:
    """A number, text or None that the program was exported for."""

    name: str
    path: str
    value: Any

    def __str__(self) -> str:
        return f"{self.path} = {self.value!r}"


@dataclass(frozen=True)
class SignatureNumber:
    """An int that the program takes, and what it is in terms of the sizes that differ."""

    name: str
    path: str
    size: Expression

    def __str__(self) -> str:
        return f"{self.path}: int = {expressions.text(self.size)}"


Input = Tensor | SignatureNumber | Constant
MIRRORED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}


@dataclass(frozen=True)
class Condition:
    """What holds of the sizes that the program was exported for; `where` is the line that relies on it."""

    left: Expression
    sign: str
    right: Expression
    where: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The sizes that it is about."""
        return expressions.names(self.left) | expressions.names(self.right)

    def holds(self, sizes: Mapping[str, Any]) -> Any:
        """Does it, for these values of sizes? Not where it is no number."""
        try:
            left, right = (expressions.value(side, sizes) for side in (self.left, self.right))
        except (ArithmeticError, ValueError):
            return False
        return expressions.COMPARISONS[self.sign](left, right)

    def __str__(self) -> str:
        return expressions.text((self.sign, self.left, self.right))


@dataclass(frozen=True)
class ExportSignature:
    """`names` are the arguments, `positional` of them by position. `inputs` are the leaves of the tree `takes` of
    `(args, kwargs)`; `gives` is the tree of results. `training` is the mode of a module that was exported. `exchanged`
    are the names of each buffer for which the graph gives another tensor, after the leaves of the result."""

    names: tuple[str, ...]
    positional: int
    inputs: tuple[Input, ...]
    sizes: tuple[Size, ...]
    conditions: tuple[Condition, ...]
    takes: pytree.TreeSpec
    gives: pytree.TreeSpec
    training: bool | None = None
    exchanged: tuple[tuple[str, ...], ...] = ()

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list:
        """Those of a call. Dictionaries are taken in the order that they had when the program was exported.

        Raises InvalidArgument where their tree is another one.
        """
        given = self._ordered(args, kwargs)
        leaves, spec = pytree.tree_flatten(given)
        if spec != self.takes:
            leaves, spec = pytree.tree_flatten(_in_order(given, self.takes))
        if spec != self.takes:
            taken = ", ".join(each.path for each in self.inputs)
            found = ", ".join(arguments.argument_path(path, self.names) for path, _ in arguments.flattened(given)[0])
            raise InvalidArgument(f"the exported program takes ({taken}); it was called with ({found})")
        return leaves

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises InvalidArgument for a call that the program was not exported for."""
        leaves = self.leaves(args, kwargs)
        for expected, leaf in zip(self.inputs, leaves, strict=True):
            if isinstance(expected, Tensor):
                _check_tensor(expected, leaf)
            elif isinstance(expected, SignatureNumber):
                if type(leaf) is not int:
                    raise InvalidArgument(f"{expected.path} must be an int, not {type(leaf).__name__}")
            elif not _is_same(leaf, expected.value):
                raise InvalidArgument(f"{expected.path} is {leaf!r}; the program is exported for {expected.value!r}")
        self._check_sizes(leaves)

    def _ordered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments as they were given when the program was exported."""
        given = dict(zip(self.names, args))
        given.update(kwargs)
        if len(args) > len(self.names) or len(given) < len(args) + len(kwargs) or set(given) != set(self.names):
            raise InvalidArgument(
                f"the exported program takes the arguments ({', '.join(self.names)}); it was called with {len(args)} "
                f"by position and {', '.join(kwargs) or 'none'} by name"
            )
        ordered = [given[name] for name in self.names]
        return tuple(ordered[: self.positional]), dict(zip(self.names[self.positional :], ordered[self.positional :]))

    def _check_sizes(self, leaves: Sequence[Any]) -> None:
        found = {}
        for size in self.sizes:
            leaf = leaves[size.input]
            found[size.name] = number = leaf.shape[size.dim] if isinstance(leaf, torch.Tensor) else leaf
            if bounds := size.outside(number):
                raise InvalidArgument(f"{self._place(size)} is {number}; the program is exported for {bounds}")
        for expected, leaf in zip(self.inputs, leaves, strict=True):
            if isinstance(expected, Tensor):
                for k, size in enumerate(expected.sizes):
                    number = expressions.value(size, found)
                    if leaf.shape[k] != number:
                        raise InvalidArgument(_wrong(f"{expected.path}.shape[{k}]", size, leaf.shape[k], number))
            elif isinstance(expected, SignatureNumber) and leaf != (number := expressions.value(expected.size, found)):
                raise InvalidArgument(_wrong(expected.path, expected.size, leaf, number))
        for condition in self.conditions:
            if not condition.holds(found):
                sizes = [s for s in self.sizes if s.name in condition.names]
                known = ", ".join(f"{self._place(s)} = {found[s.name]}" for s in sizes)
                relied = _relied(condition.where)
                raise InvalidArgument(f"the program is exported for {condition}{relied}; here {known}")

    def _place(self, size: Size) -> str:
        given = self.inputs[size.input]
        path = f"{given.path}.shape[{size.dim}]" if isinstance(given, Tensor) else given.path
        return path if size.name.startswith("s") and size.name[1:].isdigit() else f"{path} ({size.name})"


def _wrong(place: str, of: Expression, size: Any, number: Any) -> str:
    formula = "" if isinstance(of, int) else f" ({expressions.text(of)})"
    return f"{place} is {size}; the program is exported for {number}{formula}"


def _relied(where: str) -> str:
    return f", as {where} relies on" if where else ""


def _is_same(one: Any, other: Any) -> bool:
    """As constants of a program: not 0.0 and -0.0, but two that are no numbers."""
    one = EnumMember.of(one) if isinstance(one, enum.Enum) and isinstance(other, EnumMember) else one
    if type(one) is not type(other):
        return False
    return repr(one) == repr(other) if isinstance(one, (float, complex)) else bool(one == other)


def _in_order(value: Any, spec: pytree.TreeSpec) -> Any:
    """The same with the keys of dictionaries in the order that the tree has, where it has the same ones."""
    if spec.type is dict and type(value) is dict and value.keys() == {*spec.context}:
        value = {key: value[key] for key in spec.context}
    kind = pytree._get_node_type(value)
    if spec.type is None or kind is not spec.type:
        return value
    parts, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    if len(parts) != spec.num_children:
        return value
    ordered = map(_in_order, parts, children(spec))
    return pytree.SUPPORTED_NODES[kind].unflatten_fn([*ordered], context)


def children(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    return spec.children() if hasattr(spec, "children") else spec.children_specs  # by version


def _check_tensor(expected: Tensor, leaf: Any) -> None:
    if not isinstance(leaf, torch.Tensor):
        raise InvalidArgument(f"{expected.path} must be a tensor, not {type(leaf).__name__}")
    if leaf.dtype != expected.dtype:
        raise InvalidArgument(f"{expected.path} is {leaf.dtype}; the program is exported for {expected.dtype}")
    if leaf.layout != torch.strided:
        raise InvalidArgument(f"{expected.path} is laid out as {leaf.layout}; the program takes torch.strided alone")
    if leaf.dim() != len(expected.sizes):
        raise InvalidArgument(
            f"{expected.path} has {leaf.dim()} dimensions; the program is exported for {len(expected.sizes)}"
        )
