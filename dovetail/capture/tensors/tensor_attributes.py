"""What a tensor's attributes give, and those of its methods that are no operators: metadata, hooks, numbers."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.numbers import (
    graph_numbers,
    optimizer_counters,
    size_inputs,
    size_values,
    tensor_numbers,
    unbacked_sizes,
)
from dovetail.capture.outside.wrap import Called
from dovetail.capture.process.trusted_code import intact
from dovetail.capture.tables.graph_functions import tensor_methods
from dovetail.capture.tensors import autograd_engine, gradient_hooks, literals, torch_function, wrapper_tensors
from dovetail.capture.tensors.operations import METHODS, reachable, record, run_native, torch_method
from dovetail.capture.values.base import FALSE, MISSING, NONE, Args, Const, Kwargs, Session, Value, boolean
from dovetail.capture.values.callables import KnownValue, MethodValue
from dovetail.capture.values.containers import ListValue, SequenceValue, TupleValue
from dovetail.capture.values.tensor import PLAIN, TENSOR_STORES, TensorValue, as_tensor
from dovetail.ir.guard import GuardKind
from dovetail.ir.nodes import in_place
from dovetail.ops.calls.autograd_calls import set_data
from dovetail.ops.fake.wrapped import is_wrapper


def tensor_get_attr(s: Session, value: TensorValue, name: str) -> Value:
    """`tensor.name`."""
    if (s.overrides.modes or value.cls not in PLAIN) and name in OVERRIDABLE and torch_function.active(s, [value]):
        getter = getattr(torch.Tensor, name).__get__
        return torch_function.overridden(s, getter, [value], {}, lambda: _plain_attribute(s, value, name))
    return _plain_attribute(s, value, name)


def _plain_attribute(s: Session, value: TensorValue, name: str) -> Value:
    reader = ATTRIBUTES.get(name)
    if reader is not None:
        return reader(s, value)
    found = value.attrs.get(name)
    if found is not None and found is not MISSING:
        return found
    if value.cls not in PLAIN and is_wrapper(value.fake):
        found = _of_wrapper(s, value, name)
        if found is not None:
            return found
    static = s.static(value.cls, name)
    if static is MISSING:
        if value.real is not MISSING and name in value.real.__dict__:
            return s.wrap(value.real.__dict__[name], s.attr_source(value, name))
        if value.source is not None:
            s.guard(value.source, GuardKind.HAS_ATTR, (name, False))
        return s.throw(AttributeError, f"'Tensor' object has no attribute {name!r}")
    if name == "__dict__":
        return s.unsupported("tensor-attribute", "the code reads the attribute dictionary of a tensor")
    method = getattr(torch.Tensor, name, None)
    own = static is next((c.__dict__[name] for c in torch.Tensor.__mro__ if name in c.__dict__), None)
    if own and method in tensor_methods() and intact(s, method):
        return MethodValue(KnownValue(method), value)
    if name in GRAPH_ATTRIBUTES:
        return graph_attribute(s, value, name)
    if type(static) in BOUND:
        return s.bind_descriptor(value, static, name)
    if not own and not hasattr(type(static), "__get__"):
        return s.wrap(static, s.attr_source(value, name))
    return s.unsupported("tensor-attribute", f"the code reads {name!r} of a tensor, which a graph does not know")


#: What the class says of its tensors in code that runs while capturing.
_CONSTANTS = (int, float, str, bytes, type(None), torch.dtype, torch.device)
#: What says how a distributed tensor lies on its mesh: nobody changes it.
_SPECS = ("torch.distributed.tensor._dtensor_spec", "DTensorSpec")


def _of_wrapper(s: Session, value: TensorValue, name: str) -> Value | None:
    """A tensor that this one is made of; of one that the graph makes, whatever else its class has stored in it."""
    if name in value.fake.__tensor_flatten__()[0]:
        wrapper_tensors.refuse_inside(s, value)
        return graph_attribute(s, value, name)
    if type(s.static(value.cls, name)) is types.MemberDescriptorType:
        found = getattr(value.fake, name, None)
        return s.wrap(found, None) if (type(found).__module__, type(found).__qualname__) == _SPECS else None
    known, own = value.real is not MISSING and name in value.real.__dict__, getattr(value.fake, "__dict__", {})
    if not known and name not in own:
        return None
    if known and not value.fake._version:
        return None  # it is what it was outside
    if not isinstance(own.get(name), _CONSTANTS):
        s.unsupported("tensor-attribute", f"the code reads {name!r} of a {value.cls.__name__} that the graph computes")
    return s.from_native(own[name])


BOUND = (types.FunctionType, property, classmethod, staticmethod)
GRAPH_ATTRIBUTES = frozenset(("T", "mT", "H", "mH", "real", "imag", "data"))


def graph_attribute(s: Session, value: TensorValue, name: str) -> Value:
    """An attribute that the graph reads: the result of a node."""
    read = [] if value.fake.is_inference() else [(value.fake, value.fake._version)]
    result = run_native(s, getattr, [value.fake, name], {})
    node = s.graph.create_node("call_function", getattr, (reachable(s, value).node, name))
    return record(s, node, result, read)


def _metadata(name: str) -> Callable[[Any, TensorValue], Value]:
    return lambda s, v: s.from_native(getattr(v.fake, name))


def _shape(s: Session, value: TensorValue) -> Value:
    return TupleValue([size_values.size_value(s, n) for n in value.fake.shape], torch.Size)


ATTRIBUTES: dict[str, Callable[[Any, TensorValue], Value]] = {
    "shape": _shape,
    "nbytes": lambda s, v: s.binary("mul", s.call_method(v, "numel"), Const(v.fake.itemsize)),
    "grad": autograd_engine.grad,
    "is_leaf": autograd_engine.is_leaf,
    "grad_fn": autograd_engine.grad_fn,
    "__class__": lambda s, v: s.wrap(v.cls, None),
    **{
        n: _metadata(n)
        for n in """dtype device layout ndim requires_grad is_cuda is_cpu is_mps is_meta is_sparse is_quantized
        is_nested itemsize is_xpu is_mkldnn is_xla is_sparse_csr names output_nr""".split()
    },
}  # fmt: skip


OVERRIDABLE = frozenset(
    n for n in (*ATTRIBUTES, *GRAPH_ATTRIBUTES) if type(getattr(torch.Tensor, n, None)) is types.GetSetDescriptorType
)


def _fold_method(name: str) -> Callable[..., Value]:
    def method(s: Session, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
        native = [a.native() for a in args]
        s.tensors.offset_read |= name == "storage_offset"
        if name in ("stride", "dim_order"):
            size_inputs.show_strides(s, value)
        try:
            result = getattr(value.fake, name)(*native, **{k: v.native() for k, v in kwargs.items()})
        except (TypeError, IndexError, RuntimeError, ValueError) as error:
            return s.throw_native(error)
        return s.from_native(result)

    return method


def _is_inference(s: Session, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """Tensors from outside are asked themselves, each time; outside inference mode they make only their kind."""
    outside = [v for v in s.objects.by_identity.values() if isinstance(v, TensorValue) and v.source is not None]
    if value.source is not None:
        return boolean(_made_in_inference_mode(s, value))
    if not torch.is_inference_mode_enabled() and not any(_made_in_inference_mode(s, v) for v in outside):
        return FALSE
    return s.unsupported("inference-tensor", f"the code asks whether {value.describe()} is an inference tensor")


def _made_in_inference_mode(s: Session, value: TensorValue) -> bool:
    assert value.source is not None
    found = next(real for real in s.objects.keep if s.objects.by_identity.get(id(real)) is value).is_inference()
    s.guard(Called(value.source, ".is_inference()"), GuardKind.ID, found)
    return found


def _data_dependent(name: str, in_graph: Callable[[Any, Any], Value | None] | None = None) -> Callable[..., Value]:
    def method(s: Session, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
        number = in_graph(s, value) if in_graph is not None and s.graph is s.root else None
        if number is not None:
            return number
        return s.unsupported(
            "data-dependent-value",
            f"Tensor.{name} gives Python a value of a tensor, which exists only after the graph has run",
        )

    return method


def _item(s: Session, value: TensorValue) -> Value | None:
    if (known := literals.number(s, value)) is not None:
        return known
    made = optimizer_counters.number(s, value) or tensor_numbers.item(s, value)
    return made or unbacked_sizes.item(s, value) or graph_numbers.item(s, value)


LONGEST_LIST = 64


def _listed(s: Session, value: TensorValue) -> Value | None:
    """`tolist()` of a short vector or a single number."""
    if (known := literals.listed(s, value)) is not None:
        return known
    fake = value.fake
    sizes = unbacked_sizes.takes(s, fake) and all(type(n) is int for n in fake.shape)
    if not sizes and not graph_numbers.takes(s, fake) or fake.dim() > 1:
        return None
    item = unbacked_sizes.item if sizes else graph_numbers.item
    if not fake.dim():
        return item(s, value)
    if len(fake) > LONGEST_LIST:
        return None
    return ListValue([item(s, as_tensor(s.get_item(value, Const(k)))) for k in range(len(fake))])


def _len(s: Session, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    if value.fake.dim() == 0:
        s.throw(TypeError, "len() of a 0-d tensor")
    return size_values.size_value(s, value.fake.shape[0])


def _new(s: Session, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """`x.new(sizes)` is memory without contents, `x.new(data)` a tensor of the data."""
    if args and isinstance(args[0], SequenceValue) and args[0].cls is not torch.Size:
        return s.torch_method("new_tensor", [value, *args], kwargs)
    if args and isinstance(args[0], TensorValue):
        return s.torch_method("detach", [args[0]], {})
    return s.torch_method("new_empty", [value, *(args or [Const(0)])], kwargs)


def _contains(s: Session, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    found = s.torch_call(operator.eq, [value, args[0]], {})
    return boolean(s.truth(s.torch_method("any", [found], {})))


def _hook(name: str) -> Callable[..., Value]:
    return lambda s, v, args, kw: gradient_hooks.register(s, name, v, args, kw)


METADATA_METHODS = (
    "size dim stride is_contiguous numel nelement ndimension element_size storage_offset get_device is_floating_point "
    "is_complex is_signed is_inference is_conj is_neg is_pinned dim_order has_names"
).split()
DATA_METHODS = "item tolist __int__ __float__ __index__ __complex__ data_ptr nonzero_numpy __array__".split()

METHODS |= {
    **{name: _fold_method(name) for name in METADATA_METHODS},
    "is_inference": _is_inference,
    **{name: _data_dependent(name) for name in DATA_METHODS},
    "item": _data_dependent("item", _item),
    "__index__": _data_dependent("__index__", literals.index),
    "tolist": _data_dependent("tolist", _listed),
    "__len__": _len,
    "new": _new,
    **{name: _hook(name) for name in ("register_hook", "register_post_accumulate_grad_hook")},
    "backward": lambda s, v, args, kw: autograd_engine.backward(s, [v, *args], kw),
    "__iter__": lambda s, v, args, kw: s.iterate(v),
    "__bool__": lambda s, v, args, kw: boolean(s.truth(v)),
    "__contains__": _contains,
    "__hash__": lambda s, v, args, kw: s.unsupported(
        "tensor-hash", "the code hashes a tensor, as a dictionary or a set does with a key"
    ),
    "__setattr__": lambda s, v, args, kw: s.object_set_attr(v, args[0].native(), args[1]) or NONE,
}


# ---------------------------------------------------------------- stores


def _store_requires_grad(s: Session, value: TensorValue, new: Value) -> bool:
    torch_method(s, "requires_grad_", [value, new], {})
    return True


def _store_data(s: Session, value: TensorValue, new: Value) -> bool:
    """`x.data = y`: a tensor gets other memory, and stays what it is to autograd. PyTorch runs a graph in which that
    happens. Where graphs may break, one ends before the store instead, so that both sides of it are compiled.

    False where that cannot be part of the graph: what capture knows of the tensor must stay true.
    """
    if value is new or _same_memory(s, value, new):
        return True  # what `module.to(...)` does where nothing has to move, and the end of `x.data += y`
    if s.ends.breaks or s.graph is not s.root or not isinstance(new, TensorValue) or not _alike(value, new):
        return False
    if s.taken.parts or s.tensors.chosen or any(array.tensor is value for array in s.objects.arrays.values()):
        return False  # they have the old memory
    s.state_node(set_data, value.node, new.node)
    s.tensors.moved.add(id(value))
    return True


def _same_memory(s: Session, value: TensorValue, new: Value) -> bool:
    """Is it what `value.data` gave, which may have been written to since?"""
    if not isinstance(new, TensorValue) or id(value) in s.tensors.moved or not _alike(value, new):
        return False
    read = _written(new.node)
    return read.target is getattr and read.args[1] == "data" and _written(read.args[0]) is _written(value.node)


def _written(node: Any) -> Any:
    """The node that made the tensor that this one writes to."""
    while in_place(node):
        node = node.args[0]
    return node


def _alike(value: TensorValue, new: TensorValue) -> bool:
    fakes = [value.fake, new.fake]
    if not {value.cls, new.cls} <= PLAIN or any(f.layout is not torch.strided or f.is_inference() for f in fakes):
        return False
    metadata = [(f.shape, f.stride(), f.dtype, f.device, f.is_conj(), f.is_neg()) for f in fakes]
    return metadata[0] == metadata[1]


def _store_part(name: str) -> Callable[[Session, TensorValue, Value], bool]:
    """`x.real = y`: the part is written to."""

    def store(s: Session, value: TensorValue, new: Value) -> bool:
        number = isinstance(new, Const) and type(new.value) in (int, float)
        if not number and not isinstance(new, TensorValue):
            return False
        part = graph_attribute(s, value, name)
        torch_method(s, "fill_" if number else "copy_", [part, new], {})
        return True

    return store


TENSOR_STORES |= {"requires_grad": _store_requires_grad, "data": _store_data}
TENSOR_STORES |= {name: _store_part(name) for name in ("real", "imag")}
