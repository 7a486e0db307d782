"""NumPy's functions and the methods of its arrays, by their counterparts in `torch._numpy`.

With numbers only, a function is computed while capturing (`scalars.py`).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._numpy

from dovetail.capture.calling.calls import fold
from dovetail.capture.library.numpy.scalars import NUMBER_FUNCTIONS, of_numbers
from dovetail.capture.library.torch.constructors import from_data
from dovetail.capture.numbers import dispatch
from dovetail.capture.numbers.input_numbers import varies
from dovetail.capture.tables.known_callables import FOLDED, FOLDED_METHOD_TYPES, KNOWN, Handler, known
from dovetail.capture.tensors import varying_slices
from dovetail.capture.tensors.numpy_arrays import DTYPES, TENSOR_DTYPES, array_of, dtype_of, has_array, refuse, traced
from dovetail.capture.tensors.operations import METHODS
from dovetail.capture.values.array import ArrayValue, NumberValue, as_array
from dovetail.capture.values.base import (
    ELLIPSIS,
    NONE,
    Args,
    Const,
    Kwargs,
    NotNative,
    Session,
    Value,
    boolean,
    is_singleton,
)
from dovetail.capture.values.callables import KnownValue
from dovetail.capture.values.containers import SequenceValue, SliceValue, TupleValue
from dovetail.capture.values.iterators import NativeIterator
from dovetail.capture.values.tensor import TensorValue, as_tensor
from dovetail.ir import arrays
from dovetail.ir.devices import HOST, on_host

tnp: Any = torch._numpy

CALLABLE = (np.ufunc, type(np.sum), types.FunctionType, types.BuiltinFunctionType)

#: Whose counterparts do something else.
EXCEPT = frozenset(
    """set_printoptions printoptions random seterr save load can_cast result_type issubdtype promote_types
    tril_indices triu_indices tril_indices_from triu_indices_from resize ndenumerate ndindex cbrt logspace geomspace
    identity tri""".split()
)
METHODS_EXCEPT = frozenset(
    """item tolist resize tobytes __iter__ __len__ __bool__ __int__ __float__ __index__ __complex__ __array__ __repr__
    __str__ __format__ __contains__ __init__ __new__ __class__ __getattribute__ __hash__ __setattr__ __delattr__
    __init_subclass__ __subclasshook__ __dir__ __reduce__ __reduce_ex__ __sizeof__ __setstate__ __dlpack__
    __dlpack_device__ __array_wrap__ __array_ufunc__ __array_function__ __deepcopy__ __copy__ __delitem__
    __class_getitem__ __array_finalize__ __array_priority__ __doc__""".split()
)


def _handler(label: str, function: Any, numbers: Any = None, ufunc: Any = None) -> Handler:
    name = label.rpartition(".")[2]
    check = CHECKS.get(name)

    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        given = (*args, *kwargs.values())
        if numbers is not None and not any(map(has_array, given)):
            return numbers(s, args, kwargs)
        if name in COMPARISONS and all(isinstance(a, (Const, NumberValue)) for a in given):
            return fold(s, getattr(operator, name.strip("_")), args, kwargs)
        if check is not None:
            check(s, label, args, kwargs)
        if ufunc is np.true_divide and all(map(_is_integer, args)) and not kwargs:
            args = [_as_float(s, a) for a in args]
        result = traced(s, label, function, args, kwargs, ufunc is not None or _stores_floats(name, args))
        if name in WITHOUT_RESULT:
            return NONE
        return result if ufunc is None or kwargs else _settled(s, label, ufunc, args, result)

    return handler


def _stores_floats(name: str, args: Args) -> bool:
    return name == "__setitem__" and isinstance(args[0], ArrayValue) and dtype_of(args[0]).kind == "f"


COMPARISONS = frozenset("__lt__ __le__ __eq__ __ne__ __gt__ __ge__".split())


# ---------------------------------------------------------------- NumPy's dtypes


def _operand(value: Any, ufunc: Any) -> Any:
    """What has the value's dtype, for NumPy to say what comes of it."""
    if isinstance(value, ArrayValue):
        return np.ones((1, 1) if ufunc is np.matmul else (1,), dtype_of(value))
    return value.real if varies(value) else value.native()


