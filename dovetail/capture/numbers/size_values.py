"""Sizes that differ from call to call: which sizes of a tensor from outside do, and what is done with one.

A size is a `SizeValue`, a Dim over symbols that stand for sizes of inputs. Arithmetic on sizes is the Dims'; a
comparison relies on its outcome only (`ops/fake/symbolic/sizes.py`). An operation gets a size as an input of the graph,
one for each distinct expression, which the residual computes. Numbers that vary become symbols where they meet sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import torch

from dovetail.capture.outside.wrap import FRESH
from dovetail.capture.values.base import Const, RestartCapture, Value
from dovetail.capture.values.callables import CellValue
from dovetail.capture.values.containers import DictValue, SequenceValue, TupleValue
from dovetail.capture.values.scalar import GraphNumber, ScalarValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.errors import SpecializedDimension, Unsupported
from dovetail.ir import dims
from dovetail.ir.captured import GraphInput, Origin
from dovetail.ir.dims import Dim, Symbol
from dovetail.ir.guard import Follows, Guard, GuardKind, TensorFacts
from dovetail.ir.literals import literal
from dovetail.ir.records import dataclass
from dovetail.ir.sizesource import NAMES, size_of, source_of, too_long
from dovetail.ir.source import Attr, Computed, Item, Source
from dovetail.ir.varying import Varying, marks_of
from dovetail.ops.fake.rules.layout import contiguous
from dovetail.ops.fake.symbolic.sizes import AT_LEAST, EQUAL, MARKED, UNEQUAL, Sizes
from dovetail.ops.fake.symbolic.symint import dim_of, is_size, symint
from dovetail.ops.fake.tensor import FakeTensor

if TYPE_CHECKING:
    from dovetail.capture.session import Session

Bounds = tuple[int | None, int | None]


@dataclass
class Known:
    """One symbol: where it comes from first, all sizes that share it, and what the user said of it."""

    dim: Dim
    source: Source
    names: list[str]
    size: int
    bounds: Bounds = (None, None)
    marked: bool = False


@dataclass
class SizeTable:
    """What one capture knows of sizes that vary."""

    sizes: Sizes
    varying: Varying
    symbols: dict[Symbol, Known] = field(default_factory=dict)
    nodes: dict[Dim, Any] = field(default_factory=dict)  # placeholders of sizes
    seen: dict[str, int] = field(default_factory=dict)  # all sizes of tensors from outside
    numbers: dict[Source, Dim] = field(default_factory=dict)
    late: dict[Symbol, tuple[Any, int | None]] = field(default_factory=dict)  # the node that tells it, and where
    refused: int = 0  # who is at work does not know late sizes
    repeatable: bool = True  # has nothing been done that shows when the graph finds that a late size is another one?
    stated: set[Any] = field(default_factory=set)  # facts about those that the program checks itself

    @property
    def sources(self) -> dict[Symbol, Source]:
        return {symbol: known.source for symbol, known in self.symbols.items()}

    @property
    def origins(self) -> dict[Symbol, Origin]:
        return {symbol: Origin(known.dim, known.source, known.marked) for symbol, known in self.symbols.items()}


class SizeValue(ScalarValue):
    """An integer made of sizes. Asking for its value relies on it."""

    __slots__ = ("dim",)

    def __init__(self, s: Session, dim: Dim) -> None:
        self.s, self.dim = s, dim
        self.real = s.table.sizes.hint(dim)
        self.source = source_of(dim, s.table.sources)

    @property
    def seen(self) -> bool:  # type: ignore[override]
        return isinstance(self.s.table.sizes.resolve(self.dim), int)

    @property
    def value(self) -> int:
        return self.s.table.sizes.value(self.dim)

    def __repr__(self) -> str:
        return f"<SizeValue {self.dim}>"


def size_value(s: Session, dim: Any) -> Value:
    """The value for a Dim, or for what PyTorch gives as a size."""
    if isinstance(dim, torch.SymInt) and dim.node.is_nested_int():
        s.unsupported("nested-tensor", "the code reads the size of a ragged dimension, which is no number")
    dim = dim_of(dim) if isinstance(dim, torch.SymInt) else s.table.sizes.resolve(dim)
    if isinstance(dim, int):
        return Const(dim)
    if s.table.sizes.is_late(dim):
        return s.late_number(dim)
    return Const(s.table.sizes.value(dim)) if too_long(dim) else SizeValue(s, dim)


# ---------------------------------------------------------------- tensors from outside


@dataclass(frozen=True)
class Layout:
    """Sizes and strides of an input, symbolic ones among them, and what its facts say instead."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    changes: dict[str, Any]

    def applied(self, facts: TensorFacts) -> TensorFacts:
        return replace(facts, **self.changes)


