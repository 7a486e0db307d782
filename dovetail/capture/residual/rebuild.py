"""Values → Python text of the residual: results rebuilt; `replay_effects.py` has the effects.

Every value becomes a local variable or an expression once, so objects keep their identity:

    _o = graph(x, *P)
    _v0 = K[4].__new__(K[4])
    _v0.hidden = _o[0]
    return _v0
"""

from __future__ import annotations

import copy
import itertools
import math
import re
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any, NoReturn

import torch
import torch.fx

from dovetail.capture.breaks.call_sites import raised_at
from dovetail.capture.breaks.points import chain, started
from dovetail.capture.breaks.suspended_generators import NEW, SHELLS, fresh, paused_at, set_state
from dovetail.capture.interpreter.frame import GeneratorValue
from dovetail.capture.numbers.graph_numbers import GraphNumber
from dovetail.capture.numbers.tensor_numbers import TensorNumber
from dovetail.capture.numbers.unbacked_sizes import Claim
from dovetail.capture.residual.native_objects import AUTOMATIC, ENDED, MAKERS, REST, ended, native_init
from dovetail.capture.tables.graph_functions import impure
from dovetail.capture.tensors.gradient_hooks import HookHandle
from dovetail.capture.tensors.numpy_arrays import rebuild_array
from dovetail.capture.tensors.operations import reachable
from dovetail.capture.values.array import ArrayValue
from dovetail.capture.values.base import MISSING, Const, LazyConst, Session, Value
from dovetail.capture.values.callables import CellValue, FunctionValue, KnownValue, MethodValue
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, SliceValue, TupleValue, ViewValue
from dovetail.capture.values.deferred import DeferredText, Snapshot
from dovetail.capture.values.descriptors import quiet_class
from dovetail.capture.values.instance_dict import NamespaceValue
from dovetail.capture.values.iterators import IteratorValue
from dovetail.capture.values.objects import ExceptionValue, Lazy, ObjectValue
from dovetail.capture.values.sets import SetValue
from dovetail.capture.values.tensor import PLAIN, Answer, ChosenNumber, ChosenTensor, TensorValue
from dovetail.errors import Unsupported
from dovetail.ir.captured import Change, Continuation
from dovetail.ir.literals import has_literal, literal
from dovetail.ir.source import Attr, Computed, Source
from dovetail.ops.fake.wrapped import is_wrapper


