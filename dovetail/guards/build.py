"""`build`: guards and residual program → one generated function, the compiled entry.

    def f(x):                                              # the user's own parameters
        try:
            if not (type(x) is _Tensor and x.shape == (4, 8) and ...): return _MISS
            if not (not _grad_mode() and ...): return _MISS
        except Exception:
            return _MISS
        return graph(x)[0]                                 # the residual program, inline

One Python call both decides and runs. A value that cannot be reached (a missing key, attribute or
argument) is a miss like any other. Guards on arguments come first, then process-wide state, then globals and
cells, then everything that hangs below the modules in one bulk check.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch

from dovetail.guards import state
from dovetail.guards.below import BulkSplit, belongs_below, loadable, separate
from dovetail.guards.bulk import SAME, Anchored
from dovetail.guards.conditions import Writer, write
from dovetail.guards.explain import Failure, failures, state_failures
from dovetail.guards.holding import Held, let_go
from dovetail.guards.signature import ResidualText, root_function, take_apart, without_inputs
from dovetail.guards.sizes import with_size_guards
from dovetail.guards.slots import Resolver
from dovetail.ir.captured import Captured
from dovetail.ir.guard import MISS, Guard, GuardKind
from dovetail.ir.records import dataclass
from dovetail.ir.source import Arg, Bound, Source
from dovetail.ops.fake.symbolic.number import symbolic
from dovetail.ops.fake.symbolic.size_questions import takes_sizes


@dataclass(frozen=True)
class Entry:
    """A compiled entry. `call(*args, **kwargs)` is the result, or `MISS`."""

    call: Callable[..., Any]
    function_text: str
    captured: Captured
    failures: Callable[[tuple, Mapping[str, Any]], list[Failure]]
    below: Anchored | None = None
    needs: tuple[weakref.ref[Any], ...] = ()  # objects without which the entry can never be used again
    once: bool = False  # is its graph not compiled, since it is made for one call?
    kept: str = ""  # the key under which the compilation is on disk
    unkept: str = "config.warm_start is off, or somebody watches the stages"  # why it is not

    @property
    def guards(self) -> tuple[Guard, ...]:
        return self.captured.guards

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of tensors in the call that it was made for."""
        return self.captured.seen

    @property
    def text(self) -> str:
        """The entry's function, and the guards that it checks in bulk."""
        return self.function_text + (f"\n# below the held objects:\n{self.below.text}" if self.below else "")


def build(captured: Captured, fn: Any, graph: Callable[..., Any], taken: state.Snapshot) -> Entry:
    """The entry for `captured`: `graph(*inputs)` is its compiled graph, `taken` the state it was traced under."""
    captured = let_go(_with_root(with_size_guards(captured), fn))
    namespace = _namespace(captured, fn, graph)
    residual = take_apart(captured.residual)
    guards = [g for g in captured.guards if g.kind is not GuardKind.STATE or g.payload[0] not in state.PIECES]
    scope = dict(namespace)
    if residual.prelude:
        exec(residual.prelude, scope)
    writer = Writer(residual.names | scope.keys() | {SAME})
    held: Held = captured.bound  # type: ignore[assignment]
    below = _write_all(guards, writer, taken, captured, namespace)
    scope.update(writer.names)
    checks = [*(f"    {line}" for line in writer.lines), "except Exception:", "    return _MISS"]
    body = ["try:", *checks, *writer.forget(captured.freed), *writer.reused(residual.body, frozenset(captured.freed))]
    call, text = residual.function(body, _identifier(fn, scope), scope)
    if below is not None:
        below.tell(call)
    call.__qualname__ = getattr(fn, "__qualname__", type(fn).__qualname__)
    check = _failure_finder(guards, below, residual, namespace, taken)
    return Entry(call, text, captured, check, below, held.weak)


