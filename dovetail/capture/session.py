"""The state of one capture, and the operations that every other file asks it for.

The operations themselves are plain functions in the files imported below; they are bound here as
methods, so values and handlers depend on the session only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import torch.fx

from dovetail.capture.calling import calls, classes
from dovetail.capture.calling.cached_functions import CachedResults
from dovetail.capture.containers import hashing, iteration
from dovetail.capture.numbers import size_table, unbacked_sizes
from dovetail.capture.numbers.size_table import SizeTable
from dovetail.capture.outside import unstable_facts
from dovetail.capture.outside import wrap as wrapping
from dovetail.capture.outside.definitions import rely_on_class
from dovetail.capture.outside.growing_state import Growing
from dovetail.capture.polyfills.protocols import HIDDEN
from dovetail.capture.protocols import (
    attribute_stores,
    attributes,
    class_lookup,
    formatting,
    module_attributes,
    operators,
    subscripts,
)
from dovetail.capture.residual.freed_gradients import Gradients
from dovetail.capture.state.ledgers import (
    Classes,
    Compiling,
    Ends,
    Modes,
    Objects,
    Random,
    Relied,
    Residual,
    Taken,
    Tensors,
)
from dovetail.capture.state.module_globals import ModuleGlobals
from dovetail.capture.state.side_effects import Effects
from dovetail.capture.tensors import inputs, numpy_arrays, operations, random_numbers, tensor_attributes
from dovetail.capture.tensors.torch_function import Overrides
from dovetail.capture.values.base import MISSING, Const, Raised, Value
from dovetail.capture.values.objects import ExceptionValue
from dovetail.capture.values.rules import Rules
from dovetail.errors import Location, Unsupported
from dovetail.ir.guard import Guard, GuardKind
from dovetail.ir.source import Attr, Bound, RawAttr, Source
from dovetail.ir.varying import Varying
from dovetail.ops.fake.symbolic.sizes import Sizes


class Session(Rules):
    """Everything that grows while one callable is captured."""

    def __init__(
        self, root_globals: dict[str, Any], options: Any, varying: Varying, end: Callable[[Session], NoReturn]
    ) -> None:
        self.options = options
        self.table = SizeTable(Sizes(self.user_line), varying)
        self.root = self.graph = torch.fx.Graph()  # the region's own, and where nodes go now
        self.subgraphs: dict[str, Any] = {}  # graphs inside of it
        self.open_graphs = [self.root]
        self.taken, self.tensors, self.objects, self.relied = Taken(), Tensors(), Objects(), Relied()
        self.classes, self.modes, self.random = Classes(), Modes(), Random()
        self.ends, self.residual = Ends(end), Residual(root_globals)
        self.scopes: dict[int, ModuleGlobals] = {id(root_globals): ModuleGlobals(root_globals, "")}
        self.effects, self.cached = Effects(self.stack if options.standalone else None), CachedResults()
        self.overrides, self.gradients = Overrides(), Gradients()
        self.compiling, self.growing = Compiling(), Growing()
        self.frames: list[Any] = []
        self.waiting: list[Any] = []  # generators whose closing would show; see generator_lifetime.py
        self.current_exception: Value | None = None
        self.writing: set[int] = set()  # containers whose text is being made
        self.constants: dict[Any, Any] = {}  # results of functions that are marked so
        self.prepared: list | None = None  # optimizers that were given their state; None if none may be
        self.comptime = True  # is code that the program wants run at compile time to run?
        self.watch: Any = None  # shows each instruction; see tracing_log.py

    # ------------------------------------------------------------ facts relied on

    def guard(self, source: Source | None, kind: GuardKind, payload: Any) -> None:
        """Rely on a fact. The same fact twice is one guard."""
        if self.random.draws and source is not None:
            random_numbers.refuse_reliance(self, source.expr())
        detail = _DETAILED[kind](payload) if kind in _DETAILED else None
        key = (source, kind, detail)
        if key not in self.relied.seen:
            guard = Guard(source, kind, payload, self.user_line())
            if self.table.varying.unstable:
                unstable_facts.refuse_unstable(self, guard)
            self.relied.seen.add(key)
            self.relied.guards.append(guard)

    def bind(self, obj: Any, label: str = "") -> Bound:
        """A source for an object that the compiled entry keeps."""
        index = self.relied.places.get(id(obj))
        if index is None:
            index = self.relied.places[id(obj)] = len(self.relied.bound)
            self.relied.bound.append(obj)
        return Bound(index, label or getattr(obj, "__qualname__", None) or type(obj).__name__)

    def attr_source(self, value: Value, name: str) -> Source | None:
        """The path to an attribute of the value; None where the value has none."""
        source = value.source
        return None if source is None else Attr(source, name)

    def own_source(self, value: Value, name: str) -> Source | None:
        """The source of what the instance itself has under `name`, past what its class computes."""
        source = value.source
        if source is None:
            return None
        return RawAttr(source, name) if attributes.computes(self, value.cls, name) else Attr(source, name)

    # ------------------------------------------------------------ places and failures

    def user_line(self) -> str:
        """`file:line` of the instruction that runs now."""
        for frame in reversed(self.frames):
            if id(frame.code.code) not in HIDDEN:
                return f"{frame.code.code.co_filename}:{frame.line()}"
        return ""

    def user_frames(self) -> list[Any]:
        """The frames of code that the user knows of, outermost first."""
        return [frame for frame in self.frames if id(frame.code.code) not in HIDDEN]

    def stack(self) -> tuple[Location, ...]:
        """Where the traced program is, outermost frame first."""
        return self.frames[-1].stack() if self.frames else ()

    def awaited(self) -> Any:
        """What the running instruction waits for, whose result is its own; whoever asks takes it over."""
        if not self.frames:
            return None
        frame = self.frames[-1]
        found = frame.awaits
        frame.awaits = None
        return found

    def unsupported(self, code: str, reason: str, remedy: str = "") -> NoReturn:
        """Give up on this capture; never returns."""
        raise Unsupported(code, reason, remedy, self.stack())

    def failure(self, error: Exception) -> NoReturn:
        """A mistake of ours at this instruction, which plain Python will take over; never returns."""
        raise Unsupported(
            "internal-error", f"capture failed here: {type(error).__name__}: {error}",
            "Please report it; the program goes on in plain Python.", self.stack(),
        ) from error

    def break_candidates(self) -> tuple[tuple[int, bool], ...]:
        """Where the graph could end now, outermost frame first; see `Unsupported.break_candidates`."""
        reach = next((k for k, f in enumerate(self.frames) if k and not f.direct), len(self.frames))
        count = reach
        while count > 1 and _one_step(self.frames[count - 1].scope.module or ""):
            count -= 1
        return tuple((f.tick, f.direct) for f in (self.frames if count == reach else self.frames[:count]))

    def release_replaced(self) -> None:
        """Buffers that the program replaced are read from their modules in every call."""
        for member in self.taken.replaced:
            inputs.release_member(self, member)

    def state_node(self, target: Any, *args: Any) -> Any:
        """A node that changes process-wide state for the nodes after it."""
        node = self.graph.call_function(target, args)
        node.meta.update(stack=self.stack(), mutates=True)
        return node

    def throw(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise `cls(*args)` inside the traced program; never returns."""
        raise self.raising(ExceptionValue(cls, [a if isinstance(a, Value) else Const(a) for a in args]))

    def raising(self, error: Any) -> Raised:
        """What to raise so that the traced program sees `error`, linked to the one that it is handling."""
        handled = self.current_exception
        if isinstance(error, ExceptionValue):
            error.raised = True
            if handled is not None and handled is not error:
                link = handled
                while isinstance(link, ExceptionValue) and link.context is not None:
                    if link.context is error:
                        link.context = None
                        break
                    link = link.context
                error.context = handled
        return Raised(error)

    def throw_native(self, error: BaseException) -> NoReturn:
        """Raise inside the traced program what native code raised on its behalf."""
        if isinstance(error, RecursionError):
            raise error  # capture stands deeper on the stack than the program would
        args: list[Value] = [Const(a if isinstance(a, (str, int, float, type(None))) else str(a)) for a in error.args]
        raise self.raising(ExceptionValue(type(error), args, error)) from error

    # ------------------------------------------------------------ names

    def scope(self, table: dict[str, Any], module: str | None) -> ModuleGlobals:
        """The view of a module's globals shared by every frame that uses them."""
        found = self.scopes.get(id(table))
        if found is None:
            found = self.scopes[id(table)] = ModuleGlobals(table, module)
        return found

    def static(self, cls: type, name: str) -> Any:
        """What the class (not the instance) has under `name`: the raw descriptor, or MISSING."""
        key = (cls, name)
        found = self.classes.statics.get(key, self)
        if found is self:
            found = MISSING
            for base in cls.__mro__:
                table = base.__dict__
                store = self.classes.stores.get(base)
                if store is not None and name in store.table:
                    found = store.table[name]
                    if found is not MISSING:
                        break
                elif name in table:
                    found = table[name]
                    break
            self.classes.statics[key] = found
            rely_on_class(self, cls.__mro__, name, found)
        return found

    def get_attr(self, value: Value, name: str) -> Value:
        """`value.name`."""
        return value.get_attr(self, name)

    def has_attr(self, value: Value, name: str) -> bool:
        """`hasattr(value, name)`."""
        return self.try_attr(value, name) is not None

    def try_attr(self, value: Value, name: str) -> Value | None:
        """The attribute, None where Python would raise AttributeError."""
        try:
            return value.get_attr(self, name)
        except Raised as raised:
            if not issubclass(raised.value.cls, AttributeError):
                raise
            return None

    def call(self, function: Value, *args: Value, **kwargs: Value) -> Value:
        """`function(*args, **kwargs)`."""
        return function.call(self, list(args), kwargs)

    def call_special(self, value: Value, name: str, *args: Value) -> Value:
        """Call a special method that the value is known to have."""
        method = attributes.find_special(self, value, name)
        assert method is not None, name
        return method.call(self, list(args), {})

    def call_method(self, value: Value, name: str, *args: Value) -> Value:
        """`value.name(*args)`."""
        return value.get_attr(self, name).call(self, list(args), {})

    def call_root(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call what the capture is of."""
        return function.call(self, args, kwargs)

    wrap = wrapping.wrap
    from_native = wrapping.from_native
    generic_get_attr = attributes.generic_get_attr
    object_get_attr = attributes.object_get_attr
    class_get_attr = class_lookup.class_get_attr
    pymodule_get_attr = module_attributes.pymodule_get_attr
    super_get_attr = class_lookup.super_get_attr
    module_member = attributes.module_member
    set_attr = attribute_stores.set_attr
    object_set_attr = attribute_stores.object_set_attr
    del_attr = attribute_stores.del_attr
    object_del_attr = attribute_stores.object_del_attr
    find_special = attributes.find_special
    bind_descriptor = attributes.bind_descriptor
    call_function = calls.call_function
    call_known = calls.call_known
    call_object = calls.call_object
    call_python = calls.call_python
    run_frame = calls.run_frame
    call_class = classes.call_class
    instantiate = classes.instantiate
    binary = operators.binary
    unary = operators.unary
    compare = operators.compare
    equal = operators.equal
    same = operators.same
    truth = operators.truth
    length = subscripts.length
    contains = subscripts.contains
    get_item = subscripts.get_item
    set_item = subscripts.set_item
    del_item = subscripts.del_item
    hashable = hashing.hashable
    to_string = formatting.to_string
    iterate = iteration.iterate
    unpack = iteration.unpack
    step = iteration.step
    step_or_raise = iteration.step_or_raise
    torch_call = operations.torch_call
    torch_method = operations.torch_method
    recorded_method = operations.recorded_method
    tensor_get_attr = tensor_attributes.tensor_get_attr
    wrap_tensor, wrap_late = inputs.wrap_tensor, inputs.wrap_late
    size_node, unbacked_size = size_table.size_node, unbacked_sizes.unbacked_size
    array_get_attr = numpy_arrays.array_get_attr
    tensor_result = operations.tensor_result


def _one_step(module: str) -> bool:
    return module in ONE_STEP or module.startswith("torch._higher_order_ops.")


#: Modules that have nothing for a graph: where one would end inside, plain Python makes the whole call. So it does of
#: torch.cond and its like, which do something else where they are told that they are being compiled.
ONE_STEP = frozenset(("random", "json", "json.encoder", "json.decoder", "statistics", "tempfile", "uuid", "shutil"))

_DETAILED: Mapping[GuardKind, Callable[[Any], Any]] = MappingProxyType(
    {
        **dict.fromkeys(
            (GuardKind.HAS_ATTR, GuardKind.CONTAINS, GuardKind.STATE, GuardKind.CLASS_DICT), lambda payload: payload[0]
        ),
        **dict.fromkeys((GuardKind.OWN_LACKS, GuardKind.DISTINCT, GuardKind.HAS_KEY), lambda payload: payload),
    }
)
