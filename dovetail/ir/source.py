"""Where a value came from: one frozen object that loads itself and guards itself.

`expr()` is a Python expression that evaluates to the value in generated code, which is both how a
residual program fetches a graph input and how a guard function reaches what it checks; the two
can never drift apart. Inside generated code `self` names never appear: a root is one of

    Arg("x")       the parameter x of the compiled callable (also *args and **kwargs by their names)
    Global("np")   a global of the module that defines the function: `G["np"]`
    Cell(2)        free variable number 2 of the compiled function: `F.__closure__[2].cell_contents`
    Bound(n, why)  an object known when compiling, held by the entry: `K[n]` (modules of a bound method, ...)

and everything else is a path from a root. `name()` is what the user reads in messages:
`self.layers[0].weight`, `x`, `G['scale']`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar

from dovetail.ir.literals import literal
from dovetail.ir.records import dataclass


@cache
def _parts(cls: Any) -> Callable[[Any], Any]:
    """Reads what says which source it is."""
    return attrgetter(*cls.__match_args__)


class Source:
    """An immutable path from a root to a value. Its hash is computed once: paths are long, and keys of many tables."""

    __slots__ = ("_hash",)

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]

    def __hash__(self) -> int:
        try:
            return self._hash  # type: ignore[attr-defined]
        except AttributeError:
            found = hash(_parts(type(self))(self))  # type: ignore[arg-type]
            object.__setattr__(self, "_hash", found)
            return found

    def expr(self) -> str:
        """Python text that evaluates to the value, given the names of an entry."""
        raise NotImplementedError

    def name(self) -> str:
        """The path as users write it, for messages and as a key of what varies."""
        return self.expr()

    def attr(self, name: str) -> Attr:
        """The path to an attribute of the value."""
        return Attr(self, name)

    def item(self, key: Any) -> Item:
        """The path to an item of the value."""
        return Item(self, key)


@dataclass(frozen=True, slots=True)
class Arg(Source):
    param: str

    def expr(self) -> str:
        return self.param


@dataclass(frozen=True, slots=True)
class Global(Source):
    """`module` is "" for the compiled function's own globals, else a module in sys.modules."""

    key: str
    module: str = ""

    def expr(self) -> str:
        return f"G[{self.key!r}]" if not self.module else f"M[{self.module!r}].__dict__[{self.key!r}]"

    def name(self) -> str:
        return self.key


#: Python's own, from before the program puts others in their place (this file is imported with the package).
BUILTINS = MappingProxyType(dict(vars(builtins)))


@dataclass(frozen=True, slots=True)
class Globals(Source):
    """The table in which a `Global` is found."""

    module: str = ""

    def expr(self) -> str:
        return "G" if not self.module else f"M[{self.module!r}].__dict__"

    def name(self) -> str:
        return f"globals of {self.module}" if self.module else "globals"


