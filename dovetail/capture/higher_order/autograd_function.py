"""`torch.autograd.Function.apply` inside the region.

Where nothing will be differentiated, a custom function is its forward, traced like other code. Elsewhere the node is
the call itself, so that PyTorch's engine uses the function's own backward; forward is traced for what it would give,
and for what else it does: code that changes Python objects is left to a graph break. Backward is traced too where it
only computes: a joint graph is recorded from the two graphs (`function_graphs.py`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.autograd.function import FunctionCtx

from dovetail.capture.higher_order import pytrees
from dovetail.capture.higher_order.function_graphs import FunctionGraphs, trace_backward
from dovetail.capture.higher_order.subgraph import Region
from dovetail.capture.state.thread_state import without_gradients
from dovetail.capture.tables.known_callables import known
from dovetail.capture.tensors.gradient_hooks import refuse_unknown
from dovetail.capture.tensors.operations import run_native
from dovetail.capture.values.base import MISSING, Args, Kwargs, NotNative, Session, Value, boolean
from dovetail.capture.values.containers import TupleValue
from dovetail.capture.values.objects import ObjectValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.guard import GuardKind
from dovetail.ops.calls import higher_order
from dovetail.ops.fake.meta_kernels import NoShapeRule

_NATIVE_APPLY: Any = torch.autograd.Function.__dict__["apply"]  # before PyTorch 2.15 a classmethod in Python


@known(getattr(_NATIVE_APPLY, "__func__", _NATIVE_APPLY))
def _apply(s: Session, args: Args, kwargs: Kwargs) -> Value:
    cls, inputs = args[0], args[1:]
    if kwargs:
        return s.unsupported("autograd-function", f"{cls.describe()}.apply is called with keyword arguments")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return _in_transform(s, cls, inputs)
    tensors = [a.fake for a in inputs if isinstance(a, TensorValue)]
    # A tensor may require gradients by now as a view of one that the program has told to.
    if torch.is_grad_enabled() and (any(t.requires_grad for t in tensors) or s.gradients.turned):
        return _tracked(s, cls, inputs)
    with without_gradients(s):
        result, context = _forward(s, cls, inputs, [False for _ in inputs])
    for value in _noted(s, context, "dirty_tensors"):
        if isinstance(value, TensorValue):  # `apply` counts a write of its own
            s.torch_call(torch.autograd.graph.increment_version, [value], {})
    if any(v.fake.requires_grad for v in _tensors(s, result)):
        s.unsupported("autograd-function", f"{cls.describe()} gives a tensor with a history of its own")
    return result


def _tensors(s: Session, result: Value) -> list[TensorValue]:
    found = result.all(s) if isinstance(result, TupleValue) else [result]
    return [v for v in found if isinstance(v, TensorValue)]


def _forward(s: Session, cls: Value, inputs: Args, needed: Any) -> tuple[Value, ObjectValue]:
    """Trace forward, and setup_context if the class has one: the result and the context."""
    context = ObjectValue(FunctionCtx)
    context.attrs["needs_input_grad"] = TupleValue([boolean(n) for n in needed])
    forward, setup = s.get_attr(cls, "forward"), s.static(cls.native(), "setup_context")
    if setup is s.static(torch.autograd.Function, "setup_context"):
        result = forward.call(s, [context, *inputs], {})
    else:
        result = forward.call(s, list(inputs), {})
        s.get_attr(cls, "setup_context").call(s, [context, TupleValue(inputs), result], {})
    dirty = _noted(s, context, "dirty_tensors")
    return _apart(s, result, [v for v in inputs if v not in dirty]), context


def _apart(s: Session, result: Value, inputs: Args) -> Value:
    """An input that forward returns as it is comes out of `apply` as a view of itself."""
    if isinstance(result, TupleValue):
        return TupleValue([_apart(s, v, inputs) for v in result.all(s)], result.cls)
    if isinstance(result, TensorValue) and any(result is v for v in inputs):
        return s.torch_method("view_as", [result, result], {})
    return result


def _noted(s: Session, context: ObjectValue, name: str) -> list[Value]:
    """The tensors that forward gave to `mark_dirty` and the like."""
    found = context.attrs.get(name)
    return found.all(s) if isinstance(found, TupleValue) else []


def _tracked(s: Session, cls: Value, inputs: Args) -> Value:
    """A node that calls `apply`, where inputs require grad."""
    region = Region(s, "forward")
    s.modes.changed.add("grad_mode")  # off while forward runs
    found: FunctionGraphs | None = None

    def traced(context: Any, *fakes: Any) -> Any:
        nonlocal found
        with region:
            result, noted = _forward(s, cls, inputs, context.needs_input_grad[1:])
            region.refuse_changes(f"{cls.describe()}.forward")
            native = pytrees.pair(s, result)[1]
            dirty, constant = (_noted(s, noted, n) for n in ("dirty_tensors", "non_differentiable"))
            region.impure = region.is_impure()
            found = None if dirty else trace_backward(s, region, cls, inputs, result, noted, constant)
        if found is None:
            region.discard()
        else:
            context.both = found
        if dirty:
            context.mark_dirty(*_fakes(dirty))
        if constant:
            context.mark_non_differentiable(*_fakes(constant))
        return native

    parts = [_argument(s, v) for v in inputs]
    native = run_native(s, _Probe.apply, [traced, *(p[1] for p in parts)], {})
    return _node(s, cls, parts, native, region.impure, found)


def _fakes(values: list[Value]) -> list:
    return [v.fake for v in values if isinstance(v, TensorValue)]


class _Probe(torch.autograd.Function):
    """On fakes it gives what the traced function would: who requires grad, which outputs are inputs, gradients."""

    @staticmethod
    def forward(ctx: Any, traced: Any, *fakes: Any) -> Any:
        return traced(ctx, *fakes)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        found = getattr(ctx, "both", None)
        if found is None:
            raise NoShapeRule("the gradient of a custom function is needed while capturing")
        return None, *found.gradients(grads)


def _in_transform(s: Session, cls: Value, inputs: Args) -> Value:
    """Under torch.func the call itself is the node too; forward's own derivative has the right shapes."""
    region = Region(s, "forward")
    with region:
        result, _ = _forward(s, cls, inputs, [True for _ in inputs])
        region.refuse_changes(f"{cls.describe()}.forward")
        native = pytrees.pair(s, result)[1]
    impure = region.is_impure()
    region.discard()
    return _node(s, cls, [_argument(s, v) for v in inputs], native, impure)