def for_one_call(entry: Entry) -> Entry:
    """The entry as one that fits no call any more once it has run."""
    done: list[bool] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if done:
            return MISS
        result = entry.call(*args, **kwargs)
        if result is not MISS:
            done.append(True)
        return result

    return replace(entry, call=call)


def inputs_shown(captured: Captured, fn: Any, args: tuple, kwargs: Mapping[str, Any]) -> list:
    """The graph's inputs in this call, as a user's backend sees them.

    Where a size is symbolic there are fakes: what is asked of its value is relied on. A number that varies is symbolic
    too, and nothing may be asked of it.
    """
    found = real_inputs(captured, fn, args, kwargs)
    return [_shown(given.fake, value) for given, value in zip(captured.inputs, found, strict=True)]


def real_inputs(captured: Captured, fn: Any, args: tuple, kwargs: Mapping[str, Any]) -> list:
    """The values of the graph's inputs in this call, in order, loaded the way the residual program loads them."""
    return load(captured, fn, [given.source for given in captured.inputs], args, kwargs)


def load(
    captured: Captured, fn: Any, sources: Sequence[Source], args: tuple, kwargs: Mapping[str, Any]
) -> list:
    """What the sources lead to in this call."""
    values = ", ".join(source.expr() for source in sources)
    namespace = _namespace(captured, fn, None)
    return take_apart(captured.residual).function([f"return [{values}]"], "inputs", namespace)[0](*args, **kwargs)


def loaded_one_by_one(
    captured: Captured, fn: Any, sources: Sequence[Source], args: tuple, kwargs: Mapping[str, Any]
) -> list:
    """The same with MISS for what leads nowhere."""
    tries = ((f"try: found.append({s.expr()})", "except Exception: found.append(_MISS)") for s in sources)
    body = ["found = []", *(line for lines in tries for line in lines), "return found"]
    residual, namespace = take_apart(captured.residual), _namespace(captured, fn, None)
    found: list = residual.function(body, "values", namespace)[0](*args, **kwargs)
    return found


def failing(
    captured: Captured, fn: Any, looked_at: Sequence[Guard], args: tuple, kwargs: Mapping[str, Any]
) -> list[Failure]:
    """Which of these guards, and of those about sizes, fail in this call."""
    facts = with_size_guards(replace(captured, guards=())).guards
    residual, namespace = take_apart(captured.residual), _namespace(captured, fn, None)
    return failures([*looked_at, *facts], residual, namespace, args, kwargs)


