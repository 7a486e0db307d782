"""The end of a capture: the graph is closed, and the residual around it written down."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from dovetail.capture.numbers import graph_numbers, unbacked_sizes
from dovetail.capture.numbers.size_table import bind_symbols, settle
from dovetail.capture.outside.distinct_objects import keyed_tensors, rely_on_separate_changes, rely_on_separate_keys
from dovetail.capture.outside.storage_offsets import forget_offsets
from dovetail.capture.residual import freed_gradients
from dovetail.capture.residual.graph_break import ResidualEnding
from dovetail.capture.residual.one_call import is_one_shot
from dovetail.capture.residual.rebuild import Rebuilder
from dovetail.capture.residual.replay_effects import effects
from dovetail.capture.state.thread_state import leave_changed, set_variables
from dovetail.capture.tables.graph_functions import remove_dead
from dovetail.capture.tensors import random_numbers
from dovetail.capture.tensors.assertions import HandlersNeeded
from dovetail.capture.tensors.autograd_engine import renewed
from dovetail.capture.tensors.new_leaves import rely_on_unseen
from dovetail.capture.tensors.repeatable import LEAVE, NOBODY, Repeatable, guarded_call, leave, leaving_call, repeatable
from dovetail.capture.tensors.wrapper_tensors import input_fake
from dovetail.capture.values.base import Session, Value
from dovetail.ir.captured import DRAWS, MODES_LEFT, Captured, GraphInput
from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.lazy_module import LazyGraphModule
from dovetail.ir.source import Bound, Drawn, FromArray, Keyed, Source, object_of
from dovetail.ops.fake import to_fake
from dovetail.ops.fake.wrapped import is_wrapper


def returning(s: Session, result: Value) -> ResidualEnding:
    """The tail of a residual that returns."""
    s.release_replaced()
    rebuilder = Rebuilder(s)
    set_variables(s, rebuilder)
    text = rebuilder.expr(result)
    replay = effects(rebuilder)
    replay += rebuilder.after_effects(replay)
    left = leave_changed(s, rebuilder)
    if left or s.modes.variables:
        rebuilder.changes.append(MODES_LEFT)
    return ResidualEnding(rebuilder, [*replay, *left, f"return {text}"], {})


def finish(s: Session, ending: ResidualEnding, function: Any) -> Captured:
    """What capture hands on. The graph is closed first: what follows asks which inputs it takes."""
    rebuilder = ending.rebuilder
    inputs = _close_graph(s, rebuilder)
    static = [s.relied.bound[i.source.index] for i in inputs if i.static]  # type: ignore[attr-defined]
    residual, freed = _residual(s, ending, inputs)
    unmade = s.options.backend == "dovetail"  # which runs the graph itself only where it cannot compile it
    module = (LazyGraphModule if unmade else torch.fx.GraphModule)(s.subgraphs, s.graph)
    names = {**rebuilder.names, **s.residual.names, "P": tuple(static), "F": function, "G": s.residual.globals}
    _distinct(s, inputs)
    rely_on_separate_changes(s)
    rely_on_separate_keys(s)
    forget_offsets(s)
    metrics = {"ops": sum(n.op.startswith("call") for n in s.graph.nodes)}
    bound = tuple(s.relied.bound)
    s.table.sizes.where = str  # what later stages rely on, they say themselves
    return Captured(
        module, inputs, _guards(s), residual, names, bound, (), metrics, ending.continuations, tuple(freed),
        sizes=s.table.sizes, repeatable=s.table.repeatable, symbols=s.table.origins, seen=s.table.seen,
        constants=s.table.varying.constant, one_shot=is_one_shot(s), prepared=bool(s.prepared),
        changes=tuple(rebuilder.changes), asked=tuple(s.relied.asked.values()), alone=s.relied.alone,
    )  # fmt: skip


def _close_graph(s: Session, rebuilder: Rebuilder) -> tuple[GraphInput, ...]:
    """The graph gets its output node and loses what nobody reads; its inputs, in order."""
    unbacked_sizes.settle(s)
    node = s.graph.output((*rebuilder.outputs, *graph_numbers.raising(s.graph, rebuilder.outputs)))
    node.meta["stack"] = ()
    remove_dead(s.graph)
    settle(s)
    kept = bind_symbols(s)
    used = [(n, i) for n, i in s.taken.inputs if n.users or n in kept]
    for n, _ in s.taken.inputs:
        if not n.users and n not in kept:
            s.graph.erase_node(n)
    inputs = tuple(_as_given(s, i) for i in _order(s.graph, used))
    rely_on_unseen(s, rebuilder.outputs, inputs)
    return inputs


def _residual(s: Session, ending: ResidualEnding, inputs: tuple[GraphInput, ...]) -> tuple[str, list]:
    """The text of the residual, and what it lets go before the graph runs.

    Its parts, in order: draws, inputs, renewed leaves, gradients let go, the graph, results and effects.
    """
    rebuilder = ending.rebuilder
    loading = Loading([i.source for i in inputs if not i.static and isinstance(i.fake, torch.Tensor)])
    call = _call(s, rebuilder, loading, inputs)
    first = renewed(s, rebuilder.entry)
    repeated = _repeated(s, bool(first or call))
    guarded = repeated is not Repeatable.NEVER
    freed, free, restored = freed_gradients.lines(s, loading.text, [*rebuilder.lines, *ending.lines], guarded)
    draws, put_back = random_numbers.lines(s, guarded)
    rebuilder.changes += [replace(DRAWS, stack=draw.stack) for draw in s.random.draws[:1]]
    s.residual.names.update(random_numbers.names(s))
    if guarded:
        first = guarded_call(first, s.residual.header, put_back, Repeatable.ALWAYS, s.ends.blocks)
        call = guarded_call(call, s.residual.header, [*restored, *put_back], repeated, s.ends.blocks)
        s.residual.names.update(freed_gradients.NAMES, **NOBODY)
    else:
        first, call = [], leaving_call([*first, *call], s.ends.blocks)
    s.residual.names.update({LEAVE: leave} if s.ends.blocks else {})
    before, after = [*draws, *rebuilder.prelude, *loading.lines], [*rebuilder.lines, *ending.lines]
    body = "\n    ".join([*before, *first, *free, *call, *after])
    return f"def residual({s.residual.header}):\n    {body}\n", freed


def _call(s: Session, rebuilder: Rebuilder, loading: Loading, inputs: tuple[GraphInput, ...]) -> list[str]:
    """The line that calls the graph; none where it computes nothing."""
    arguments = [_argument(rebuilder, loading, i) for i in inputs if not i.static]
    if any(i.static for i in inputs):
        arguments.append("*P")
    needed = len(s.graph.nodes) > len(inputs) + 1 or rebuilder.outputs
    return [f"_o = graph({', '.join(arguments)})"] if needed else []


def _repeated(s: Session, computes: bool) -> Repeatable:
    """May the program be run again in plain Python where something raises before its effects are replayed?"""
    found = repeatable(s.graph, s.subgraphs) if computes else Repeatable.NEVER
    if found is Repeatable.UNDONE and not all(f.unseen for f in s.gradients.freed):
        found = Repeatable.NEVER  # gradients that the caller may see are let go before the graph runs
    if s.ends.around.checked and found is Repeatable.NEVER:
        s.ends.around.allowed = False
        raise HandlersNeeded
    return found


def _guards(s: Session) -> tuple[Guard, ...]:
    equal = {g.source for g in s.relied.guards if g.kind is GuardKind.EQUAL}  # which implies the type
    return tuple(g for g in s.relied.guards if g.kind is not GuardKind.TYPE or g.source not in equal)


def _as_given(s: Session, given: GraphInput) -> GraphInput:
    """The input's fake as it was before the program's writes gave it a history."""
    value = s.objects.by_fake.get(id(given.fake))
    real = None if value is None else value.origin
    if real is not None and is_wrapper(real):
        return replace(given, fake=input_fake(real, s.taken.layouts))  # its class may have changed the other
    if real is None or real.requires_grad == given.fake.requires_grad:
        return given
    return replace(given, fake=to_fake(real, layout=(given.fake.size(), given.fake.stride())))


def _argument(rebuilder: Rebuilder, loading: Loading, given: Any) -> str:
    return loading.text(given.source) if isinstance(given.fake, torch.Tensor) else rebuilder.entry(given.source)


def _order(graph: torch.fx.Graph, used: list) -> tuple:
    """Put the inputs that change from call to call first, parameters and buffers last."""
    ordered = [p for p in used if not p[1].static] + [p for p in used if p[1].static]
    first = next(iter(graph.nodes))
    for node, _ in ordered:
        if node is first:
            first = first.next
        else:
            first.prepend(node)
    return tuple(i for _, i in ordered)


def _distinct(s: Session, inputs: tuple) -> None:
    """Distinct inputs must stay distinct objects; what stands for a number is none of the user's."""
    numbers = [i for i in inputs if isinstance(i.source, FromArray) and i.source.scalar]
    tensors = [i for i in inputs if isinstance(i.fake, torch.Tensor) and i not in numbers]
    sources = [object_of(i.source) for i in tensors if not isinstance(object_of(i.source), Bound | Drawn)]
    sources = list(dict.fromkeys([*sources, *map(object_of, keyed_tensors(s))]))
    if len(sources) > 1:
        s.guard(sources[0], GuardKind.DISTINCT, tuple(sources[1:]))