def _settled(s: Session, label: str, ufunc: Any, args: Args, result: Value) -> Value:
    """The result in the dtype that NumPy gives it, unless precision is lost already."""
    try:
        with np.errstate(all="ignore"):
            given = args[::-1] if _reflected(label) else args
            expected = ufunc(*(_operand(a, ufunc) for a in given))
    except (TypeError, ValueError, OverflowError, NotNative):
        return refuse(s, f"{label} is refused by NumPy, or given what only NumPy can judge")
    if isinstance(expected, tuple) and isinstance(result, SequenceValue):
        return TupleValue([_cast(s, label, r, e.dtype) for r, e in zip(result.items, expected, strict=True)])
    return _cast(s, label, result, expected.dtype)


def _cast(s: Session, label: str, value: Value, dtype: np.dtype) -> Value:
    if not isinstance(value, ArrayValue) or dtype_of(value) == dtype:
        return value
    exact = label.rpartition(".")[2] in WHOLE and dtype_of(value).kind in "iu"  # a whole number is one in any dtype
    if not exact and not np.can_cast(dtype, dtype_of(value)):
        return refuse(s, f"{label} gives {dtype_of(value)} on tensors and {dtype} in NumPy")
    cast = s.torch_method("to", [value.tensor, Const(getattr(torch, dtype.name))], {})
    return array_of(s, as_tensor(cast), value.scalar)


WHOLE = frozenset("rint fabs".split())


def _as_float(s: Session, value: Value) -> Value:
    """PyTorch divides integers in its default dtype."""
    if not isinstance(value, ArrayValue):
        return value
    return array_of(s, as_tensor(s.torch_method("to", [value.tensor, Const(torch.float64)], {})), value.scalar)


#: Operators by the function that they are.
OPERATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": operator.pow, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift, "matmul": np.matmul, "divmod": np.divmod,
    "neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert,
}  # fmt: skip


def _operator(name: str) -> Any:
    """The function of `__name__` or `__rname__`; in place the array keeps its dtype."""
    return OPERATORS.get(name.strip("_")) or OPERATORS.get(name.strip("_")[1:] if name[:3] == "__r" else "")


# ---------------------------------------------------------------- where PyTorch and NumPy differ


def _is_integer(value: Value) -> bool:
    kind = dtype_of(value).kind if isinstance(value, ArrayValue) else np.dtype(type(_known(value))).kind
    return kind in "biu"


def _known(value: Any) -> Any:
    return value.real if varies(value) and value.cls is float else getattr(value, "value", None)


def _no_integers(fits: Callable[[Any], bool], what: str) -> Callable[[Any, str, Args, Kwargs], None]:
    def check(s: Session, label: str, args: Args, kwargs: Kwargs) -> None:
        if len(args) < 2 or not all(map(_is_integer, args[:2])):
            return
        second = args[not _reflected(label)]
        if isinstance(second, ArrayValue) or not fits(_known(second)):
            refuse(s, f"{label} {what}")

    return check


def _reflected(label: str) -> bool:
    return "__r" in label and not label.endswith("__rshift__")


_no_zero_divisor = _no_integers(bool, "divides integers by what may be zero")  # NumPy warns and gives zero
_no_integer_power = _no_integers(lambda n: n >= 0, "raises integers to a power that may be negative")  # NumPy raises


def _none_of(kinds: str) -> Callable[[Any, str, Args, Kwargs], None]:
    """Not of arrays whose dtypes are of these kinds."""

    def check(s: Session, label: str, args: Args, kwargs: Kwargs) -> None:
        if args and isinstance(args[0], ArrayValue) and dtype_of(args[0]).kind in kinds:
            refuse(s, f"{label} of {dtype_of(args[0])}")

    return check


def _one_axis(s: Session, label: str, args: Args, kwargs: Kwargs) -> None:
    """Without an axis the result would have a dimension."""
    place = 1 if label.endswith("median") else 2
    if len(args) > place + 1 or is_singleton(kwargs.get("axis", args[place] if len(args) > place else NONE), None):
        refuse(s, f"{label} over all elements")