def _node(
    s: Session, cls: Value, parts: list[tuple[Any, Any]], native: Any, impure: bool, found: FunctionGraphs | None = None
) -> Value:
    graphs, around = (found.graphs, found.around) if found is not None else (None, [])
    fixed = {k: p[1] for k, p in enumerate(parts) if p[0] is _HELD}
    target = higher_order.Apply(cls.native(), fixed, len(parts), graphs)
    node = s.graph.create_node("call_function", target, (*(p[0] for p in parts if p[0] is not _HELD), *around))
    node.meta.update(stack=s.stack(), mutates=impure)
    pytrees.outside(s, native)
    return pytrees.result(s, node, native)


def _argument(s: Session, value: Value) -> tuple[Any, Any]:
    """(argument of the node, argument of the call on fakes). The target holds objects that a graph cannot name."""
    real = getattr(value, "real", MISSING)
    if real is MISSING or isinstance(value, (TensorValue, TupleValue)):
        return pytrees.pair(s, value)
    try:
        native = value.native()
    except NotNative:
        return pytrees.pair(s, value)
    if value.source is not None:
        s.guard(value.source, GuardKind.ID, native)
    return _HELD, native


_HELD = object()


@known(torch.autograd.grad)
def _grad(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """A node like any other, since the engine works on fakes too."""
    refuse_unknown(s)
    return s.torch_call(torch.autograd.grad, args, kwargs)