@dataclass(frozen=True, slots=True)
class Cell(Source):
    index: int
    label: str

    def expr(self) -> str:
        return f"F.__closure__[{self.index}].cell_contents"

    def name(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Bound(Source):
    index: int
    label: str

    def expr(self) -> str:
        return f"K[{self.index}]"

    def name(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Attr(Source):
    base: Source
    field: str

    def expr(self) -> str:
        return f"{self.base.expr()}.{self.field}"

    def name(self) -> str:
        return f"{self.base.name()}.{self.field}"


@dataclass(frozen=True, slots=True)
class Standing(Source):
    """How far an iterator of a suspended loop has come."""

    base: Source

    def expr(self) -> str:
        return f"{self.base.expr()}.position"

    def name(self) -> str:
        return f"the round of {self.base.name()}"


@dataclass(frozen=True, slots=True)
class Item(Source):
    """`base[key]`; the key is a literal (int, str, tuple of them, ...)."""

    base: Source
    key: Any

    def expr(self) -> str:
        return f"{self.base.expr()}[{literal(self.key)}]"

    def name(self) -> str:
        return f"{self.base.name()}[{literal(self.key)}]"


@dataclass(frozen=True, slots=True)
class DictGet(Item):
    """The entry of a dictionary whose class does something about missing keys: looking for one must not."""

    def expr(self) -> str:
        return f"dict.get({self.base.expr()}, {literal(self.key)})"


#: Templates of Computed sources that a check of many guards at once knows how to answer: of a tensor,
IS_VIEW = "{}._is_view()"
HOOKLESS = "(not {0}._backward_hooks and not {0}._post_accumulate_grad_hooks)"
#: of a container,
LENGTH = "len({})"
#: and of a tensor that is made of others, by what knows how it looked.
LOOKS_LIKE = "{}.fits({})"
#: Which operand is asked about.
ASKED_OF = {IS_VIEW: 0, HOOKLESS: 0, LENGTH: 0, LOOKS_LIKE: 1}


@dataclass(frozen=True, slots=True)
class Computed(Source):
    """Plain Python on values from outside: `template` with the texts of `operands` filled in."""

    template: str
    operands: tuple[Source, ...]

    def expr(self) -> str:
        return self.template.format(*(operand.expr() for operand in self.operands))

    def name(self) -> str:
        return self.template.format(*(operand.name() for operand in self.operands))

    @property
    def length(self) -> int:
        """How many operations it takes, shared ones counted as often as they occur."""
        return 1 + sum(operand.length for operand in self.operands if isinstance(operand, Computed))


@dataclass(frozen=True, slots=True)
class KeyAt(Source):
    """The key of `base` at a place in its order."""

    base: Source
    place: int

    def expr(self) -> str:
        return f"[*{self.base.expr()}][{self.place}]"

    def name(self) -> str:
        return f"the key {self.place} of {self.base.name()}"


@dataclass(frozen=True, slots=True)
class ValueAt(Source):
    """What the dictionary `base` holds at a place in its order."""

    base: Source
    place: int

    def expr(self) -> str:
        return f"[*{self.base.expr()}.values()][{self.place}]"

    def name(self) -> str:
        return f"the value {self.place} of {self.base.name()}"


@dataclass(frozen=True, slots=True)
class TypeOf(Source):
    base: Source

    def expr(self) -> str:
        return f"type({self.base.expr()})"


@dataclass(frozen=True, slots=True)
class Member(Source):
    """`base.field` of an `nn.Module`, read from its `_parameters`, `_buffers` or `_modules`."""

    base: Source
    table: str
    field: str

    def expr(self) -> str:
        return f"{self.base.expr()}.{self.table}[{self.field!r}]"

    def name(self) -> str:
        return f"{self.base.name()}.{self.field}"


@dataclass(frozen=True, slots=True)
class RawAttr(Source):
    """`base.field` as the instance's dictionary has it, for classes that compute attributes of that name."""

    base: Source
    field: str

    def expr(self) -> str:
        return f"object.__getattribute__({self.base.expr()}, '__dict__')[{self.field!r}]"

    def name(self) -> str:
        return f"{self.base.name()}.{self.field}"


@dataclass(frozen=True, slots=True)
class OwnDict(Source):
    """The instance's dictionary, whatever its class makes of `__dict__`."""

    base: Source

    def expr(self) -> str:
        return f"object.__getattribute__({self.base.expr()}, '__dict__')"

    def name(self) -> str:
        return f"{self.base.name()}.__dict__"


@dataclass(frozen=True, slots=True)
class RawItem(Source):
    """`base[key]` as the built-in type `kind` has it, for subclasses that define `__getitem__`."""

    base: Source
    key: Any
    kind: str

    def expr(self) -> str:
        return f"{self.kind}.__getitem__({self.base.expr()}, {literal(self.key)})"

    def name(self) -> str:
        return f"{self.base.name()}[{literal(self.key)}]"


@dataclass(frozen=True, slots=True)
class Keyed(Source):
    """The entry of `base` under the object at `key`. A defaultdict makes none for being asked."""

    base: Source
    key: Source

    def expr(self) -> str:
        return self.loaded(self.base.expr(), self.key.expr())

    def name(self) -> str:
        return f"{self.base.name()}[{self.key.name()}]"

    def loaded(self, base: str, key: str) -> str:
        """The text that reads it, of the texts of its parts."""
        return f"{base}.get({key})"


@dataclass(frozen=True, slots=True)
class ComputedItem(Keyed):
    """The item of `base`, a dictionary or a sequence, under a number or text that differs from call to call, or under a
    key without a literal form."""

    mapping: bool = False

    def loaded(self, base: str, key: str) -> str:
        return f"{base}.get({key})" if self.mapping else f"{base}[{key}]"


@dataclass(frozen=True, slots=True)
class ComputedAttr(ComputedItem):
    """The attribute of `base` whose name is the text at `key`."""

    def loaded(self, base: str, key: str) -> str:
        return f"getattr({base}, {key})"

    def name(self) -> str:
        return self.expr()


@dataclass(frozen=True, slots=True)
class RawView(Source):
    """`dict.keys(base)` or the length of a list or tuple, for subclasses that define `__iter__` or `__len__`."""

    base: Source
    call: str

    def expr(self) -> str:
        return f"{self.call}({self.base.expr()})"

    def name(self) -> str:
        return self.base.name()


@dataclass(frozen=True, slots=True)
class FromArray(Source):
    """A tensor over the memory of the NumPy array at `array`; each load makes a new one.

    The path is not called `base`: no check of memory reaches a tensor that exists only while it is loaded.
    """

    array: Source
    scalar: bool = False

    def expr(self) -> str:
        text = self.array.expr()
        loaded = f"M['numpy'].array({text})" if self.scalar else text
        return f"M['torch'].from_numpy({loaded})"

    def name(self) -> str:
        return self.array.name()


@dataclass(frozen=True, slots=True)
class Drawn(Source):
    """What call number `index` of a random generator gave, which the residual makes once."""

    index: int
    PREFIX: ClassVar[str] = "_drawn"

    def expr(self) -> str:
        return f"{self.PREFIX}{self.index}"

    def name(self) -> str:
        return f"random number {self.index}"


def path(source: Any) -> Iterator[Source]:
    """The source and what it leads through, from the end to the root."""
    while source is not None:
        yield source
        source = getattr(source, "base", None)


def object_of(source: Source) -> Source:
    """The path to the object that the user has: an array, not the tensor that stands for it."""
    return source.array if isinstance(source, FromArray) else source
