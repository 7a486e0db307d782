"""Tensor operations: run on fakes, recorded as nodes.

A node's `meta["fake"]` is the fake result (metadata without memory), `meta["stack"]` the user's
stack, `meta["mutates"]` marks an operation that wrote to an argument, `meta["renews"]` one that reads a view of what
was written to: PyTorch then brings the view's history up to date, and refuses to write to it otherwise.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch._library.custom_ops import OPDEFS
from torch._library.utils import can_generate_trivial_fake_impl
from torch.utils import _pytree as pytree

from dovetail.capture.numbers import graph_numbers, specialization, tensor_numbers, unbacked_sizes
from dovetail.capture.numbers.graph_numbers import InGraph
from dovetail.capture.numbers.input_numbers import InputNumber, may_be_constant
from dovetail.capture.numbers.numpy_numbers import plain_number
from dovetail.capture.outside.storage_offsets import refuse_outside
from dovetail.capture.process.settings import refuse_operators
from dovetail.capture.process.trusted_code import replaced_operator
from dovetail.capture.tables.graph_functions import (
    BY_LAYOUT,
    NO_PLACE,
    NO_VARIANT,
    RESHAPING,
    number_places,
    takes_constants,
)
from dovetail.capture.tensors import autograd_engine, extremes, literals, new_leaves, torch_function, wrapper_tensors
from dovetail.capture.values.base import Args, Const, Kwargs, NotNative, Session, Value
from dovetail.capture.values.callables import ClassValue, KnownValue
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, SliceValue, TupleValue, tensors_in
from dovetail.capture.values.number import SymbolicNumber
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import PLAIN, TensorValue
from dovetail.errors import Unsupported
from dovetail.ir.nodes import add_node, name_of
from dovetail.ops.calls.autograd_calls import unseen_leaf_
from dovetail.ops.fake import FakeTensor
from dovetail.ops.fake.meta_kernels import NoShapeRule
from dovetail.ops.fake.symbolic.number import NumberNeeded
from dovetail.ops.fake.symbolic.retry import symbolically
from dovetail.ops.fake.wrapped import handles_operators, is_wrapper

# ---------------------------------------------------------------- calls


#: Methods that are no nodes: what metadata answers, or what makes something else of the call; see tensor_attributes.py.
METHODS: dict[str, Callable[..., Value]] = {}

OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def lacks_fake(target: Any) -> bool:
    """A user's operator without a description of its result. (Others fail where they are asked for it.)"""
    name = target._schema.name if isinstance(target, torch._ops.OpOverload) else target._qualified_op_name
    defined = OPDEFS.get(name)
    if defined is None or defined._abstract_fn is not None:
        return False
    return not can_generate_trivial_fake_impl(defined._opoverload)