def _plain_index(s: Session, label: str, args: Args, kwargs: Kwargs) -> None:
    """A negative step is a copy on tensors; only whole dimensions are turned round."""
    index = args[1]
    parts = index.all(s) if isinstance(index, SequenceValue) else [index]
    turned = [p for p in parts if isinstance(p, SliceValue) and (_known(p.step) or 1) < 0]
    if not turned:
        return
    store = label.endswith("__setitem__")
    bounded = any(_known(p.start) is not None or _known(p.stop) is not None for p in turned)
    others = any(not isinstance(p, SliceValue) for p in parts)
    if store or bounded or others:
        refuse(s, "an array is indexed by a slice with a negative step")


def _numbers(s: Session, label: str, args: Args, kwargs: Kwargs) -> None:
    """PyTorch's NumPy finds whatever it cannot compare unequal; NumPy compares it item by item."""
    for value in args:
        if isinstance(value, SequenceValue):
            _numbers(s, label, value.all(s), kwargs)
        elif isinstance(value, (Const, KnownValue)) and not issubclass(value.cls, NUMBERS):
            refuse(s, f"{label} is given a {value.cls.__name__}")


NUMBERS = (int, float, complex, np.generic)

CHECKS: dict[str, Callable[[Any, str, Args, Kwargs], None]] = {
    **dict.fromkeys(("__eq__", "__ne__", "equal", "not_equal", "array_equal", "array_equiv"), _numbers),
    **dict.fromkeys(
        "floor_divide remainder mod fmod divmod __floordiv__ __rfloordiv__ __mod__ __rmod__ __divmod__ __rdivmod__ "
        "__ifloordiv__ __imod__".split(),
        _no_zero_divisor,
    ),
    **dict.fromkeys("power float_power pow __pow__ __rpow__ __ipow__".split(), _no_integer_power),
    **dict.fromkeys(("__getitem__", "__setitem__"), _plain_index),
    **dict.fromkeys("median quantile percentile".split(), _one_axis),
    **dict.fromkeys("sum prod trace any all".split(), _none_of("u")),  # NumPy counts them in uint64
    **dict.fromkeys("cumsum cumprod round around round_ diff nancumsum".split(), _none_of("bu")),
    **dict.fromkeys("angle histogram histogram2d histogramdd".split(), _none_of("biu")),
}


#: They change an argument.
WITHOUT_RESULT = frozenset("fill_diagonal put place copyto putmask".split())


# ---------------------------------------------------------------- functions


def _register_functions(ours: Any, theirs: Any, label: str) -> None:
    for name in dir(theirs):
        real, counterpart = getattr(ours, name, None), getattr(theirs, name)
        if name in EXCEPT or name[0] == "_" or not isinstance(real, CALLABLE) or not callable(counterpart):
            continue
        numbers = of_numbers(real) if isinstance(real, np.ufunc) or real in NUMBER_FUNCTIONS else None
        KNOWN[real] = _handler(f"{label}.{name}", counterpart, numbers, real if isinstance(real, np.ufunc) else None)


_register_functions(np, tnp, "numpy")
_register_functions(np.linalg, tnp.linalg, "numpy.linalg")
_register_functions(np.fft, tnp.fft, "numpy.fft")
FOLDED_METHOD_TYPES |= {np.dtype, *map(type, DTYPES)}
FOLDED |= {np.can_cast, np.result_type, np.issubdtype, np.promote_types, np.dtype, np.finfo, np.iinfo}


def _where(function: Any, fits: Callable[[Args, Kwargs], bool], other: Handler) -> None:
    """Have the function do something else with arguments that fit."""
    plain = KNOWN[function]

    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        return (other if args and fits(args, kwargs) else plain)(s, args, kwargs)

    KNOWN[function] = handler


def _is_array(args: Args, kwargs: Kwargs) -> bool:
    return len(args) == 1 and isinstance(args[0], ArrayValue) and not kwargs and not args[0].scalar


KNOWN[np.asanyarray] = KNOWN[np.asarray]
for _converts in (np.asarray, np.asanyarray):
    _where(_converts, _is_array, lambda s, args, kwargs: args[0])


