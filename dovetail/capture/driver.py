"""`capture`: one call of a Python callable → graph, guards and residual code."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType, MethodType
from typing import Any

import torch
import torch.fx
from torch.nn.modules import module as torch_module

from dovetail.bytecode.decode import flags
from dovetail.capture.breaks.messages import as_called
from dovetail.capture.breaks.trace_rest import trace_continuation
from dovetail.capture.calling.lazy_modules import Initialized
from dovetail.capture.calling.nn_modules import GLOBAL_HOOKS, HOOKS, PLAIN_CALL
from dovetail.capture.containers import from_outside
from dovetail.capture.handlers import all as _handlers
from dovetail.capture.higher_order import all as _higher
from dovetail.capture.higher_order.function_graphs import Opaque
from dovetail.capture.interpreter.tracing_log import Watch
from dovetail.capture.library import all as _known
from dovetail.capture.numbers import graph_numbers, unbacked_sizes
from dovetail.capture.numbers.size_values import Constants, bind_symbols, settle
from dovetail.capture.outside.distinct_objects import keyed_tensors, rely_on_separate_changes, rely_on_separate_keys
from dovetail.capture.outside.growing_state import Outgrown
from dovetail.capture.outside.storage_offsets import forget_offsets
from dovetail.capture.outside.unstable_facts import CODE
from dovetail.capture.outside.wrap import function_parts
from dovetail.capture.process.trusted_code import foreign
from dovetail.capture.residual import freed_gradients
from dovetail.capture.residual.graph_break import Ending, Stopped
from dovetail.capture.residual.graph_break import stop as stop_here
from dovetail.capture.residual.load_inputs import Loading
from dovetail.capture.residual.one_shot import passes
from dovetail.capture.residual.rebuild import Rebuilder
from dovetail.capture.residual.replay_effects import effects
from dovetail.capture.session import Session
from dovetail.capture.state.ledgers import Compiling
from dovetail.capture.state.thread_state import leave_changed, preserved, set_variables
from dovetail.capture.tables.graph_functions import remove_dead
from dovetail.capture.tensors import random_numbers
from dovetail.capture.tensors.assertions import Blocks, Unhandled
from dovetail.capture.tensors.autograd_engine import renewed
from dovetail.capture.tensors.input_fakes import as_input
from dovetail.capture.tensors.operations import placeholder_of
from dovetail.capture.tensors.repeatable import LEAVE, NOBODY, Repeatable, guarded_call, leave, leaving_call, repeatable
from dovetail.capture.values.base import MISSING, Raised, Value
from dovetail.capture.values.callables import FunctionValue
from dovetail.capture.values.containers import DictValue, TupleValue
from dovetail.errors import InternalError, Unsupported
from dovetail.ir import marks
from dovetail.ir.captured import DRAWS, MODES_LEFT, Break, Captured, GraphInput
from dovetail.ir.guard import GuardKind
from dovetail.ir.lazy_module import LateGraphModule
from dovetail.ir.literals import in_words
from dovetail.ir.source import Arg, Bound, Cell, Drawn, FromArray, object_of
from dovetail.ir.varying import CONSTANT, Varying
from dovetail.ops.fake import FakeMode, to_fake
from dovetail.ops.fake.wrapped import is_wrapper

TABLES = (_handlers, _higher, _known, from_outside)  # imported to be filled
RESERVED = frozenset(("graph", "G", "F", "K", "M", "P", "object", "dict", "list", "tuple"))


@dataclass
class Target:
    """A callable taken apart: what runs, what is bound, whose parameters the residual has.

    `function` is None when the parameters are `*args, **kwargs` and `root` is called with them.
    """

    root: Any
    function: FunctionType | None
    receiver: Any = None
    has_receiver: bool = False


@dataclass
class Aside:
    """What the attempts at one capture share: what varies, results of functions marked as constant, autograd functions
    whose backward cannot be traced, and who watches. `reshapes`: the graph ends where a tensor gets another shape.

    Only the first attempt runs what the program asks for with comptime; the others repeat a part of it.
    """

    varying: Varying
    constants: dict[Any, Any] = field(default_factory=dict)
    opaque: set[type] = field(default_factory=set)
    watch: Watch | None = None
    comptime: bool = True
    reshapes: bool = False
    compiling: Compiling = field(default_factory=Compiling)
    growing: frozenset[Any] = frozenset()
    blocks: Blocks = field(default_factory=Blocks)


def capture(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Any,
    varying: Varying = CONSTANT, watch: Watch | None = None,
) -> Captured:  # fmt: skip
    """Trace `fn(*args, **kwargs)` without running it; raises `Unsupported` where that is impossible.

    Tensors among the arguments are only looked at, never computed with. `varying` says which numbers and sizes are
    inputs of the graph instead of constants.
    """
    return _capture(fn, args, kwargs, options, -1, Aside(_varying(varying, options), watch=watch))


def _varying(varying: Varying, options: Any) -> Varying:
    return {None: varying, True: replace(varying, everything=True), False: CONSTANT}[options.dynamic]


def capture_with_breaks(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Any,
    varying: Varying = CONSTANT, watch: Watch | None = None,
) -> Captured:  # fmt: skip
    """The same, but what cannot be part of the graph ends it: the residual does it and hands over the rest.

    Raises `Unsupported` where no such break is possible either.
    """
    aside = Aside(_varying(varying, options), watch=watch)
    try:
        return _capture(fn, args, kwargs, options, 0, aside)
    except Unsupported as error:
        if error.code == "user-exception" or error.strict:
            raise
        aside.reshapes = error.code == "metadata-mutation"
        for tick in _break_places(error):
            if watch is not None:
                watch.again(f"the graph ends at instruction {tick}: [{error.code}] {error.reason}")
            try:
                captured = _capture(fn, args, kwargs, options, tick, aside)
            except Unsupported as refusal:
                error.refusals += (_refused(refusal),)
                continue  # not here: end the graph one call further out
            reason = Break(error.code, error.reason, error.remedy, error.stack, error.refusals)
            return replace(captured, breaks=(reason,))
        if error.code == CODE:  # better one more entry than none
            relying = replace(aside.varying, unstable=frozenset())
            return capture_with_breaks(fn, args, kwargs, options, relying, watch)
        raise


def _refused(error: Unsupported) -> str:
    where = f" in {error.stack[-1].function}, line {error.stack[-1].line}" if error.stack else ""
    return f"[{error.code}] {error.reason}{where}"


def _break_places(error: Unsupported) -> list[int]:
    """Instructions that the graph can end at: in the frame that failed, then in its callers."""
    places = error.places
    reach = next((k for k, (_, direct) in enumerate(places) if k and not direct), len(places))
    inside = list(itertools.takewhile(bool, (tick for tick, _ in reversed(places[:reach]))))
    return list(dict.fromkeys(inside))  # frames that wait for a continuation's inner ones have executed nothing: 0


def _capture(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Any, stop: int, aside: Aside
) -> Captured:
    """`stop`: the instruction to end at, 0 to go as far as possible, -1 if the graph must not break at all."""
    while True:
        try:
            return _attempt(fn, args, kwargs, options, stop, aside)
        except Constants as found:
            if aside.varying.constant.keys() >= set(found.names):
                raise InternalError("capture", f"{', '.join(found.names)} did not become constant") from None
            aside.varying = aside.varying.without(found.names, found.reason)
        except Outgrown as found:
            aside.growing |= found.found
        except Opaque as found:
            aside.opaque.add(found.cls)
        except (Initialized, Unhandled):
            pass
        except Unsupported as error:
            told = aside.compiling.asked and aside.compiling.answer
            if error.code != "user-exception" or not told or stop > 0:
                raise
            aside.compiling.answer = False  # the program may raise only since it was told


def _attempt(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Any, stop: int, aside: Aside
) -> Captured:
    rest = getattr(fn, "_dovetail_continuation", None)
    target = take_apart(fn)
    function = target.function or underlying(target.root)
    space = getattr(function, "__globals__", {}) if rest is None else rest.scopes[0]
    session = Session(space, options, aside.varying, stop_here)
    session.ends.stop, session.ends.breaks = stop or -1, stop >= 0
    session.constants, session.watch, session.comptime = aside.constants, aside.watch, aside.comptime
    session.compiling, session.gradients.opaque = aside.compiling, aside.opaque
    session.gradients.reshapes, session.growing.known = aside.reshapes, aside.growing
    session.ends.around, aside.blocks.checked = aside.blocks, False
    aside.comptime = False
    if rest is None:
        _refuse_disabled(target)
        _refuse_generators(target)
    try:
        with preserved(session), FakeMode() as session.tensors.fakes:
            return _traced(session, target, rest, args, kwargs)
    except Unsupported as error:
        error.reason = error.reason if rest is None else as_called(rest, error.reason)
        raise
    finally:
        vars(session).clear()  # its values refer to it and to the caller's objects, which must not wait for the gc


def _traced(s: Session, target: Target, rest: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    function = target.function or underlying(target.root)
    try:
        result = trace_continuation(s, rest, args) if rest is not None else _trace(s, target, args, kwargs)
    except Raised as raised:
        raise _escaped(raised) from getattr(raised.value, "original", None)
    except Stopped:
        return _finish(s, s.ends.ending, function)
    return _finish(s, _returning(s, result), function)


def _refuse_disabled(target: Target) -> None:
    """The compiled function may itself be marked, as the forward of a class of modules may be."""
    function = target.function
    found = marks.of_function(function) if function is not None else None
    if function is not None and found is not None and found.mark is marks.Mark.DISABLE:
        raise Unsupported("disabled-function", f"{function.__qualname__} is marked not to be compiled")


def _refuse_generators(target: Target) -> None:
    """A call of a generator function runs nothing of it: its body runs when somebody asks for the values."""
    function = target.function
    if function is not None and flags(function.__code__)[2]:
        raise Unsupported(
            "generator-function", f"{function.__qualname__} yields or awaits, and calling it runs none of its code",
            "Compile the functions that it calls.",
        )


def _escaped(raised: Raised) -> Unsupported:
    """The program raises for these arguments: eager runs it, so that the user sees the real error."""
    error = raised.value
    given = [getattr(a, "value", ...) for a in getattr(error, "args", ())]
    words = [v if isinstance(v, str) else "..." if v is ... else in_words(v) for v in given]
    return Unsupported(
        "user-exception", f"the code raises {error.cls.__name__}: {', '.join(words)}",
        "Run it without compiling to see the full error.", raised.stack,
    )  # fmt: skip


def take_apart(fn: Any) -> Target:
    if isinstance(fn, FunctionType):
        return Target(fn, fn)
    if isinstance(fn, MethodType) and isinstance(fn.__func__, FunctionType):
        return Target(fn, fn.__func__, fn.__self__, True)
    if isinstance(fn, torch.nn.Module):
        forward = _forward(fn)
        return Target(fn, forward, fn, True) if forward is not None else Target(fn, None)
    call = inspect.getattr_static(type(fn), "__call__", None)
    if isinstance(call, FunctionType) and not isinstance(fn, functools.partial):
        return Target(fn, call, fn, True)
    return Target(fn, None)


CALLED = ("forward", "__call__", "_call_impl")  # what a call of a module leads to


def _forward(module: torch.nn.Module) -> FunctionType | None:
    """`forward`, when calling the module does nothing else."""
    hooked = any(getattr(module, h) for h in HOOKS) or any(getattr(torch_module, h) for h in GLOBAL_HOOKS)
    forward = inspect.getattr_static(type(module), "forward")
    own = "forward" in module.__dict__
    called = type(module).__call__ is PLAIN_CALL and not foreign(type(module)._call_impl)
    plain = called and not hooked and not own and isinstance(forward, FunctionType)
    return forward if plain else None


def underlying(fn: Any) -> Any:
    """The Python function whose globals and cells the callable uses, if there is one."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    found = inspect.getattr_static(type(fn), "forward") if isinstance(fn, torch.nn.Module) else fn
    return getattr(found, "__func__", found)