def is_resized(s: Session, real: torch.Tensor, source: Source) -> bool:
    """Was a size of the tensor at this path seen to change?"""
    return any(s.table.varying.changed(size_of(source, k).name()) for k in range(real.dim()))


def laid_out(s: Session, real: torch.Tensor, source: Source) -> Layout | None:
    """The layout of an input with sizes that vary; None where all are constants."""
    before = set(s.table.symbols)
    sizes: list[Dim] = [_input_size(s, real, source, k) for k in range(real.dim())]
    steps = [Item(Attr(source, "stride()"), k) for k in range(real.dim())]
    free = [k for k, step in enumerate(steps) if s.table.varying.changed(step.name())]
    if not free and all(isinstance(size, int) for size in sizes):
        return None
    shared = s.table.sources
    shown = tuple(
        n if isinstance(n, int) else shared[dims.as_symbol(n)] if dims.as_symbol(n) in before else None for n in sizes
    )
    plain = not free and tuple(real.stride()) == contiguous(real.shape) and not {0, 1}.intersection(shown)
    if plain:
        strides, facts = list(contiguous(sizes)), (None,) * len(sizes)
    else:
        strides, facts = _strides(s, real, sizes, {k: steps[k] for k in free})
    changes = {"sizes": shown, "strides": facts, "contiguous": plain}
    return Layout(_symints(s, sizes), _symints(s, strides), changes)


def _symints(s: Session, values: Any) -> tuple[Any, ...]:
    return tuple(symint(s.table.sizes, v) for v in values)


def _input_size(s: Session, real: torch.Tensor, source: Source, k: int) -> Dim:
    place, size, marks = size_of(source, k), real.shape[k], marks_of(real)
    name, table = place.name(), s.table
    table.seen[name] = size
    marked = k in marks.dynamic
    if not marked:
        everything = name in table.varying and size > 1 and not isinstance(real, torch.nn.Parameter)
        wanted = k in marks.perhaps or everything or table.varying.changed(name)
        if not wanted or k in marks.static or name in table.varying.constant:
            return size
    made = _symbol(s, place, size, marks.dynamic.get(k, (None, None)), marked)
    if k in marks.names:
        table.sizes.declare(made, *marks.names[k])
    return made


def _symbol(s: Session, place: Source, size: int, bounds: Bounds = (None, None), marked: bool = False) -> Dim:
    """A symbol for a size; the one of another that was equal to it in every call so far."""
    table, name = s.table, place.name()
    for known in table.symbols.values():
        alike = known.size == size and known.bounds == bounds and known.names
        if alike and all(table.varying.alike(name, other) for other in known.names):
            known.names.append(name)
            known.marked |= marked
            if getattr(place, "base", place) == getattr(known.source, "base", None):
                # other tensors' facts name the size
                condition = Computed("({} == {})", (place, known.source))
                s.relied.guards.append(Guard(place, GuardKind.SIZE, condition, s.user_line()))
            return known.dim
    return new_symbol(s, place, size, [name], bounds, marked)