def parameters(captured: Captured, fn: Any, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The callable's parameters in this call, by name."""
    residual, namespace = take_apart(captured.residual), _namespace(captured, fn, None)
    found: dict[str, Any] = residual.function(["return locals()"], "parameters", namespace)[0](*args, **kwargs)
    return found


def run_residual(
    captured: Captured, fn: Any, results: Sequence[Any], args: tuple, kwargs: Mapping[str, Any]
) -> Any:
    """What the residual program returns for these arguments where its graph gives `results`. It does what it changes,
    but does not compute what only the graph takes."""
    residual = take_apart(captured.residual)
    namespace = _namespace(captured, fn, lambda: results)
    return residual.function(without_inputs(residual.body), "residual", namespace)[0](*args, **kwargs)


def _shown(fake: Any, value: Any) -> Any:
    if type(fake) in (int, float):
        return symbolic(value, None)
    return fake if takes_sizes((fake,), {}) else value


def _namespace(captured: Captured, fn: Any, graph: Any) -> dict[str, Any]:
    """The globals of generated code."""
    root = captured.names.get("F", root_function(fn))
    return {
        "graph": graph, "G": getattr(root, "__globals__", {}), "F": root, "K": captured.bound, "M": sys.modules,
        **captured.names, "_MISS": MISS,
    }  # fmt: skip


def _identifier(fn: Any, taken: Mapping[str, Any]) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() and name not in taken else "compiled"


def _with_root(captured: Captured, fn: Any) -> Captured:
    """Capture's guards, plus the function's own code and defaults."""
    root = captured.names.get("F", root_function(fn))
    if not isinstance(root, FunctionType):
        return captured
    keywords = None if root.__kwdefaults__ is None else dict(root.__kwdefaults__)
    source = Bound(len(captured.bound), root.__qualname__)
    own = Guard(source, GuardKind.DEFINITION, (root.__code__, root.__defaults__, keywords))
    return replace(captured, guards=(*captured.guards, own), bound=(*captured.bound, root))


_FEW = 1  # so many guards below held objects are cheaper written out


def _write_all(
    guards: list[Guard], writer: Writer, taken: state.Snapshot, captured: Captured, namespace: dict[str, Any]
) -> Anchored | None:
    """Append every check, cheapest and most selective first; the bulk part, if there is one."""
    bound: Held = captured.bound  # type: ignore[assignment]
    resolver = Resolver(bound)
    below = [guard for guard in guards if belongs_below(guard, resolver)]
    has_bulk = len(below) > _FEW or any(isinstance(m, torch.nn.Module) for m in bound)
    split = separate(guards, below, resolver) if has_bulk else BulkSplit(guards)
    above = [g for g in split.guards if id(g) not in split.below]
    on_arguments = [g for g in above if _on_argument(g.source)]
    writer.require([state.function_modes(taken, writer.constant)], "torch function modes")
    for guard in on_arguments:
        write(guard, writer)
    writer.require(state.conditions(taken, writer.constant), "process-wide state")
    bulk = None
    if has_bulk:
        wanted = loadable(captured.inputs, below, resolver)
        bulk = Anchored(split.below.values(), bound, namespace, wanted, split.groups)
        _write_bulk(bulk, split.others, writer)
    writer.know(dict(_held_firmly(above, bound)))
    for guard in above:
        if not _on_argument(guard.source):
            write(guard, writer)
    return bulk


def _held_firmly(guards: Sequence[Guard], bound: Held) -> Iterator[tuple[Source, Any]]:
    """What the paths begin with that the entry keeps alive: an object that the text may name."""
    for guard in guards:
        source: Any = guard.source
        while source is not None and not isinstance(source, Bound):
            source = getattr(source, "base", None)
        if source is not None and not bound.weakly(bound[source.index]):
            yield source, bound[source.index]


def _write_bulk(bulk: Anchored, others: Sequence[Sequence[Source]], writer: Writer) -> None:
    """The bulk check, what is kept apart from the objects below, and names for those that the graph takes."""
    check = writer.constant(bulk.check, "below")
    writer.require([f"({SAME}() or {check}())"], f"{len(bulk.guards)} guards below held objects")
    for group, sources in enumerate(others):
        names = ", ".join(map(writer.load, sources))
        writer.require([f"{writer.constant(bulk.apart, 'apart')}({group}, {names})"], "different objects")
    if bulk.wanted:
        writer.unpack(f"{writer.constant(bulk, 'held')}.loaded", bulk.wanted)


def _on_argument(source: Source | None) -> bool:
    while source is not None and not isinstance(source, Arg):
        source = getattr(source, "base", None)
    return source is not None


def _failure_finder(
    guards: list[Guard], below: Anchored | None, residual: ResidualText, namespace: dict[str, Any],
    taken: state.Snapshot,
) -> Callable[[tuple, Mapping[str, Any]], list[Failure]]:
    def find(args: tuple, kwargs: Mapping[str, Any]) -> list[Failure]:
        hold = set(map(id, below.guards)) if below is not None and below.holds() else ()
        looked_at = (guard for guard in guards if id(guard) not in hold)
        found = failures(looked_at, residual, namespace, args, kwargs) + state_failures(taken)
        if not found and below is not None and not below.modules_unchanged():
            found.append(Failure(None, "a module changed its class or had its forward replaced"))
        return found

    return find
