"""Tensors from Python data, PyTorch's named tuples, and element types by name."""

from __future__ import annotations

from collections import deque
from functools import reduce
from typing import Any

import numpy
import torch
import torch.return_types

from dovetail.capture.numbers.graph_numbers import GraphNumber
from dovetail.capture.numbers.input_numbers import varies
from dovetail.capture.tables.known_callables import known
from dovetail.capture.values.array import NumberValue
from dovetail.capture.values.base import Args, Const, Kwargs, NotNative, Session, Value
from dovetail.capture.values.containers import ListValue, SequenceValue, TupleValue
from dovetail.capture.values.tensor import TensorValue
from dovetail.ir.devices import HOST


def from_data(s: Session, function: Any, args: Args, kwargs: Kwargs) -> Value:
    """Data in which tensors are nested becomes a stack of its elements."""
    name = "obj" if function is torch.asarray else "data"
    if not args and name not in kwargs:
        return s.torch_call(function, args, kwargs)
    (data, *more), rest = args or [kwargs[name]], {n: v for n, v in kwargs.items() if n != name}
    if not more and "dtype" not in rest:
        rest |= _own_dtype(s, function, data)
    if _computed(data):
        return s.torch_call(torch.full, [TupleValue([]), data, *more], rest)
    if isinstance(data, SequenceValue):
        leaves: Args = []
        sizes = _walk(s, data, leaves)
        if any(isinstance(leaf, TensorValue) or _computed(leaf) for leaf in leaves):
            data = _stacked(s, leaves, sizes)
            return s.torch_call(torch.as_tensor, [data, *more], _without_grad(s, kwargs))
        data = ListValue(data.all(s)) if issubclass(data.cls, deque) else data
    return s.torch_call(function, [data, *more], rest)


def _handler(function: Any) -> Any:
    return lambda s, args, kwargs: from_data(s, function, args, kwargs)


for _function in (torch.tensor, torch.as_tensor, torch.asarray):
    known(_function)(_handler(_function))


def _computed(data: Value) -> bool:
    """Is it a number that the graph is given, or takes from a tensor?"""
    return varies(data) or isinstance(data, GraphNumber)


def _own_dtype(s: Session, function: Any, data: Value) -> Kwargs:
    """The dtype of NumPy's numbers, which the graph has as Python's."""
    if varies(data):
        return {"dtype": Const(_dtype(data))} if issubclass(data.cls, numpy.generic) else {}
    if not _has_numpy(s, data):
        return {}
    try:
        return {"dtype": Const(function(data.native(), device=HOST).dtype)}  # a meta tensor takes what this refuses
    except NotNative:
        return {}
    except (TypeError, ValueError, RuntimeError) as error:
        return s.throw_native(error)


def _has_numpy(s: Session, data: Value) -> bool:
    if isinstance(data, SequenceValue):
        return any(_has_numpy(s, item) for item in data.all(s))
    return isinstance(data, NumberValue) or isinstance(data, Const) and issubclass(data.cls, numpy.generic)


def _without_grad(s: Session, kwargs: Kwargs) -> Kwargs:
    if "requires_grad" in kwargs and s.truth(kwargs["requires_grad"]):
        s.unsupported("nested-data", "a tensor that requires grad is made from a list of tensors")
    return {n: v for n, v in kwargs.items() if n in ("dtype", "device")}


def _walk(s: Session, data: Value, leaves: Args) -> list[int]:
    """Append the elements; the sizes of the nesting."""
    if not isinstance(data, SequenceValue):
        leaves.append(data)
        return []
    inner = [_walk(s, item, leaves) for item in data.all(s)]
    if any(sizes != inner[0] for sizes in inner):
        s.throw(ValueError, "expected sequences of equal length")
    return [len(inner), *(inner[0] if inner else [])]


def _stacked(s: Session, leaves: Args, sizes: list[int]) -> Value:
    if any(isinstance(leaf, TensorValue) and leaf.fake.dim() for leaf in leaves):
        return s.unsupported("nested-data", "a tensor is made from a list of tensors that have dimensions")
    dtype = Const(reduce(torch.promote_types, [_dtype(leaf) for leaf in leaves]))
    made = [
        s.torch_method("to", [s.torch_method("detach", [leaf], {}), dtype], {})
        if isinstance(leaf, TensorValue)
        else s.torch_call(torch.full, [TupleValue([]), leaf], {"dtype": dtype})
        for leaf in leaves
    ]
    flat = s.call(s.wrap(torch.stack, None), ListValue(made))
    return s.torch_method("view", [flat, *map(Const, sizes)], {})


def _dtype(leaf: Value) -> torch.dtype:
    if isinstance(leaf, TensorValue):
        return leaf.fake.dtype
    return torch.tensor(leaf.cls(0) if _computed(leaf) else leaf.native(), device="meta").dtype


# ---------------------------------------------------------------- named tuples


def _named_tuple(cls: Any) -> None:
    @known(cls)
    def make(s: Session, args: Args, kwargs: Kwargs) -> Value:
        items = s.unpack(args[0] if args else kwargs["sequence"])
        if len(items) != cls.n_sequence_fields or len(args) + len(kwargs) > 1:
            try:
                cls([None] * len(items), *(a.native() for a in args[1:]))
            except (TypeError, RuntimeError) as error:
                return s.throw_native(error)
            return s.unsupported("native-object", f"{cls.__name__} objects are made of other items")
        return TupleValue(items, cls)


for _cls in vars(torch.return_types).values():
    if isinstance(_cls, type) and issubclass(_cls, tuple):
        _named_tuple(_cls)


# ---------------------------------------------------------------- element types


#: PyTorch's old names of tensor classes and the types of their elements.
LEGACY = {
    torch.FloatTensor: torch.float32, torch.DoubleTensor: torch.float64, torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16, torch.LongTensor: torch.int64, torch.IntTensor: torch.int32,
    torch.ShortTensor: torch.int16, torch.CharTensor: torch.int8, torch.ByteTensor: torch.uint8,
    torch.BoolTensor: torch.bool,
}  # fmt: skip
LEGACY_NAMES = {f"torch.{cls.__name__}": dtype for cls, dtype in LEGACY.items()}


def element_type(value: Value) -> Value:
    """The dtype that `Tensor.type(value)` names."""
    native = value.native()
    found = LEGACY_NAMES.get(native) if isinstance(native, str) else LEGACY.get(native) if native in LEGACY else None
    return value if found is None else Const(found)