def _stacked(obj: Any, dtype: Any = None) -> Any:
    """`np.array` of a list of arrays and numbers, which must not look at the elements."""
    made = tnp.stack([_stacked(o) if isinstance(o, (list, tuple)) else tnp.asarray(o) for o in obj])
    return made if dtype is None else made.astype(dtype)


def _full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """`np.full`, whose counterpart looks at the value."""
    dtype = tnp.asarray(fill_value).dtype if dtype is None else tnp.dtype(dtype)
    if isinstance(fill_value, tnp.ndarray):
        return tnp.broadcast_to(fill_value.astype(dtype), shape).copy()
    shape = (shape,) if isinstance(shape, int) else shape
    return tnp.ndarray(torch.full(shape, fill_value, dtype=dtype.torch_dtype, device=HOST))


KNOWN[np.full] = _handler("numpy.full", _full)


def _has_parts(args: Args, kwargs: Kwargs) -> bool:
    return isinstance(args[0], SequenceValue) and has_array(args[0]) and not kwargs.keys() - {"dtype"}


for _function in (np.array, np.asarray, np.asanyarray):
    _where(_function, _has_parts, _handler("numpy.array", _stacked))
for _type in {d.type for d in DTYPES if d.type in KNOWN} - {np.bool_}:  # `np.float32(x)`
    _of_array = _handler(f"numpy.{_type.__name__}", getattr(tnp, _type.__name__))
    _where(_type, lambda args, kwargs: isinstance(args[0], ArrayValue), _of_array)


# ---------------------------------------------------------------- methods


def _of_part(s: Session, name: str, args: Args) -> Args:
    """Reading or writing items under indices that vary is doing so with all of a part (`rows`)."""
    if name not in ("__getitem__", "__setitem__") or len(args) < 2:
        return args
    found = varying_slices.part(s, as_array(args[0]).tensor, args[1])
    return args if found is None else [array_of(s, as_tensor(found)), ELLIPSIS, *args[2:]]


def _method(name: str, counterpart: Any) -> Handler:
    plain = _handler(f"numpy.ndarray.{name}", counterpart, None, _operator(name))
    out_of_place, other = None, f"__{name[3:]}"
    if name[:3] == "__i" and other.strip("_") in OPERATORS:
        out_of_place = _handler(f"numpy.ndarray.{other}", getattr(tnp.ndarray, other), None, _operator(other))

    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if not args or not isinstance(args[0], ArrayValue):
            return refuse(s, f"numpy.ndarray.{name} is given no array that the graph knows")
        args = _of_part(s, name, args)
        if _stores_floats(name, args) and len(args) == 3 and varies(args[2]) and args[2].cls is int:
            args = [*args[:2], dispatch.call(s, float, args[2:]) or args[2]]
        chosen = out_of_place if out_of_place is not None and as_array(args[0]).scalar else plain
        return chosen(s, args, kwargs)

    return handler


for _name in dir(np.ndarray):
    _static = np.ndarray.__dict__.get(_name)
    if callable(_static) and _name not in METHODS_EXCEPT and hasattr(tnp.ndarray, _name):
        KNOWN[_static] = _method(_name, getattr(tnp.ndarray, _name))


@known(np.ndarray.__dict__["conj"], np.ndarray.__dict__["conjugate"])
def _conj(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """The array itself where there is nothing to do, unlike `np.conj`."""
    plain = len(args) == 1 and not kwargs and isinstance(args[0], ArrayValue) and dtype_of(args[0]).kind != "c"
    return args[0] if plain else KNOWN[np.conjugate](s, args, kwargs)


def _data(name: str) -> Handler:
    """What Python needs of the elements is the tensor's own business."""
    static = np.ndarray.__dict__[name]

    @known(static)
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        value = args[0]
        if not isinstance(value, ArrayValue) or kwargs or len(args) > 1:
            return refuse(s, f"numpy.ndarray.{name} is given no array that the graph knows")
        if isinstance(value, NumberValue):
            return fold(s, operator.methodcaller(name), args, kwargs)
        return s.torch_method(name, [value.tensor], {})

    return handler


for _name in ("item", "tolist", "__int__", "__float__", "__index__", "__complex__"):
    _data(_name)


@known(np.ndarray.__dict__["__bool__"])
def _bool(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], NumberValue):
        return boolean(bool(args[0].native()))
    return s.unsupported(
        "data-dependent-branch", "the code branches on the value of an array",
        "Use np.where, or move the branch out of the compiled function.",
    )  # fmt: skip