# ---------------------------------------------------------------- parameters


def _trace(s: Session, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Value:
    function = target.function
    if function is None or not RESERVED.isdisjoint(function.__code__.co_varnames[: _count(function)]):
        star = s.wrap(tuple(args), Arg("args"))
        double = s.wrap(dict(kwargs), Arg("kwargs"))
        assert isinstance(star, TupleValue) and isinstance(double, DictValue)
        named = {k.native(): v for k, v in double.pairs(s)}
        double.real, double.source = MISSING, None  # each call makes a new one
        root = s.wrap(target.root, s.bind(target.root, "self"))
        s.residual.header = "*args, **kwargs"
        return s.call_root(root, star.all(s), named)
    values, s.residual.header = _bind(s, target, function, args, kwargs)
    if target.root is target.receiver:
        for name in CALLED if isinstance(target.root, torch.nn.Module) else ("__call__",):
            s.static(type(target.root), name)
    if isinstance(target.root, torch.nn.Module):
        first: Any = values[next(iter(values))]
        _no_hooks(s, first.at(s, 0) if target.has_receiver and gathers(function) else first)
    return _run(s, function, values)


def _count(function: FunctionType) -> int:
    code = function.__code__
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def _no_hooks(s: Session, module: Value) -> None:
    for hook in HOOKS:
        s.guard(module.source.attr(hook), GuardKind.LENGTH, 0)  # type: ignore[union-attr]


def _bind(
    s: Session, target: Target, function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Value], str]:
    """Parameters → values, and the text of the parameter list (without the bound receiver)."""
    signature = inspect.Signature.from_callable(function, follow_wrapped=False)
    full = ((target.receiver, *args) if target.has_receiver else args)
    bound = signature.bind(*full, **kwargs)
    bound.apply_defaults()
    parameters = list(signature.parameters.values())
    gathered = target.has_receiver and gathers(function)
    values: dict[str, Value] = {}
    for position, parameter in enumerate(parameters):
        name, real = parameter.name, bound.arguments[parameter.name]
        if position == 0 and target.has_receiver:
            values[name] = _receiver(s, real, Arg(name)) if gathered else s.wrap(real, s.bind(real, "self"))
        else:
            values[name] = s.wrap(real, Arg(name))
    return values, _header(s, parameters[1:] if target.has_receiver and not gathered else parameters)