def new_symbol(
    s: Session, source: Source, value: int, names: list[str], bounds: Bounds = (None, None), marked: bool = False
) -> Dim:
    table = s.table
    s.residual.names.update(NAMES)
    dim = table.sizes.symbol(f"s{len(table.symbols)}", value)
    table.symbols[dims.as_symbol(dim)] = Known(dim, source, names, value, bounds, marked)
    where, table.sizes.where = table.sizes.where, lambda: MARKED
    if bounds[0] is not None:
        table.sizes.holds(AT_LEAST, dim - bounds[0])
    if bounds[1] is not None:
        table.sizes.holds(AT_LEAST, bounds[1] - dim)
    table.sizes.where = where
    return dim


def _strides(
    s: Session, real: torch.Tensor, sizes: list[Dim], free: dict[int, Source]
) -> tuple[list[Dim], tuple[Any, ...]]:
    """Strides as products of sizes further in where they are, and what guards say of them.

    How a result is laid out depends on their order, and on whether they leave gaps: for free ones, that is relied on.
    """
    strides: list[Dim] = list(real.stride())
    facts: list[Any] = list(strides)
    step: Dim = 1
    expected, inner = 1, -1
    opened: set[Any] = set()
    for k in sorted(range(real.dim()), key=lambda k: (real.stride(k), real.shape[k])):
        if real.stride(k) == 0:
            continue
        if real.stride(k) == expected:
            if not isinstance(step, int):
                strides[k], facts[k] = step, Follows(inner)
        elif k in free:
            strides[k], facts[k] = new_symbol(s, free[k], real.stride(k), []), None
            opened |= dims.symbols(strides[k])
        if opened & {*dims.symbols(strides[k]), *dims.symbols(step)}:
            _keep_order(s.table.sizes, strides[k], step, strides[inner])
        step, expected, inner = strides[k] * sizes[k], real.stride(k) * real.shape[k], k
    return strides, tuple(facts)


def _keep_order(sizes: Any, stride: Dim, end: Dim, inner: Dim) -> None:
    """Relies on the order of two strides, and on which side of the end of what lies further in one of them is."""
    beyond = sizes.hint(stride - end)
    if beyond > 0:
        sizes.holds(AT_LEAST, stride - end - 1)
    elif beyond < 0:
        sizes.holds(AT_LEAST, end - stride - 1)
        if not sizes.holds(EQUAL, stride - inner):
            sizes.holds(AT_LEAST, stride - inner - 1)


def show_strides(s: Session, value: Any) -> None:
    """The program sees a tensor's strides: they are products of sizes only where none is 0, or strange beside a 1."""
    sizes = s.table.sizes
    involved = {symbol for dim in _dims_of(value.fake) for symbol in dims.symbols(dim)}
    for dim in map(dim_of, value.fake.shape):
        if not isinstance(dim, int) and not sizes.holds(AT_LEAST, dim - 1):
            raise SizesConstant(_names(s, involved), f"the strides of an empty tensor are asked for  # {s.user_line()}")
    if involved and value.origin is not None and value.source is not None:
        for k, step in enumerate(map(dim_of, value.fake.stride())):
            place = Item(Attr(value.source, "stride()"), k)
            formula = source_of(step, s.table.sources) if not isinstance(step, int) else None
            template = "({} == {})" if formula is not None else f"({{}} == {step})"
            condition = Computed(template, (place, formula) if formula is not None else (place,))
            s.relied.guards.append(Guard(value.source, GuardKind.SIZE, condition, s.user_line()))


# ---------------------------------------------------------------- what the graph takes


def size_node(s: Session, dim: Dim, placeholder: Callable[[Any, Source], Any]) -> Any:
    """The graph input for a size."""
    node = s.table.nodes.get(dim)
    if node is None:
        source = source_of(dim, s.table.sources)
        node = s.table.nodes[dim] = placeholder(s, source)
        node.meta["fake"] = fake = symint(s.table.sizes, dim)
        s.taken.inputs.append((node, GraphInput(source, fake)))
    return node


def is_open_size(value: Any) -> bool:
    return type(value) is SizeValue and not value.seen or is_late_size(value)


def is_late_size(value: Any) -> bool:
    return type(value) is GraphNumber and value.dim is not None