def _known_array(s: Session, value: Value) -> ArrayValue:
    return value if isinstance(value, ArrayValue) else refuse(s, f"{value.describe()} is no array that the graph knows")


@known(np.ndarray.__dict__["__len__"])
def _len(s: Session, args: Args, kwargs: Kwargs) -> Value:
    fake = _known_array(s, args[0]).tensor.fake
    return Const(fake.shape[0]) if fake.dim() else s.throw(TypeError, "len() of unsized object")


@known(np.ndarray.__dict__["__iter__"])
def _iter(s: Session, args: Args, kwargs: Kwargs) -> Value:
    fake = _known_array(s, args[0]).tensor.fake
    if not fake.dim():
        return s.throw(TypeError, "iteration over a 0-d array")
    return NativeIterator(iter([s.get_item(args[0], Const(k)) for k in range(fake.shape[0])]))


# ---------------------------------------------------------------- between arrays and tensors


def tensor_to_array(s: Session, value: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """`Tensor.numpy()`."""
    force = kwargs.get("force", args[0] if args else None)
    forced = force is not None and bool(force.native())
    fake = value.fake
    if not s.options.trace_numpy:
        return refuse(s, "Tensor.numpy gives an array, and dovetail.config.trace_numpy is off")
    if fake.dtype not in TENSOR_DTYPES or fake.is_conj() or fake.is_neg() or not on_host(fake):
        return refuse(s, f"a tensor of {fake.dtype} on {fake.device} becomes an array")
    if fake.requires_grad and not forced:
        return refuse(s, "a tensor that requires grad becomes an array")
    return array_of(s, as_tensor(s.torch_method("detach", [value], {})) if fake.requires_grad else value)


METHODS["numpy"] = tensor_to_array


def _like_tensor(function: Any) -> Any:
    """What makes an array like another takes a tensor for one; other functions of NumPy make tensors of tensors."""
    plain = KNOWN[function]

    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if args and isinstance(args[0], TensorValue) and args[0].cls is torch.Tensor and args[0].fake.is_contiguous():
            args = [tensor_to_array(s, args[0], [], {}), *args[1:]]
        return plain(s, args, kwargs)

    return handler


for _like in (np.ones_like, np.zeros_like, np.full_like):
    KNOWN[_like] = _like_tensor(_like)


@known(torch.from_numpy)
def _from_numpy(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs or not isinstance(args[0], ArrayValue) or args[0].scalar:
        return refuse(s, "torch.from_numpy is given no array that the graph knows")
    return s.torch_method("view_as", [args[0].tensor, args[0].tensor], {})


def _from_arrays(function: Any) -> None:
    """`torch.tensor`, which copies, and `torch.as_tensor`, which need not, of an array."""

    @known(function)
    def handler(s: Session, args: Args, kwargs: Kwargs) -> Value:
        if not args or not has_array(args[0]) or isinstance(args[0], TensorValue):
            return from_data(s, function, args, kwargs)
        if not isinstance(args[0], ArrayValue) or kwargs.keys() - {"dtype", "device"}:
            return from_data(s, function, args, kwargs)
        tensor = args[0].tensor
        moved = s.torch_method("to", [tensor], kwargs) if kwargs else tensor
        if function is torch.tensor or args[0].scalar:
            return s.torch_method("clone", [moved], {})
        return moved if moved is not tensor else s.torch_method("view_as", [tensor, tensor], {})


_from_arrays(torch.tensor)
_from_arrays(torch.as_tensor)


@known(arrays.to_array)
def _to_array(s: Session, args: Args, kwargs: Kwargs) -> Value:
    """What `wrap_numpy` sees a tensor as keeps its device and its gradient."""
    tensor = as_tensor(args[0])
    return array_of(s, tensor) if s.options.trace_numpy else tensor_to_array(s, tensor, [], {})


@known(arrays.to_tensor)
def _to_tensor(s: Session, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], ArrayValue):
        return args[0].tensor
    return s.torch_call(torch.as_tensor, args, kwargs)