def torch_call(s: Session, target: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """One `call_function` node."""
    replaced = replaced_operator(s, target, args, TensorValue)
    if replaced is not None:
        method, given = replaced
        return s.call(s.wrap(method, None), *given)
    if torch_function.active(s, (*args, *kwargs.values())):
        return torch_function.overridden(s, target, args, kwargs, lambda: plain_call(s, target, args, kwargs))
    return plain_call(s, target, args, kwargs)


def plain_call(s: Session, target: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """The same for arguments whose classes, and modes, have no say."""
    if isinstance(target, OPERATORS) and lacks_fake(target):
        s.unsupported(
            "no-shape-rule", f"the operator {target} has no fake implementation, so its result cannot be predicted"
        )
    if s.taken.has_tensor_numbers:
        args, kwargs = tensor_numbers.given(s, getattr(target, "__name__", ""), args, kwargs)
    given, fakes, named, fake_kwargs = _arguments(s, getattr(target, "__name__", ""), args, kwargs)
    versions = _versions(args, kwargs)
    with unbacked_sizes.found_by(s):
        result = run_native(s, target, fakes, fake_kwargs)
    if fake_kwargs.get("out") is not None:
        versions = _written(s, target, fake_kwargs["out"], result, versions)
    return record(s, add_node(s.graph, "call_function", target, given, named), result, versions)


def _arguments(s: Session, name: str, args: Args, kwargs: Kwargs) -> tuple[tuple, list, dict, dict]:
    """By position those of the node and of its fake, and so by name; some places take numbers that vary."""
    takes = number_places(name) if name else NO_PLACE
    if takes_constants(name):
        takes = {k for k, value in (*enumerate(args), *kwargs.items()) if k in takes and not may_be_constant(s, value)}
    args, kwargs = literals.sizes(s, name, args, kwargs)
    pairs = [to_graph(s, a, k in takes) for k, a in enumerate(args)]
    named, fakes = unzipped({k: to_graph(s, v, k in takes) for k, v in kwargs.items()})
    return tuple(p[0] for p in pairs), [p[1] for p in pairs], named, fakes


def _written(s: Session, target: Any, out: Any, result: Any, versions: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """The versions, so that all of `out=` counts as changed. It is the result, except where PyTorch ignores it."""
    outs = pytree.tree_leaves(out)
    if list(map(id, pytree.tree_leaves(result))) != list(map(id, outs)):
        s.unsupported("no-shape-rule", f"what {target.__name__} does with out= cannot be predicted", "Use its result.")
    return [(fake, -1 if any(fake is o for o in outs) else version) for fake, version in versions]


def torch_method(s: Session, name: str, args: Args, kwargs: Kwargs) -> Value:
    """One `call_method` node, or a constant where the answer is metadata."""
    receiver = args[0]
    if not isinstance(receiver, TensorValue):
        if issubclass(receiver.cls, torch.Tensor):
            to_graph(s, receiver)  # which refuses it: see unusual_tensors.py
        return s.throw(TypeError, f"descriptor {name!r} requires a tensor, not {receiver.cls.__name__}")
    if torch_function.active(s, (*args, *kwargs.values())):
        function = torch_function.method_function(name)
        return torch_function.overridden(s, function, args, kwargs, lambda: plain_method(s, name, args, kwargs))
    return plain_method(s, name, args, kwargs)


def plain_method(s: Session, name: str, args: Args, kwargs: Kwargs) -> Value:
    """The same for tensors whose classes and modes have no say."""
    receiver: Any = args[0]
    handler = METHODS.get(name)
    if handler is not None:
        return handler(s, receiver, args[1:], kwargs)
    return recorded_method(s, name, args, kwargs)


def recorded_method(s: Session, name: str, args: Args, kwargs: Kwargs) -> Value:
    """One `call_method` node, whatever the method."""
    if s.taken.has_tensor_numbers:
        args, kwargs = tensor_numbers.given(s, name, args, kwargs)
    if kwargs and (multiplied := _scaled(s, name, args, kwargs)) is not None:
        return multiplied
    receiver: Any = args[0]
    if name in RESHAPING and receiver.origin is not None:
        s.unsupported(
            "metadata-mutation", f"{name}() changes the shape or the memory of a tensor from outside",
            f"Use {name.rstrip('_')}(), which gives a new tensor." if name not in NO_VARIANT else "Make a new tensor.",
        )  # fmt: skip
    if new_leaves.told_before(name, args, kwargs):
        return receiver
    leaf = new_leaves.unseen(s, name, args, kwargs)
    if name in ("detach_", "requires_grad_"):
        autograd_engine.rely_on_no_view(s, receiver)
        s.gradients.turned |= name == "requires_grad_" or receiver.origin is not None
    given, fakes, named, fake_kwargs = _arguments(s, name, args, kwargs)
    versions = _versions(args, kwargs)
    method = getattr(fakes[0], name)
    with unbacked_sizes.found_by(s):
        result = run_native(s, method, fakes[1:], fake_kwargs)
    if s.options.standalone and result is receiver.fake and (name in BY_LAYOUT or "memory_format" in kwargs):
        result = run_native(s, receiver.fake.view_as, [receiver.fake], {})
    if leaf:
        return record(s, s.graph.call_function(unseen_leaf_, given[:1]), result, versions)
    return record(s, add_node(s.graph, "call_method", name, given, named), result, versions)


#: Method → the name of its factor, and how the second tensor joins the first; None: there is one tensor.
FACTORS: dict[str, tuple[str, str | None]] = {
    "add": ("alpha", None), "sub": ("alpha", None), "addcmul": ("value", "mul"), "addcdiv": ("value", "div"),
}  # fmt: skip


def _scaled(s: Session, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """Factors that PyTorch takes as numbers (`alpha=`, `value=`) and that a tensor of the graph holds.

    Eager reads the number out of the tensor; the graph multiplies by the tensor. `x.addcdiv_(a, b, value=t)` becomes
    `x.add_(a.mul(t).div(b))`, in which PyTorch's kernels take the steps in the same order. None where it is a number.
    """
    found = FACTORS.get(name.removesuffix("_"))
    if found is None or not isinstance(kwargs.get(found[0]), TensorValue) or not isinstance(args[1], TensorValue):
        return None
    factor, join = found
    term = torch_method(s, "mul", [args[1], kwargs[factor]], {})
    if join is not None:
        term = torch_method(s, join, [term, args[2]], {})
    outer = "sub" if name.startswith("sub") else "add"
    return torch_method(s, outer + "_" * name.endswith("_"), [args[0], term], {})


def _versions(args: Args, kwargs: Kwargs) -> list[tuple[Any, int]]:
    found = [t.fake for t in tensors_in((*args, *kwargs.values()))]
    return [(f, f._version) for f in found if not f.is_inference()]


def run_native(s: Session, function: Callable[..., Any], args: list, kwargs: dict[str, Any]) -> Any:
    """Run the operation on fakes; its error is the program's, or the refusal of something without a fake."""
    try:
        return symbolically(function, args, kwargs)
    except Unsupported as refusal:
        if isinstance(refusal, NumberNeeded):
            specialization.retry_as_constants(s, function, args, kwargs, refusal)
        raise Unsupported(refusal.code, refusal.reason, refusal.remedy, s.stack()) from refusal
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError, ZeroDivisionError) as failure:
        error = specialization.retry_as_constants(s, function, args, kwargs, failure)
        name = getattr(function, "__name__", str(function))
        wrapper_tensors.refuse_ragged(s, name, error, (getattr(function, "__self__", None), args, kwargs))
        if isinstance(error, NoShapeRule) or isinstance(error, NotImplementedError) and isinstance(function, OPERATORS):
            return s.unsupported("no-shape-rule", f"the result of {name} cannot be predicted: {error}")
        if NO_RULE in str(error):
            return s.unsupported("higher-order-operator", f"{name} calls an operator that takes functions")
        if READS in str(error):
            return s.unsupported("data-dependent-value", f"{name} reads the values of a tensor of the graph")
        if any(word in str(error) for word in NO_MEMORY):
            remedy = "" if isinstance(function, OPERATORS) else "Call it outside of what is compiled."
            return s.unsupported("no-shape-rule", f"{name} needs more than metadata: {error}", remedy)
        if specialization.LEAF in str(error):
            autograd_engine.rely_on_leaves(s, [getattr(function, "__self__", None), *args, *kwargs.values()])
        return s.throw_native(error)


#: In messages that only tensors without memory cause.
READS = "data is not allocated yet"
NO_RULE = "no rule registered for HigherOrderOperator"
NO_MEMORY = (" meta ", "'Meta'", "FakeTensor", "Could not run ")


def record(s: Session, node: torch.fx.Node, result: Any, versions: list[tuple[Any, int]]) -> Value:
    """Note what the node did: its stack, the tensors that it changed, its views; gives the value of its result."""
    node.meta["stack"] = s.stack()
    if s.modes.switched:
        refuse_operators(s)
    if "as_strided" in (node.target, getattr(node.target, "__name__", "")):
        refuse_outside(s, result)
    if s.tensors.fakes.drawn != s.tensors.drawn:
        node.meta["random"], s.tensors.drawn = True, s.tensors.fakes.drawn
    changed = [fake for fake, before in versions if fake._version != before]
    if changed:
        node.meta["mutates"] = True
        autograd_engine.rely_on_own_memory(s, changed)
        s.cached.wrote(changed)
    else:
        autograd_engine.note_views(s, node, result, [fake for fake, _ in versions])
    made = tensor_result(s, node, result)
    if s.tensors.chosen:
        extremes.check(s, node, [fake for fake, _ in versions], changed)
    return made


def tensor_result(s: Session, node: torch.fx.Node, result: Any) -> Value:
    """The value of a node's result: a tensor, a constant, or a sequence of results."""
    node.meta["fake"] = result
    if s.table.sizes.unbacked:
        unbacked_sizes.note(s, node, result)
        unbacked_sizes.refuse_unread(s)
    if isinstance(result, torch.Tensor):
        kind = _kind(s, node, result)
        found = s.objects.by_fake.get(id(result))
        if found is None:
            found = s.objects.by_fake[id(result)] = TensorValue(node, result, kind)
        else:
            found.node = node if node.meta.get("mutates") and node.graph is found.node.graph else found.node
        return found
    if isinstance(result, (tuple, list)) and not isinstance(result, torch.Size):
        items = [_item(s, node, k, item) for k, item in enumerate(result)]
        kind = type(result)
        return ListValue(items) if kind is list else TupleValue(items, kind)
    if type(result) is dict and all(type(key) in (str, int) for key in result):
        made = DictValue()
        for key, item in result.items():
            made.put(s, Const(key), _item(s, node, key, item))
        return made
    return _plain_result(s, node, result)


#: What an operation may give besides tensors and containers: values, not parts of a tensor.
PLAIN_RESULTS = (
    bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool, torch.qscheme,
)  # fmt: skip


def _plain_result(s: Session, node: torch.fx.Node, result: Any) -> Value:
    """A constant. Any other object has been shown the fake, or is a part of it (its memory)."""
    if not isinstance(result, PLAIN_RESULTS):
        name, kind = name_of(node) or "a function", type(result).__name__
        s.unsupported("object-from-graph", f"{name} gives a {kind}, and tensors here have no memory")
    return s.from_native(result)


def _item(s: Session, node: torch.fx.Node, key: Any, item: Any) -> Value:
    """What a container that a node gives holds under an index or a key."""
    if not isinstance(item, (torch.Tensor, tuple, list, dict)):
        return _plain_result(s, node, item)
    pick = add_node(s.graph, "call_function", operator.getitem, (node, key))
    pick.meta["stack"] = node.meta["stack"]
    return tensor_result(s, pick, item)


def _kind(s: Session, node: torch.fx.Node, result: torch.Tensor) -> type:
    """The class that the program sees. One that holds fakes without saying so would hold them for ever."""
    kind = type(result)
    if kind is torch.Tensor or kind is FakeTensor:
        return torch.Tensor
    if is_wrapper(result):
        wrapper_tensors.note(s, kind)
        return kind
    if handles_operators(kind):
        name = name_of(node) or "a function"
        s.unsupported(
            "tensor-subclass",
            f"{name} gives a {kind.__name__}, a tensor class that handles operators itself (__torch_dispatch__)",
            "Make it outside the compiled function.",
        )
    return torch.Tensor


ARGUMENTS = (str, int, float, complex, torch.dtype, torch.device, torch.layout, range)


def reachable(s: Session, value: TensorValue) -> TensorValue:
    """Refuse a tensor that only a finished inner graph knows."""
    if value.node.graph not in s.open_graphs:
        s.unsupported(
            "tensor-left-subgraph", "a tensor is used that a branch, loop or transformed function made and kept"
        )
    return value


#: Python's types where a dtype is wanted; the graph's text has no name for them.
ELEMENT_TYPES: dict = {
    float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128,
}  # fmt: skip


def to_graph(s: Session, value: Value, numbers: bool = False) -> tuple[Any, Any]:
    """(graph argument, fake argument). `numbers`: may the operation take a number that varies here?"""
    for kind in type(value).__mro__:
        found = TO_GRAPH[kind](s, value, numbers) if kind in TO_GRAPH else None
        if found is not None:
            return found
    if hasattr(value, "all") and not isinstance(value, SequenceValue):
        return to_graph(s, ListValue(value.all(s)))
    return _dataclass_to_graph(s, value) or _native_to_graph(s, value)


def _tensor_to_graph(s: Session, value: TensorValue, numbers: bool) -> tuple[Any, Any]:
    if value.cls not in PLAIN and is_wrapper(value.fake):
        wrapper_tensors.refuse_inside(s, value)
    return reachable(s, value).node, value.fake


def _symbolic_to_graph(s: Session, value: SymbolicNumber, numbers: bool) -> tuple[Any, Any] | None:
    if not value.open:
        return None
    size = None if numbers else unbacked_sizes.of_number(s, value)
    return (value if size is None else size).as_argument(s, numbers)


def _const_to_graph(s: Session, value: Const, numbers: bool) -> tuple[Any, Any]:
    native = _of_python(s, plain_number(value).value)
    return graph_numbers.in_graph(s, native), native


def _sequence_to_graph(s: Session, value: SequenceValue, numbers: bool) -> tuple[Any, Any] | None:
    if issubclass(value.cls, deque):  # of which PyTorch takes none
        return None
    pairs = [to_graph(s, v, numbers) for v in value.all(s)]
    kind = tuple if isinstance(value, TupleValue) else list
    return kind(p[0] for p in pairs), kind(p[1] for p in pairs)


def _slice_to_graph(s: Session, value: SliceValue, numbers: bool) -> tuple[Any, Any]:
    parts = [to_graph(s, v) for v in value.parts()]
    return slice(*(p[0] for p in parts)), slice(*(p[1] for p in parts))


def _dict_to_graph(s: Session, value: DictValue, numbers: bool) -> tuple[Any, Any]:
    return unzipped({k.native(): to_graph(s, v) for k, v in value.pairs(s)})


def unzipped(pairs: dict[Any, Any]) -> tuple[Any, Any]:
    """A dictionary of pairs as two."""
    return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}


def _class_to_graph(s: Session, value: ClassValue, numbers: bool) -> tuple[Any, Any]:
    named = ELEMENT_TYPES.get(value.real, value.real)
    return named, named


def _known_to_graph(s: Session, value: KnownValue, numbers: bool) -> tuple[Any, Any]:
    if isinstance(value.real, torch.Generator):
        s.unsupported(
            "generator", f"{value.describe()} is a random generator, whose state the graph would have to keep"
        )
    return value.real, value.real


def _native_to_graph(s: Session, value: Value) -> tuple[Any, Any]:
    try:
        native = value.native()
    except NotNative:
        native = None
    native = _of_python(s, native)
    if not isinstance(native, ARGUMENTS):  # the graph is text too: it cannot name the object
        s.unsupported("graph-argument", f"{value.describe()} cannot be an argument of a torch operation")
    return native, native


#: None: it becomes what its native form becomes.
TO_GRAPH: dict[type, Callable[[Session, Any, bool], tuple[Any, Any] | None]] = {
    TensorValue: _tensor_to_graph,
    InputNumber: _symbolic_to_graph,
    InGraph: _symbolic_to_graph,
    Const: _const_to_graph,
    SequenceValue: _sequence_to_graph,
    SliceValue: _slice_to_graph,
    DictValue: _dict_to_graph,
    ClassValue: _class_to_graph,
    KnownValue: _known_to_graph,
}

#: The number or text that an object of a class below these holds, as the members of enumerations do: the graph is text.
HELD: dict[type, Callable[[Any], Any]] = {
    int: int.__index__, float: float.__float__, complex: complex.__complex__, str: str.__str__,
}  # fmt: skip


def _of_python(s: Session, native: Any) -> Any:
    """One of NumPy's numbers as Python's, if PyTorch takes both for the same; what an enumeration's member holds."""
    if not isinstance(native, numpy.generic):
        kind = next((k for k in HELD if isinstance(native, k) and type(native) not in (k, bool)), None)
        return native if kind is None else HELD[kind](native)
    if isinstance(native, (numpy.bool_, numpy.complex64)):
        s.unsupported("graph-argument", f"PyTorch makes something of its own of a {type(native).__name__} of NumPy's")
    return native.item()


def _dataclass_to_graph(s: Session, value: Any) -> tuple[Any, Any] | None:
    """A node that makes a frozen dataclass of its fields; None for what is no object of a dataclass that is made of
    them and of nothing else."""
    if type(value) is not ObjectValue or not dataclasses.is_dataclass(value.cls):
        return None
    listed = dataclasses.fields(value.cls)
    frozen = value.cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if not frozen or hasattr(value.cls, "__post_init__") or not all(field.init for field in listed):
        return None
    if {*value.attrs} - {field.name for field in listed}:
        return None
    pairs = {field.name: to_graph(s, s.get_attr(value, field.name)) for field in listed}
    made = value.cls(**{name: fake for name, (_, fake) in pairs.items()})
    return s.graph.call_function(value.cls, (), {name: node for name, (node, _) in pairs.items()}), made