def as_argument(s: Session, value: Any) -> Dim | None:
    """A number that varies as a size, where an operation takes none; None if it cannot be one."""
    dim = as_dim(s, value) if value.cls is int else None
    return None if isinstance(dim, int) else dim


def settle(s: Session) -> None:
    """Sizes that the entry came to rely on after all are constants of the graph."""
    for dim, node in s.table.nodes.items():
        known = s.table.sizes.resolve(dim)
        if isinstance(known, int) and not s.table.sizes.is_late(dim):
            _replace(node, known)


def _replace(node: Any, known: int) -> None:
    def put(argument: Any) -> Any:
        return known if argument is node else argument

    for user in list(node.users):
        user.args, user.kwargs = torch.fx.map_arg(user.args, put), torch.fx.map_arg(user.kwargs, put)


def bind_symbols(s: Session, placeholder: Callable[[Any, Source], Any]) -> set[Any]:
    """Placeholders without users that tell the graph symbols which its other inputs do not."""
    needed, given = set(), set()
    if not s.table.symbols:
        return set()
    for node in s.root.nodes:
        fake = node.meta.get("fake")
        found = _dims_of(fake)
        if node.op == "placeholder":
            given |= set(found) if node.users else set()
        if node.op != "placeholder" or node.users:
            needed |= {symbol for dim in found for symbol in dims.symbols(dim)}
    missing = [known.dim for symbol, known in s.table.symbols.items() if symbol in needed and known.dim not in given]
    return {size_node(s, dim, placeholder) for dim in missing}


def _dims_of(fake: Any) -> list[Dim]:
    return [dim_of(n) for n in _sizes_in(fake)]


def _sizes_in(fake: Any) -> list[Any]:
    """The sizes and strides of tensors, and integers with symbols, in what an operation takes or gives."""
    if isinstance(fake, torch.Tensor):
        if fake.layout is torch.jagged:
            return []  # an entry holds for one size of each tensor that it is made of
        return [*fake.shape, *(fake.stride() if fake.layout is torch.strided else ())]
    if isinstance(fake, (tuple, list)):
        return [n for item in fake for n in _sizes_in(item)]
    if isinstance(fake, slice):
        return _sizes_in((fake.start, fake.stop, fake.step))
    return [fake] if is_size(fake) else []


# ---------------------------------------------------------------- what is handed on


def varying_parts(value: Any, depth: int = 3) -> list[str]:
    """The paths, from a value that a graph break hands on, to sizes in it that vary."""
    if isinstance(value, TensorValue):
        return [f".shape[{k}]" for k, n in enumerate(value.fake.shape) if is_size(n) and not isinstance(dim_of(n), int)]
    if is_open_size(value):
        return [""]
    if not depth or not isinstance(value, (CellValue, SequenceValue, DictValue)):
        return []
    return [f"{step}{part}" for step, item in _items(value) for part in varying_parts(item, depth - 1)]


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, CellValue):
        return [(".cell_contents", value.contents)]
    if isinstance(value, DictValue) and value.unread is not None:
        return []  # asking would rely on what it holds
    if isinstance(value, DictValue):
        return [(f"[{literal(key)}]", item) for key, (_, item) in value.entries.items() if type(key) in (int, str)]
    return [(f"[{k}]", item) for k, item in enumerate(value.head)] if value.span is None else []


# ---------------------------------------------------------------- what takes no symbols


class SizesConstant(RestartCapture):
    """Something cannot be done with the sizes `names` symbolic."""

    def __init__(self, names: list[str], reason: str) -> None:
        self.names, self.reason = names, reason


