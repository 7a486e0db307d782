"""`export`: capture, what was declared of sizes, and the graph, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from dovetail import guards
from dovetail.diagnostics.events import Events
from dovetail.diagnostics.times import RECORDS
from dovetail.errors import GraphBreakError, InvalidArgument, Unsupported
from dovetail.exporting import arguments, graph, outcome, ranges, shapes, state
from dovetail.exporting.arguments import VALUE, Arguments
from dovetail.exporting.program import ExportedProgram
from dovetail.exporting.ranges import DeclaredSizes
from dovetail.exporting.shapes import Place, Wanted
from dovetail.exporting.signature import Constant, ExportSignature, Input, SignatureNumber, Tensor
from dovetail.ir import dims
from dovetail.ir.captured import Captured
from dovetail.ir.dims import Symbol
from dovetail.ir.settings import AUTOCAST_DEVICES
from dovetail.ir.source import Attr, Computed, Item
from dovetail.ir.varying import ATTRIBUTE, Marks, Varying
from dovetail.ops.fake.symbolic.sizes import LEAST
from dovetail.ops.fake.symbolic.symint import symint
from dovetail.ops.fake.tensor import FakeTensor
from dovetail.request import Request, describe, imported


def export(fn: Callable[..., Any], args: Any, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> ExportedProgram:
    """See `dovetail.export`."""
    _refuse_no_program(fn)
    on = [device for device in AUTOCAST_DEVICES if torch.is_autocast_enabled(device)]
    if on:
        raise InvalidArgument(f"export: autocast is on for {on[0]}; enter it in the program, or export outside of it")
    given = arguments.read(fn, args, kwargs)
    wanted = shapes.read(dynamic_shapes, fn, given)
    numbers = {given.source(leaf): (leaf, dim) for leaf, dim in wanted if dim == VALUE}
    with _marked(given, wanted):
        captured = _captured(given, numbers, describe(fn))
        wanted = ranges.without_constants(captured, wanted, numbers, given)
        symbols = _symbols(captured, given, wanted, numbers)
    try:
        found = ranges.settle(captured, wanted, symbols, given)
        stand_ins = [_stand_in(captured, leaf, _sizes(leaf, k, found)) for k, leaf in enumerate(given.leaves)]
        result = outcome.find(captured, state.owner_of(fn), given, stand_ins)
        tensors = state.of_program(fn)
        made = graph.build(captured, given, stand_ins, found, result, tensors)
    except Unsupported as error:
        raise _as_graph_break(error) from error.__cause__
    inputs = tuple(_input(given, k, found) for k in range(len(given.leaves)))
    training = fn.training if isinstance(fn, torch.nn.Module) else None
    signature = ExportSignature(
        given.names, given.positional, inputs, found.sizes, found.conditions, given.spec, result.spec, training,
        tuple(exchange.names for exchange in result.exchanges),
    )  # fmt: skip
    return ExportedProgram(made, signature, tensors)


def _refuse_no_program(fn: Any) -> None:
    said = ""
    if isinstance(fn, type):
        said = f"the class {fn.__name__}: make an object of it"
    elif hasattr(fn, "graph_signature") or isinstance(fn, ExportedProgram):
        said = "an exported program already: its module() can be exported"
    elif not callable(fn):
        said = f"{fn!r}, a {type(fn).__name__}"
    if said:
        raise InvalidArgument(f"export takes a function, a method or an nn.Module, not {said}")


def _captured(given: Arguments, numbers: Iterable[str], described: tuple[str, str]) -> Captured:
    """The program as one graph, in which sizes and numbers that are declared vary, each on its own."""
    options = replace(Request(fullgraph=True, backend="eager").options(), standalone=True)
    events = Events(RECORDS.start(*described, 0, []), [])
    pipeline = imported("dovetail.pipeline", events)
    try:
        varying = Varying(frozenset(numbers), apart=True)
        captured = pipeline.trace(given.program, *given.of_leaves(given.leaves), options, events, varying)
    except Unsupported as error:
        raise _as_graph_break(error) from error.__cause__
    return captured


def _as_graph_break(error: Unsupported) -> GraphBreakError:
    return GraphBreakError(error.code, error.reason, error.remedy, error.stack, error.refusals)


# ---------------------------------------------------------------- sizes


@contextmanager
def _marked(given: Arguments, wanted: Mapping[Place, Wanted]) -> Iterator[None]:
    """For the time of a capture, the tensors say which of their sizes vary, and nothing else."""
    before = {k: vars(t).get(ATTRIBUTE) for k, t in enumerate(given.leaves) if isinstance(t, torch.Tensor)}
    try:
        for k in before:
            mine = {dim: w for (leaf, dim), w in wanted.items() if leaf == k}
            dynamic = {dim: w.bounds for dim, w in mine.items() if w.must}
            perhaps = frozenset(dim for dim, w in mine.items() if not w.must)
            static = frozenset(range(given.leaves[k].dim())) - mine.keys()
            names = {dim: (w.name, w.scale, w.offset) for dim, w in mine.items() if w.name is not None}
            setattr(given.leaves[k], ATTRIBUTE, Marks(dynamic, perhaps, static, names=names))
        yield
    finally:
        for k, marks in before.items():
            delattr(given.leaves[k], ATTRIBUTE)
            if marks is not None:
                setattr(given.leaves[k], ATTRIBUTE, marks)


def _symbols(
    captured: Captured, given: Arguments, wanted: Mapping[Place, Wanted], numbers: Mapping[str, Place]
) -> dict[Place, Symbol]:
    """The symbol of each declared dimension: one that capture has made, or a new one if it never looked at it."""
    positions = {id(leaf): k for k, leaf in enumerate(given.leaves)}
    found: dict[Place, Symbol] = {}
    for symbol, origin in captured.symbols.items():
        source: Any = origin.source
        if isinstance(source, Item) and isinstance(source.base, Attr) and source.base.field == "shape":
            (tensor,) = guards.load(captured, given.program, [source.base.base], *given.of_leaves(given.leaves))
            if id(tensor) in positions:
                found[positions[id(tensor)], source.key] = symbol
                continue
        if source.name() in numbers:
            found[numbers[source.name()]] = symbol
            continue
        if isinstance(source, Computed):
            continue
        raise InvalidArgument(f"export: {origin.source.name()} is marked dynamic, but is no size of an argument")
    for leaf, dim in wanted.keys() - found.keys():
        taken = {symbol.name for symbol in (*captured.symbols, *found.values())}
        name = next(n for n in (f"s{k}" for k in itertools.count()) if n not in taken)
        made = captured.sizes.symbol(name, given.size(leaf, dim), LEAST if dim == VALUE else 0)
        found[leaf, dim] = dims.as_symbol(made)
    return {place: found[place] for place in wanted}


def _stand_in(captured: Captured, leaf: Any, sizes: Sequence[Any]) -> Any:
    if type(leaf) is int and sizes:
        return symint(captured.sizes, sizes[0])
    if all(isinstance(size, int) for size in sizes):
        return leaf
    symbolic = [symint(captured.sizes, size) for size in sizes]
    return FakeTensor(symbolic, leaf.stride(), leaf.dtype, leaf.device)


def _sizes(leaf: Any, k: int, found: DeclaredSizes) -> list:
    if (k, VALUE) in found.dims:
        return [found.dims[k, VALUE]]
    return [found.dims.get((k, dim), size) for dim, size in enumerate(leaf.shape)] if _is_tensor(leaf) else []


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _input(given: Arguments, k: int, found: DeclaredSizes) -> Input:
    leaf, name, path = given.leaves[k], given.identifiers[k], given.paths[k]
    sizes = tuple(found.formulas.of_dim(size) for size in _sizes(leaf, k, found))
    if not _is_tensor(leaf):
        varies = bool(sizes) and not isinstance(sizes[0], int)
        return SignatureNumber(name, path, sizes[0]) if varies else Constant(name, path, leaf)
    return Tensor(name, path, leaf.dtype, sizes)