def gathers(function: FunctionType) -> bool:
    """Is the first argument one of `*args`?"""
    return not function.__code__.co_argcount


def _receiver(s: Session, real: tuple[Any, ...], source: Arg) -> Value:
    """`*args` of a method: the receiver, which the caller does not pass, and what it does."""
    given = s.wrap(real[1:], source)
    assert isinstance(given, TupleValue)
    return TupleValue([s.wrap(real[0], s.bind(real[0], "self")), *given.all(s)])


def _header(s: Session, parameters: list[inspect.Parameter]) -> str:
    plain = []
    for p in parameters:
        default = p.default
        if default is not inspect.Parameter.empty:
            name = f"_default_{p.name}"
            s.residual.names[name] = default
            default = _Text(name)
        plain.append(p.replace(annotation=inspect.Parameter.empty, default=default))
    return str(inspect.Signature(plain))[1:-1]


class _Text:
    """A default whose repr is a name of the residual's namespace."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _run(s: Session, function: FunctionType, values: dict[str, Value]) -> Value:
    code = function.__code__
    value = FunctionValue(code, function.__globals__, function.__name__, function, None)
    s.objects.by_identity[id(function)] = value
    function_parts(s, value)
    for index, (cell, name) in enumerate(zip(value.closure, code.co_freevars)):
        cell.source = Cell(index, name)
    value.parts_loaded = True
    return s.call_frame(value, values)


# ---------------------------------------------------------------- the result


def _returning(s: Session, result: Value) -> Ending:
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
    return Ending(rebuilder, [*replay, *left, f"return {text}"], {})


def _finish(s: Session, ending: Ending, function: Any) -> Captured:
    rebuilder = ending.rebuilder
    unbacked_sizes.settle(s)
    node = s.graph.output((*rebuilder.outputs, *graph_numbers.raising(s.graph, rebuilder.outputs)))
    node.meta["stack"] = ()
    remove_dead(s.graph)
    _settle_numbers(s)
    settle(s)
    kept = bind_symbols(s, placeholder_of)
    used = [(n, i) for n, i in s.taken.inputs if n.users or n in kept]
    for n, _ in s.taken.inputs:
        if not n.users and n not in kept:
            s.graph.erase_node(n)
    inputs = tuple(_as_given(s, i) for i in _order(s.graph, used))
    static = [s.relied.bound[i.source.index] for i in inputs if i.static]  # type: ignore[attr-defined]
    loading = Loading([i.source for i in inputs if not i.static and isinstance(i.fake, torch.Tensor)])
    arguments = [_argument(rebuilder, loading, i) for i in inputs if not i.static] + (["*P"] if static else [])
    first, call = renewed(s, rebuilder.entry), []
    if len(s.graph.nodes) > len(inputs) + 1 or rebuilder.outputs:
        call = [f"_o = graph({', '.join(arguments)})"]
    repeated = repeatable(s.graph) if first or call else Repeatable.NEVER
    if repeated is Repeatable.UNDONE and not all(f.unseen for f in s.gradients.freed):
        repeated = Repeatable.NEVER  # gradients that the caller may see are let go before the graph runs
    guarded = repeated is not Repeatable.NEVER
    if s.ends.around.checked and not guarded:
        s.ends.around.allowed = False
        raise Unhandled
    gone, free, restored = freed_gradients.lines(s, loading.text, [*rebuilder.lines, *ending.lines], guarded)
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
    residual = f"def residual({s.residual.header}):\n    {body}\n"
    unmade = s.options.backend == "dovetail"  # which runs the graph itself only where it cannot compile it
    module = (LateGraphModule if unmade else torch.fx.GraphModule)(s.subgraphs, s.graph)
    names = {**rebuilder.names, **s.residual.names, "P": tuple(static), "F": function, "G": s.residual.globals}
    _distinct(s, inputs)
    rely_on_separate_changes(s)
    rely_on_separate_keys(s)
    forget_offsets(s)
    metrics = {"ops": sum(n.op.startswith("call") for n in s.graph.nodes), **s.metrics}
    equal = {g.source for g in s.relied.guards if g.kind is GuardKind.EQUAL}  # which implies the type
    guards = tuple(g for g in s.relied.guards if g.kind is not GuardKind.TYPE or g.source not in equal)
    bound = tuple(s.relied.bound)
    s.table.sizes.where = str  # what later stages rely on, they say themselves
    return Captured(
        module, inputs, guards, residual, names, bound, (), metrics, ending.continuations, tuple(gone),
        sizes=s.table.sizes, repeatable=s.table.repeatable, symbols=s.table.origins, seen=s.table.seen,
        constants=s.table.varying.constant, passing=passes(s), changes=tuple(rebuilder.changes),
        asked=tuple(s.relied.asked.values()), alone=s.relied.alone,
    )  # fmt: skip


def _as_given(s: Session, given: GraphInput) -> GraphInput:
    """The input's fake as it was before the program's writes gave it a history."""
    value = s.objects.by_fake.get(id(given.fake))
    real = None if value is None else value.origin
    if real is not None and is_wrapper(real):
        return replace(given, fake=as_input(real))  # its class may have changed the other
    if real is None or real.requires_grad == given.fake.requires_grad:
        return given
    return replace(given, fake=to_fake(real, layout=(given.fake.size(), given.fake.stride())))


def _argument(rebuilder: Rebuilder, loading: Loading, given: Any) -> str:
    return loading.text(given.source) if isinstance(given.fake, torch.Tensor) else rebuilder.entry(given.source)


def _settle_numbers(s: Session) -> None:
    """Numbers whose values the entry came to rely on after all are constants of the graph."""
    settled = {g.source for g in s.relied.guards if g.kind is GuardKind.EQUAL}
    known = {node: node.meta["fake"] for source, node in s.taken.numbers.items() if source in settled}
    for node in known:
        for user in list(node.users):
            user.args = torch.fx.map_arg(user.args, lambda n: known.get(n, n))
            user.kwargs = torch.fx.map_arg(user.kwargs, lambda n: known.get(n, n))


def _order(graph: torch.fx.Graph, used: list[Any]) -> tuple[Any, ...]:
    """Put the inputs that change from call to call first, parameters and buffers last."""
    ordered = [p for p in used if not p[1].static] + [p for p in used if p[1].static]
    first = next(iter(graph.nodes))
    for node, _ in ordered:
        if node is first:
            first = first.next
        else:
            first.prepend(node)
    return tuple(i for _, i in ordered)


def _distinct(s: Session, inputs: tuple[Any, ...]) -> None:
    """Distinct inputs must stay distinct objects; what stands for a number is none of the user's."""
    numbers = [i for i in inputs if isinstance(i.source, FromArray) and i.source.scalar]
    tensors = [i for i in inputs if isinstance(i.fake, torch.Tensor) and i not in numbers]
    sources = [object_of(i.source) for i in tensors if not isinstance(object_of(i.source), Bound | Drawn)]
    sources = list(dict.fromkeys([*sources, *map(object_of, keyed_tensors(s))]))
    if len(sources) > 1:
        s.guard(sources[0], GuardKind.DISTINCT, tuple(sources[1:]))