# ---------------------------------------------------------------- inputs

# How the residual fetches the graph's inputs: what several paths have in common is loaded once.
#
#     _o = graph(K[0].state.get(K[0].param_groups[0]['params'][3])['exp_avg'], ...)      before
#     _l0 = K[0]; _l1 = _l0.param_groups[0]['params']; _l2 = _l0.state                   after
#     _l3 = _l2.get(_l1[3])
#     _o = graph(_l3['exp_avg'], ...)


class Loading:
    """`lines` come before the call of the graph; `text` gives each argument."""

    def __init__(self, sources: list[Source]) -> None:
        self.uses: Counter[Source] = Counter()
        for source in sources:
            self._count(source)
        self.lines: list[str] = []
        self._names: dict[Source, str] = {}

    def _count(self, source: Source) -> None:
        self.uses[source] += 1
        if self.uses[source] == 1:
            for part in _parts(source):
                self._count(part)

    def text(self, source: Source) -> str:
        """An expression for the source's value."""
        found = self._names.get(source)
        if found is not None:
            return found
        text = self._own(source)
        if self.uses[source] < 2 or text.isidentifier():
            return text
        name = self._names[source] = f"_l{len(self._names)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _own(self, source: Source) -> str:
        whole = source.expr()
        if isinstance(source, Keyed):
            return source.loaded(self.text(source.base), self.text(source.key))
        base: Any = getattr(source, "base", None)
        if base is None or not whole.startswith(base.expr()):
            return whole
        return self.text(base) + whole[len(base.expr()) :]


def _parts(source: Any) -> list[Source]:
    if isinstance(source, Keyed):
        return [source.base, source.key]
    base = getattr(source, "base", None)
    return [base] if base is not None and source.expr().startswith(base.expr()) else []