def retry_as_constants(s: Session, function: Callable[..., Any], args: Any, kwargs: Any, error: Exception) -> Exception:
    """Raise SizesConstant if the operation would succeed on the sizes of this call; else the error that shows these."""
    given = [getattr(function, "__self__", None), *args, *kwargs.values()]
    found = [n for value in given for n in _sizes_in(value) if is_size(n)]
    involved = {symbol for n in found for symbol in dims.symbols(dim_of(n))}
    if not found or any(words in str(error) for words in OF_AUTOGRAD):
        return error
    if any(map(s.table.sizes.is_late, map(dim_of, found))):
        raise _refused(s, function, error) from error
    try:
        _with_numbers(s, function, args, kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError, NotImplementedError) as shown:
        for symbol in sorted(involved):
            s.table.sizes.value(s.table.symbols[symbol].dim)
        return shown
    known = [s.table.symbols[symbol] for symbol in sorted(involved)]
    for marked in (k for k in known if k.marked):
        raise SpecializedDimension(marked.source.name(), marked.size, s.user_line())
    operation = getattr(function, "__name__", str(function))
    if not involved:  # all of them are constant by now
        raise Unsupported("no-shape-rule", f"the result of {operation} cannot be predicted: {error}", "", s.stack())
    reason = f"{operation} takes no symbolic sizes ({str(error).splitlines()[0]})  # {s.user_line()}"
    raise SizesConstant(_names(s, involved), reason)


LEAF = "leaf Variable that requires grad"
OF_AUTOGRAD = ("modified inplace", LEAF)  # in what is refused at any size


def _refused(s: Session, function: Any, error: Exception) -> Unsupported:
    """An operation that cannot be predicted for late sizes."""
    name, words = getattr(function, "__name__", str(function)), str(error).splitlines() or [type(error).__name__]
    return Unsupported(
        "data-dependent-size", f"{name} cannot be part of a graph for sizes that are only known when it runs: "
        f"{words[0]}", "State what is known of them with torch._check, or call this outside the compiled function.",
        s.stack(),
    )  # fmt: skip


def _names(s: Session, symbols: set[Symbol]) -> list[str]:
    known = [s.table.symbols[symbol] for symbol in sorted(symbols)]
    return [n for k in known for n in k.names or _leaves(k.source)]


def _leaves(source: Source) -> list[str]:
    if isinstance(source, Computed):
        return [name for operand in source.operands for name in _leaves(operand)]
    return [source.name()]


def _with_numbers(s: Session, function: Any, args: Any, kwargs: Any) -> None:
    copies: dict[int, Any] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            made = copies.get(id(value))
            if made is None:
                sizes = [s.table.sizes.hint(dim_of(n)) for n in value.shape]
                strides = [s.table.sizes.hint(dim_of(n)) for n in value.stride()]
                offset = s.table.sizes.hint(dim_of(value.storage_offset()))
                made = FakeTensor(sizes, strides, value.dtype, value.device, offset)
                copies[id(value)] = made
            return made
        if isinstance(value, (list, tuple)):
            return type(value)(map(plain, value))
        if isinstance(value, slice):
            return slice(plain(value.start), plain(value.stop), plain(value.step))
        return s.table.sizes.hint(dim_of(value)) if is_size(value) else value

    receiver = getattr(function, "__self__", None)
    function = getattr(plain(receiver), function.__name__) if isinstance(receiver, torch.Tensor) else function
    with torch.no_grad():
        function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})


# ---------------------------------------------------------------- what the program does with them


def as_dim(s: Session, value: Any) -> Dim | None:
    """The Dim of an integer; None for what is none."""
    if type(value) is SizeValue or is_late_size(value):
        return s.table.sizes.resolve(value.dim)
    if isinstance(value, ScalarValue) and not value.seen:
        return _number(s, value)
    if isinstance(value, Const) and value.cls in (int, bool):
        return int(value.value)
    return None


def _number(s: Session, value: ScalarValue) -> Dim | None:
    """A symbol for a natural number from outside."""
    if type(value.real) is not int or not 0 <= value.real < 2**31:
        return None
    source: Any = value.source
    found = s.table.numbers.get(source)
    if found is None:
        s.guard(Computed("(0 <= {} < 0x80000000)", (source,)), GuardKind.ID, True)
        found = s.table.numbers[source] = new_symbol(s, source, value.real, [])
    return found