class Rebuilder:
    """Collects the residual's lines; `outputs` are the graph nodes that its results need."""

    def __init__(self, session: Session) -> None:
        self.s = session
        self.prelude: list[str] = []  # before the graph runs
        self.lines: list[str] = []
        self.deferred: list[str] = []  # after the effects: what walks a container that they change
        self.outputs: list[torch.fx.Node] = []
        self.changes: list[Change] = []
        self.names: dict[str, Any] = {
            "_new": object.__new__, "_set": object.__setattr__, "_del": object.__delattr__,
            "_Function": FunctionType, "_Cell": CellType, "_Method": MethodType, "_nan": math.nan, "_inf": math.inf,
        }  # fmt: skip
        self.walks: dict[int, str] = {}  # of iterators in suspended loops
        self._memo: dict[int, str] = {}
        self._entry: dict[Source, str] = {}
        self._output_index: dict[torch.fx.Node, int] = {}
        self._building: set[int] = set()
        self._keep: list[Value] = []

    def expr(self, value: Any) -> str:
        """Text that evaluates to the value; lines that it needs are added first."""
        found = self._memo.get(id(value))
        if found is not None:
            return found
        if isinstance(value, LazyConst) and not value.seen:
            return self.entry(value.source)  # type: ignore[arg-type]
        if type(value) is Lazy:
            return self._loaded(value)
        if value.source is not None and (not isinstance(value, (Const, TupleValue, CellValue)) or _untouched(value)):
            return self._loaded(value)
        for kind, builder in BUILDERS.items():
            if isinstance(value, kind):
                return builder(self, value)
        return self.s.unsupported("result", f"{value.describe()} cannot be returned from the compiled function")

    def has_text(self, value: Value) -> bool:
        return id(value) in self._memo

    def _loaded(self, value: Any) -> str:
        """From where it came, and before any effect is replayed, which may put something else there."""
        text = value.source.expr()
        return self._remember(value, text if text.isidentifier() else self.local(text))

    def entry(self, source: Source) -> str:
        """Text for what the source led to when the call began, before anything was changed."""
        found = self._entry.get(source)
        if found is None:
            computed = source.template.format(*map(self.entry, source.operands)) if type(source) is Computed else None
            text = source.expr() if computed is None else computed
            found = text
            if not text.isidentifier():
                found = f"_n{len(self.prelude)}"
                self.prelude.append(f"{found} = {text}")
            self._entry[source] = found
        return found

    def known(self, obj: Any) -> str:
        """Text for an object that the entry keeps."""
        if isinstance(obj, type) and obj in self.s.classes.made:
            return self.made_class(obj)
        if id(obj) in self.s.classes.private:
            return self.private(obj)
        return self.s.bind(obj).expr()

    def _remember(self, value: Value, text: str) -> str:
        self._memo[id(value)] = text
        self._keep.append(value)
        return text

    def local(self, text: str) -> str:
        """A new name for the text, in a line of its own."""
        name = f"_v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def start(self, value: Value, text: str) -> str:
        """Make the (still empty) object; its contents may refer back to it."""
        return self._remember(value, self.local(text))

    # ------------------------------------------------------------ kinds

    def const(self, value: Const) -> str:
        obj = value.value
        if has_literal(obj):
            return literal(obj)
        if type(obj) is float and obj != obj and value.source is not None:  # it is equal to no other object
            return self.entry(value.source)
        return self.known(obj)

    def output(self, node: torch.fx.Node) -> str:
        """Text for the node's result, which the graph returns."""
        index = self._output_index.setdefault(node, len(self.outputs))
        if index == len(self.outputs):
            self.outputs.append(node)
        return f"_o[{index}]"

    def tensor(self, value: TensorValue) -> str:
        text = self.output(reachable(self.s, value).node)
        if value.cls not in PLAIN and not is_wrapper(value.fake):
            text = self.local(f"{text}.as_subclass({self.known(value.cls)})")
        text = self._remember(value, text)
        self.attributes(value, text)
        return text

    def chosen(self, value: ChosenTensor) -> str:
        yes, condition, no = (self.expr(part) for part in (value.yes, value.condition, value.no))
        return self.start(value, f"{yes} if {condition} else {no}")

    def claim(self, value: Claim) -> str:
        return self.local(f"{self.expr(value.left)} {value.sign} {self.expr(value.right)}")

    def of_tuple(self, value: TupleValue) -> str:
        if id(value) in self._building:
            return self.s.unsupported("cyclic-tuple", "a tuple that contains itself through another object")
        self._building.add(id(value))
        items = self.items(value)
        self._building.discard(id(value))
        inside = ", ".join(items) + ("," if len(items) == 1 else "")
        if value.cls is tuple:
            return self._remember(value, f"({inside})") if not items else self.start(value, f"({inside})")
        if hasattr(value.cls, "_make"):
            text = self.start(value, f"{self.known(tuple.__new__)}({self.known(value.cls)}, ({inside}))")
        else:
            text = self.start(value, f"{self.known(value.cls)}(({inside}))")
        self.attributes(value, text)
        return text

    def items(self, value: SequenceValue) -> list[str]:
        """Texts between brackets; what is unread as a whole."""
        head, span = [self.expr(item) for item in value.head], value.span
        if span is None:
            return head
        stop = -span.back if span.back else ""
        whole = span.source.expr() if not isinstance(span.real, deque) else f"[*{span.source.expr()}]"
        middle = self.local(f"{whole}[{span.front}:{stop}]")
        return [*head, f"*{middle}", *(self.expr(item) for item in value.tail)]

    def of_list(self, value: ListValue) -> str:
        if value.cls is list:
            text = self.start(value, "[]")
            items = self.items(value)
            if items:
                self.lines.append(f"{text}[:] = [{', '.join(items)}]")
            return text
        base = deque if issubclass(value.cls, deque) else list
        text = self.start(value, f"{self.known(value.cls)}.__new__({self.known(value.cls)})")
        limit = f", {value.maxlen}" if base is deque else ""
        self.lines.append(f"{self.known(base)}.__init__({text}, [{', '.join(self.items(value))}]{limit})")
        self.attributes(value, text)
        return text

    def of_dict(self, value: DictValue) -> str:
        if value.cls is dict:
            text = self.start(value, "{}")
        else:
            text = self.start(value, f"{self.known(value.cls)}.__new__({self.known(value.cls)})")
            if value.default_factory is not None:
                self.lines.append(f"{text}.default_factory = {self.expr(value.default_factory)}")
        self.entries(value, text)
        self.attributes(value, text)
        return text

    def entries(self, value: DictValue, text: str) -> None:
        store = f"{self.known(OrderedDict if issubclass(value.cls, OrderedDict) else dict)}.__setitem__"
        for key, item in value.entries.values():
            key_text, item_text = self.expr(key), self.expr(item)
            plain = f"{text}[{key_text}] = {item_text}"
            self.lines.append(plain if value.cls is dict else f"{store}({text}, {key_text}, {item_text})")

    def of_set(self, value: SetValue) -> str:
        items = ", ".join(self.expr(item) for item in value.entries.to_insert())
        return self.start(value, f"{self.known(value.cls)}([{items}])")

    def slice(self, value: SliceValue) -> str:
        return self.local(f"slice({', '.join(self.expr(v) for v in value.parts())})")

    def function(self, value: FunctionValue) -> str:
        if value.real is not MISSING:
            return self.known(value.real)
        cells = [self.expr(c) for c in value.closure]
        found = self._memo.get(id(value))
        if found is not None:
            return found  # one of the cells holds the function itself
        defaults = ", ".join(self.expr(d) for d in value.defaults)
        closure = f"({', '.join(cells)},)" if cells else "None"
        text = self.start(
            value,
            f"_Function({self.known(value.code)}, {self.known(value.globals)}, {value.name!r}, "
            f"({defaults}{',' if defaults else ''}), {closure})",
        )
        if value.kwdefaults:
            pairs = ", ".join(f"{k!r}: {self.expr(v)}" for k, v in value.kwdefaults.items())
            self.lines.append(f"{text}.__kwdefaults__ = {{{pairs}}}")
        self.attributes(value, text)
        return text

    def cell(self, value: CellValue) -> str:
        if value.real is not MISSING:
            return self.outside_cell(value)
        text = self.start(value, "_Cell()")
        if value.contents is not None:
            self.lines.append(f"{text}.cell_contents = {self.expr(value.contents)}")
        return text

    def outside_cell(self, value: CellValue) -> str:
        """By the path to it: what goes on after a break gets other cells each time."""
        return value.source.base.expr() if isinstance(value.source, Attr) else self.known(value.real)

    def method(self, value: MethodValue) -> str:
        function, receiver = value.function, self.expr(value.receiver)
        if isinstance(function, KnownValue) and type(function.real) is types.ClassMethodDescriptorType:
            return self.start(value, f"{self.known(function.real)}.__get__(None, {receiver})")
        if isinstance(value.receiver, ArrayValue) and value.receiver.scalar:
            return self.start(value, f"{receiver}.{function.real.__name__}")  # type: ignore[attr-defined]
        if isinstance(function, KnownValue) and hasattr(function.real, "__get__"):
            # CPython crashes on a call of some native methods that were bound without their class.
            return self.start(value, f"{self.known(function.real)}.__get__({receiver}, {self.known(type)}({receiver}))")
        return self.start(value, f"_Method({self.expr(function)}, {receiver})")

    def exception(self, value: ExceptionValue) -> str:
        if value.original is not None:
            text = self.start(value, f"{self.known(copy.copy)}({self.known(value.original)})")
        else:
            args, cls = ", ".join(self.expr(a) for a in value.args), self.known(value.cls)
            text = self.start(value, f"{cls}.__new__({cls}, {args})")
            self.lines.append(f"{self.known(native_init(value.cls))}({text}, {args})")
        self.attributes(value, text)
        if value.cause is not None:
            self.lines.append(f"{text}.__cause__ = {self.expr(value.cause)}")
        if value.context is not None:
            self.lines.append(f"{text}.__context__ = {self.expr(value.context)}")
        if value.cause is not None or value.suppress:
            self.lines.append(f"{text}.__suppress_context__ = {value.suppress}")
        if value.break_candidates:
            self.lines.append(f"{self.known(raised_at)}({text}, {self.known(value.break_candidates)})")
        return text

    def object(self, value: ObjectValue) -> str:
        maker = MAKERS.get(value.cls)
        if maker is not None:
            return maker(self, value)
        if value.real is not MISSING:
            return self.known(value.real)
        if value.made_by is not None or not value.attrs.keys() <= value.written.keys():
            return self.s.unsupported("result", f"a {value.cls.__name__} cannot be returned from the compiled function")
        cls = self.known(value.cls)
        plain = value.cls.__new__ is object.__new__ or isinstance(value.cls.__new__, FunctionType)
        text = self.start(value, f"_new({cls})" if plain else f"{cls}.__new__({cls})")
        self.attributes(value, text)
        return text

    def attributes(self, value: ObjectValue, text: str) -> None:
        for name in value.written:
            found = value.attrs[name]
            if found is not MISSING:
                self.lines.append(self.store(value, text, name, self.expr(found)))

    def store(self, value: ObjectValue, text: str, name: str, content: str, store: str = "_set") -> str:
        """An entry of the instance's dictionary that a property hides was put there past the property."""
        if isinstance(self.s.static(value.cls, name), property):
            return f"object.__getattribute__({text}, '__dict__')[{name!r}] = {content}"
        return f"{store}({text}, {name!r}, {content})"

    def iterator(self, value: IteratorValue) -> str:
        """An iterator that goes on where the traced one stands; `parts` of its class say how."""
        parts = value.parts(self.s)
        if parts is None:
            return self._no_iterator("an iterator or generator leaves the compiled function")
        function, args = parts
        texts = [self.expr(a) for a in args]
        text = f"{self.known(function)}({', '.join(texts)})"
        walked = value.walked
        if not (walked is not None and replayed(walked)) and not any(map(DEFERRED.match, texts)):
            return self.start(value, text)
        self.deferred.append(f"_walk{len(self.deferred)} = {text}")
        return self._remember(value, f"_walk{len(self.deferred) - 1}")

    def after_effects(self, replay: list[str]) -> list[str]:
        """What `replay` must have been done for. Called when everything else has its text."""
        if any(DEFERRED.search(line) for line in (*self.lines, *replay)):
            self._no_iterator("something else holds an iterator over a container that the code changes")
        return self.deferred

    def _no_iterator(self, reason: str) -> NoReturn:
        self.s.unsupported("iterator-result", reason)

    def snapshot(self, value: Snapshot) -> str:
        """The tensor as it was: a copy, made at that place in the graph, if something has changed since."""
        later = itertools.takewhile(lambda n: n is not value.after, reversed(self.s.graph.nodes))
        if not any(node.op.startswith("call") and impure(node) for node in later):
            return self.expr(value.tensor)
        if value.tensor.fake.requires_grad:
            raise Unsupported(
                "late-call", "a tensor that requires grad is shown and may be changed later",
                "Show it outside the compiled function.", break_candidates=value.break_candidates,
            )
        copy = value.tensor.fake
        with self.s.graph.inserting_after(value.after):
            node = self.s.graph.call_method("clone", (value.node,))
            node.meta.update(fake=copy.clone(), stack=())
        return self.tensor(TensorValue(node, node.meta["fake"]))

    def late_text(self, value: DeferredText) -> str:
        parts = [self._part(part) for part in value.parts]
        return self.start(value, parts[0] if len(parts) == 1 else f"''.join(({', '.join(parts)},))")

    def _part(self, part: Any) -> str:
        if isinstance(part, Const):
            return self.expr(part)
        function, snapshot, spec = part
        tensor = self.expr(snapshot)
        return f"{self.known(function)}({tensor}, {spec!r})" if spec else f"{self.known(function)}({tensor})"

    def generator(self, value: GeneratorValue) -> str:
        """A running one stands where the graph breaks, which is said there."""
        if value.kind not in SHELLS:
            return self.s.unsupported("iterator-result", "an async generator leaves the compiled function")
        leaves = not self.s.frames and value.source is None  # what goes on after a break needs the generator
        if leaves and value.state == "done" and value.cls in (ENDED.keys() | REST.keys()):
            return self.start(value, f"{self.known(ended)}({self.known(value.cls)})")
        shell = text = self.start(value, f"{self.known(fresh)}({self.known(value.kind)})")
        if leaves and value.cls in REST:
            text = self.start(value, f"{self.known(REST[value.cls])}({shell})")
        if value.state != "running":
            self.deferred.append(self.generator_state(value, shell))
        return text

    def generator_state(self, value: GeneratorValue, shell: str) -> str:
        """Put it where the traced one stands."""
        if value.state == "done":
            return state_line(self, shell, None, [])
        if value.state == NEW:
            point, given = started(self, value.frame)
            rest = Continuation((point,), (value.frame.scope.table,))
        else:
            rest, given = chain(self, [value.frame], value.frame.ip, value.frame.stack_, [])
        return state_line(self, shell, paused_at(value.state, rest), given)

    def made_class(self, cls: type) -> str:
        """A class that traced code made, made anew in every call."""
        found = self._memo.get(id(cls))
        if found is not None:
            return found
        meta, name = self.s.classes.made[cls]
        if meta is not type and type(cls).__new__ is not type.__new__ or issubclass(cls, torch.nn.Module):
            return self.s.unsupported("class-result", f"the class {name}, made inside, leaves the compiled function")
        bases = "".join(f"{self.known(b)}, " for b in cls.__bases__ if b is not object)
        early = {"__qualname__": cls.__qualname__}
        early |= {k: v for k, v in cls.__dict__.items() if k in ("__slots__", "__module__", "__doc__")}
        maker = self.known(quiet_class if bases else type.__new__)
        text = self.local(f"{maker}({self.known(meta)}, {name!r}, ({bases}), {self.known(early)})")
        self._memo[id(cls)] = text
        self._keep.append(self.s.objects.by_identity[id(cls)])
        cell = self.s.classes.cells.get(cls)
        if cell is not None:
            self.expr(cell)
        made = set(early)
        if issubclass(cls, torch.autograd.Function):  # the class of its backward nodes refers to it
            made.add("_backward_cls")
            meta = type(torch.autograd.Function)
            self.lines.append(f"{self.known(meta)}.__init__({text}, {name!r}, ({bases}), {{}})")
        for key, item in cls.__dict__.items():
            if key not in made and type(item) not in AUTOMATIC:
                self.lines.append(f"type.__setattr__({text}, {key!r}, {self.expr(self.s.wrap(item, None))})")
        return text

    def private(self, obj: Any) -> str:
        """A descriptor made inside, around stand-ins."""
        parts = (obj.fget, obj.fset, obj.fdel) if isinstance(obj, property) else (obj.__func__,)
        values = ", ".join("None" if p is None else self.expr(self.s.wrap(p, None)) for p in parts)
        return self.local(f"{self.known(type(obj))}({values})")