def binary(s: Session, name: str, left: Any, right: Any) -> Value | None:
    """`left op right` where a size takes part; None where the result is no Dim."""
    if not (is_open_size(left) or is_open_size(right)) or name not in _BINARY:
        return None
    a, b = as_dim(s, left), as_dim(s, right)
    if a is None or b is None:
        return None
    made = _BINARY[name](s.table.sizes, a, b)
    return None if made is None else size_value(s, made)


def _divided(function: Callable[[Dim, Dim], Dim]) -> Callable[[Sizes, Dim, Dim], Dim | None]:
    """The Dims' divisions are by positive numbers."""
    return lambda sizes, a, b: function(a, b) if sizes.holds(AT_LEAST, b - 1) else None


def _power(sizes: Sizes, a: Dim, b: Dim) -> Dim | None:
    return dims.product([a] * b) if isinstance(b, int) and 0 <= b < 8 else None


_BINARY: dict[str, Callable[[Sizes, Dim, Dim], Dim | None]] = {
    "add": lambda sizes, a, b: a + b, "sub": lambda sizes, a, b: a - b, "mul": lambda sizes, a, b: a * b,
    "floordiv": _divided(dims.floordiv), "mod": _divided(dims.mod), "pow": _power,
}  # fmt: skip


def unary(s: Session, name: str, value: Any) -> Value | None:
    if not is_open_size(value) or name not in ("neg", "pos"):
        return None
    return size_value(s, -value.dim) if name == "neg" else value


CLAIMS: dict[str, Callable[[Dim], tuple[str, Dim]]] = {
    "==": lambda d: (EQUAL, d), "!=": lambda d: (UNEQUAL, d), ">=": lambda d: (AT_LEAST, d),
    ">": lambda d: (AT_LEAST, d - 1), "<=": lambda d: (AT_LEAST, -d), "<": lambda d: (AT_LEAST, -d - 1),
}  # fmt: skip


def compare(s: Session, sign: str, left: Any, right: Any) -> bool | None:
    """The entry relies on the outcome."""
    if not (is_open_size(left) or is_open_size(right)):
        return None
    a, b = as_dim(s, left), as_dim(s, right)
    return None if a is None or b is None else s.table.sizes.holds(*CLAIMS[sign](a - b))


def call(s: Session, function: Any, args: list[Any]) -> Value | None:
    """`function(*args)` for a native function of integers that gives one; None where it is not known here."""
    if not any(map(is_open_size, args)) or function not in _FUNCTIONS:
        return None
    found = [as_dim(s, arg) for arg in args]
    if None in found:
        return None
    made = _FUNCTIONS[function](s.table.sizes, *found)
    return None if made is None else size_value(s, made)


def _extreme(function: Callable[[Dim, Dim], Dim], least: bool) -> Callable[..., Dim]:
    def reduced(sizes: Sizes, first: Dim, *others: Dim) -> Dim:
        for other in others:
            below = sizes.known(AT_LEAST, other - first)  # is the first the smaller one?
            below = False if below is None and sizes.known(AT_LEAST, first - other) else below
            first = function(first, other) if below is None else first if below is least else other
        return first

    return reduced


def _absolute(sizes: Sizes, dim: Dim) -> Dim | None:
    return dim if sizes.known(AT_LEAST, dim) else -dim if sizes.known(AT_LEAST, -dim) else None


_FUNCTIONS: dict[Any, Callable[..., Dim | None]] = {
    int: lambda sizes, dim: dim, operator.index: lambda sizes, dim: dim, abs: _absolute,
    min: _extreme(dims.minimum, True), max: _extreme(dims.maximum, False),
}  # fmt: skip


def added(s: Session, values: list[Any]) -> Value | None:
    """The sum of integers, a size among them."""
    if not any(map(is_open_size, values)):
        return None
    found = [as_dim(s, value) for value in values]
    return None if None in found else size_value(s, sum(found))


FRESH[torch.Size] = lambda s, obj: TupleValue([size_value(s, v) for v in obj], torch.Size)
FRESH[torch.SymInt] = size_value