def _untouched(value: Any) -> bool:
    """Is it a tuple from outside that nothing has read?"""
    return isinstance(value, TupleValue) and value.span is not None and not value.head and not value.tail


def state_line(rebuilder: Rebuilder, shell: str, paused: Any, given: list[str]) -> str:
    """Put a generator where `paused` says; None: at its end."""
    place = "None" if paused is None else rebuilder.known(paused)
    return f"{rebuilder.known(set_state)}({shell}, {place}, ({''.join(f'{a}, ' for a in given)}))"


def replayed(container: Any) -> bool:
    """Is it one from outside that the effects bring to its final state?"""
    return container.real is not MISSING and container.changed


DEFERRED = re.compile(r"\b_walk\d+\b")  # a name that `Rebuilder.deferred` gives


BUILDERS: dict[type, Callable[[Rebuilder, Any], str]] = {
    Const: Rebuilder.const,
    ArrayValue: rebuild_array,
    ChosenTensor: Rebuilder.chosen,
    ChosenNumber: lambda rebuilder, value: rebuilder.expr(value.chosen),
    TensorValue: Rebuilder.tensor,
    GraphNumber: lambda rebuilder, value: rebuilder._remember(value, rebuilder.output(value.node)),
    HookHandle: lambda rebuilder, value: rebuilder.start(value, f"{rebuilder.output(value.node)}.handle"),
    Answer: lambda rebuilder, value: rebuilder.start(value, f"{rebuilder.known(bool)}({rebuilder.expr(value.tensor)})"),
    Claim: Rebuilder.claim,
    TensorNumber: lambda rebuilder, value: rebuilder.start(value, f"{rebuilder.expr(value.tensor)}.item()"),
    TupleValue: Rebuilder.of_tuple,
    ListValue: Rebuilder.of_list,
    DictValue: Rebuilder.of_dict,
    SetValue: Rebuilder.of_set,
    SliceValue: Rebuilder.slice,
    FunctionValue: Rebuilder.function,
    CellValue: Rebuilder.cell,
    MethodValue: Rebuilder.method,
    ExceptionValue: Rebuilder.exception,
    ObjectValue: Rebuilder.object,
    KnownValue: lambda rebuilder, value: rebuilder.known(value.real),
    GeneratorValue: Rebuilder.generator,
    IteratorValue: Rebuilder.iterator,
    ViewValue: lambda rebuilder, value: rebuilder.start(value, f"{rebuilder.expr(value.base)}.{value.kind}()"),
    NamespaceValue: lambda rebuilder, value: rebuilder.local(f"{rebuilder.expr(value.base)}.__dict__"),
    Snapshot: Rebuilder.snapshot,
    DeferredText: Rebuilder.late_text,
}
