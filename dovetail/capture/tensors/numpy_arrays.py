"""NumPy programs as tensor operations.

PyTorch has a NumPy written in its own operations, `torch._numpy`. A call of a NumPy function on an array runs that
function on fakes, natively, and a torch function mode (`NumpyRecorder`) puts every operation that it does into the
graph:

    np.sum(x[:, None] * y)      getitem; mul; sum

Whatever it does not know, refuses or would do otherwise than NumPy breaks the graph at the user's call, and NumPy
does it.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
import torch._numpy
from torch.overrides import TorchFunctionMode

from dovetail.capture.numbers.input_numbers import varies
from dovetail.capture.numbers.size_values import size_value
from dovetail.capture.numbers.unbacked_sizes import unchanged_sizes
from dovetail.capture.outside.wrap import WRAPPERS, remember, wrap_const, wrap_object
from dovetail.capture.tables.graph_functions import graph_functions, tensor_methods
from dovetail.capture.values.array import ArrayValue, NumberValue
from dovetail.capture.values.base import MISSING, Args, Const, Kwargs, NotNative, Raised, Session, Value
from dovetail.capture.values.callables import KnownValue, MethodValue
from dovetail.capture.values.containers import DictValue, ListValue, SequenceValue, SliceValue, TupleValue
from dovetail.capture.values.tensor import TensorValue, as_tensor
from dovetail.errors import Unsupported
from dovetail.ir.arrays import to_array, to_scalar
from dovetail.ir.guard import GuardKind
from dovetail.ir.source import Attr, FromArray, Source
from dovetail.ops.fake.symbolic.symint import is_size

if TYPE_CHECKING:
    from dovetail.capture.residual.rebuild import Rebuilder

tnp: Any = torch._numpy

#: What `torch._numpy` and PyTorch have operations for.
DTYPES = frozenset(map(np.dtype, "? u1 i1 i2 i4 i8 f2 f4 f8 c8 c16".split()))
REMEDY = "Use the torch function that does the same, or call it outside the compiled function."


TENSOR_DTYPES = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
     torch.float64, torch.complex64, torch.complex128)
)  # fmt: skip


def refuse(s: Session, what: str) -> NoReturn:
    """NumPy itself has to do it; never returns."""
    s.unsupported("numpy-array", what, REMEDY)


# ---------------------------------------------------------------- values


def wrap_array(s: Session, real: np.ndarray, source: Source) -> ArrayValue | None:
    """A graph input for an array from outside; None if no tensor can stand for it."""
    plain = type(real) is np.ndarray and real.dtype in DTYPES and real.dtype.isnative and real.flags.writeable
    if not s.options.trace_numpy or not plain or min(real.strides, default=0) < 0:
        return None
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            tensor = torch.from_numpy(real)
    except (TypeError, ValueError):  # strides that are no multiples of the item's size
        return None
    s.guard(source, GuardKind.TYPE, np.ndarray)
    s.guard(Attr(Attr(source, "flags"), "writeable"), GuardKind.EQUAL, True)
    value = as_tensor(s.wrap_tensor(tensor, FromArray(source)))
    device = torch.get_default_device()
    if device != value.fake.device:
        value = as_tensor(s.torch_method("to", [value, Const(device)], {}))
    return array_of(s, value, real=real, source=source)


def wrap_number(s: Session, real: np.floating, source: Source) -> ArrayValue:
    """A graph input for a NumPy number that was seen to change."""
    s.guard(source, GuardKind.TYPE, type(real))
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        tensor = torch.from_numpy(np.array(real))
    value = as_tensor(s.wrap_tensor(tensor, FromArray(source, True)))
    made = array_of(s, value, True, real, source, NumberValue)
    assert isinstance(made, NumberValue)
    made.s = s
    return made


def array_of(
    s: Session, tensor: TensorValue, scalar: bool = False, real: Any = MISSING, source: Source | None = None,
    kind: type[ArrayValue] = ArrayValue,
) -> ArrayValue:  # fmt: skip
    """The array over a tensor of the graph; a new object, as `Tensor.numpy` gives."""
    value = kind(tensor, tnp.ndarray(tensor.fake), scalar, real, source)
    s.objects.arrays[id(value.view)] = value
    return value


def rebuild_array(rebuilder: Rebuilder, value: ArrayValue) -> str:
    """Text that makes the array, or scalar, of its tensor."""
    text = rebuilder.expr(value.tensor)
    return rebuilder.start(value, f"{rebuilder.known(to_scalar if value.scalar else to_array)}({text})")


# ---------------------------------------------------------------- recording


class NumpyRecorder(TorchFunctionMode):
    """Puts every operation on tensors that native Python code does into the graph."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.s = session
        self.numbers: dict[int, tuple[float, Value]] = {}  # floats that vary, by identity

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__":
            return self._attribute(function, args)
        handler = DIRECT.get(name)
        if handler is not None:
            return handler(function, args, kwargs or {})
        kwargs = dict(kwargs or {})
        if function in FROM_DATA and kwargs.get("dtype") is None and not isinstance(args[0], torch.Tensor):
            kwargs["dtype"] = function(*args, **kwargs).dtype  # the default one is set only meanwhile
        values = [self.symbolic(a) for a in args]
        named = {k: self.symbolic(v) for k, v in kwargs.items()}
        if function in FROM_DATA and id(args[0]) in self.numbers:
            result = self.s.torch_call(torch.full, [TupleValue([]), values[0]], {"dtype": named["dtype"]})
        elif name in ITEMS:
            result = self.s.torch_call(ITEMS[name], values, named)
        elif tensor_methods().get(function) is not None:
            result = self.s.torch_method(tensor_methods()[function], values, named)
        elif function in graph_functions():
            result = self.s.torch_call(function, values, named)
        else:
            return refuse(self.s, f"{name} is no operation of a graph")
        return self.native(result)

    def _attribute(self, getter: Any, args: Any) -> Any:
        found = getter(*args)
        if not isinstance(found, torch.Tensor):
            return found
        return self.native(self.s.tensor_get_attr(as_tensor(self.symbolic(args[0])), getter.__self__.__name__))

    def number(self, value: Value) -> float:
        """A float object of its own, which stands for `value` wherever it turns up."""
        made = value.real * 1.0  # type: ignore[attr-defined]
        self.numbers[id(made)] = made, value
        return made

    def symbolic(self, native: Any) -> Value:
        """The value of what PyTorch's NumPy made of fakes."""
        if id(native) in self.numbers:
            return self.numbers[id(native)][1]
        if isinstance(native, torch.Tensor):
            return self.s.objects.by_fake[id(native)]
        if is_size(native):
            return size_value(self.s, native)
        if isinstance(native, slice):
            return SliceValue(self.symbolic(native.start), self.symbolic(native.stop), self.symbolic(native.step))
        if isinstance(native, (tuple, list)):
            kind = TupleValue if isinstance(native, tuple) else ListValue
            return kind([self.symbolic(v) for v in native])
        return self.s.from_native(native)

    def native(self, value: Value) -> Any:
        """What PyTorch's NumPy is given for a value."""
        if isinstance(value, TensorValue):
            return value.fake
        if isinstance(value, TupleValue):
            return value.cls([self.native(v) for v in value.all(self.s)])
        if isinstance(value, SequenceValue):
            return [self.native(v) for v in value.all(self.s)]
        return value.native()


#: Answered by the fake: what an operation gives is no tensor.
DIRECT: dict[str, Callable[..., Any]] = dict.fromkeys(
    """dim size stride numel element_size is_contiguous is_floating_point is_complex storage_offset __len__ ndimension
    is_conj is_neg""".split(),
    lambda function, args, kwargs: function(*args, **kwargs),
)
FROM_DATA = (torch.tensor, torch.as_tensor)
ITEMS: dict[str, Callable[..., Any]] = {"__getitem__": operator.getitem, "__setitem__": operator.setitem}


# ---------------------------------------------------------------- calls


def has_array(value: Any) -> bool:
    """Does an array take part in it?"""
    if isinstance(value, SequenceValue):
        return any(has_array(v) for v in value.items)
    if isinstance(value, SliceValue):
        return any(map(has_array, value.parts()))
    return isinstance(value, (ArrayValue, TensorValue))


def traced(s: Session, label: str, function: Any, args: Args, kwargs: Kwargs, numbers: bool = False) -> Value:
    """Run a function of `torch._numpy` and record what it does.

    label: NumPy's name for it.
    numbers: it hands floats to operations as they are, so that they may vary from call to call.
    """
    if not s.options.trace_numpy:
        return refuse(s, f"{label} gives an array, and dovetail.config.trace_numpy is off")
    try:
        with unchanged_sizes(s), NumpyRecorder(s) as recorder:
            given = [recorder.number(a) if numbers and _is_varying(a) else _argument(s, label, a) for a in args]
            named = {k: _argument(s, label, v) for k, v in kwargs.items()}
            result = function(*given, **named)
    except Unsupported:
        raise
    except (Raised, NotNative, KeyError):
        _raise_out_of_bounds(s, label, args)
        return refuse(s, f"{label} does something here that tensors cannot do")
    except Exception as error:  # NumPy, whose error it may be or not, has the last word
        return refuse(s, f"{label} is not available on tensors here: {type(error).__name__}: {error}")
    return _result(s, label, result, args)


def _raise_out_of_bounds(s: Session, label: str, args: Args) -> None:
    """What NumPy raises for an index, if that is all there is to it."""
    if label.rpartition(".")[2] not in ITEMS or not all(isinstance(n, int) for n in args[0].tensor.fake.shape):  # type: ignore[attr-defined]
        return
    try:
        index = args[1].native()
    except NotNative:
        return
    try:
        np.broadcast_to(np.zeros((), dtype_of(args[0])), tuple(args[0].tensor.fake.shape))[index]  # type: ignore[attr-defined, arg-type]
    except (IndexError, TypeError) as error:
        s.throw_native(error)


def _is_varying(value: Value) -> bool:
    return varies(value) and value.cls is float


def _argument(s: Session, label: str, value: Value) -> Any:
    """What `torch._numpy` takes for it."""
    if isinstance(value, ArrayValue):
        return value.view
    if isinstance(value, TensorValue):
        return refuse(s, f"{label} is given a tensor")
    if isinstance(value, SequenceValue):
        items = [_argument(s, label, v) for v in value.all(s)]
        return tuple(items) if isinstance(value, TupleValue) else items
    if isinstance(value, SliceValue):
        return slice(*(_argument(s, label, v) for v in value.parts()))
    if isinstance(value, DictValue):
        return refuse(s, f"{label} is given a dictionary")
    try:
        native = value.native()
    except NotNative:
        return refuse(s, f"{label} is given {value.describe()}")
    return _constant(s, label, native)


def _constant(s: Session, label: str, native: Any) -> Any:
    if isinstance(native, np.generic):
        if native.dtype not in DTYPES:
            return refuse(s, f"{label} is given a {native.dtype}")
        return tnp.asarray(native.item(), dtype=native.dtype.name)
    if isinstance(native, np.dtype) or isinstance(native, type) and issubclass(native, np.generic):
        dtype = None if isinstance(native, type) and native in ABSTRACT else np.dtype(native)
        if dtype not in DTYPES or not dtype.isnative:
            return refuse(s, f"{label} is given the dtype {native}")
        return tnp.dtype(dtype.name)
    if native is None or native is ... or isinstance(native, PLAIN):
        return native
    return refuse(s, f"{label} is given a {type(native).__name__}")


PLAIN = (bool, int, float, complex, str, type)
ABSTRACT = (np.generic, np.number, np.integer, np.inexact, np.floating, np.complexfloating, np.signedinteger,
            np.unsignedinteger, np.character, np.flexible)  # fmt: skip


def _result(s: Session, label: str, result: Any, args: Args) -> Value:
    if isinstance(result, tnp.ndarray):
        return _array_result(s, label, result, args)
    if isinstance(result, torch.Tensor) or result is NotImplemented:
        return refuse(s, f"{label} gives no array on tensors")
    if isinstance(result, (tuple, list)):
        items = [_result(s, label, r, args) for r in result]
        name = label.rpartition(".")[2]
        listed = name in SPLITS or name in LISTS_BEFORE_2 and np.lib.NumpyVersion(np.__version__) < "2.0.0"
        return ListValue(items) if listed else TupleValue(items, NAMED.get(label, tuple))
    if isinstance(result, tnp.DType):
        return Const(np.dtype(result.name))
    if isinstance(result, PLAIN) or result is None:
        return s.from_native(result)
    return refuse(s, f"{label} gives a {type(result).__name__} on tensors")


def _array_result(s: Session, label: str, result: Any, args: Args) -> Value:
    found = s.objects.arrays.get(id(result))
    if found is not None and found.view is result:
        return found
    tensor = s.objects.by_fake.get(id(result.tensor))
    if tensor is None or result.tensor.dtype not in TENSOR_DTYPES:
        return refuse(s, f"{label} makes a tensor that is no array")
    name = label.rpartition(".")[2]
    scalar = not result.tensor.shape and (name not in ARRAYS or name in LIKE and getattr(args[0], "scalar", False))
    if (scalar or name not in VIEWS) and (result.tensor._is_view() or _is_given(result.tensor, args)):
        tensor = as_tensor(s.torch_method("clone", [tensor], {}))
    return array_of(s, tensor, scalar)


def _is_given(tensor: Any, args: Args) -> bool:
    return any(a.tensor.fake is tensor for a in args if isinstance(a, ArrayValue))


#: Functions whose results share memory with an argument; all others give fresh arrays.
VIEWS = frozenset(
    """reshape ravel transpose T swapaxes moveaxis rollaxis squeeze expand_dims asarray asanyarray ascontiguousarray
    real imag diagonal broadcast_to broadcast_arrays atleast_1d atleast_2d atleast_3d split array_split hsplit vsplit
    dsplit view flipud fliplr flip rot90 __getitem__ permute_dims matrix_transpose mT""".split()
)
#: Functions that give arrays even without dimensions; NumPy's others give scalars then.
ARRAYS = frozenset(
    """array zeros ones full empty zeros_like ones_like full_like empty_like copy astype where einsum_path tensordot
    fill nan_to_num fft""".split()
) | (VIEWS - {"__getitem__"})  # fmt: skip
SPLITS = frozenset("split array_split hsplit vsplit dsplit".split())
LISTS_BEFORE_2 = frozenset("meshgrid broadcast_arrays gradient".split())
#: Of those, the methods that give a scalar for a scalar.
LIKE = frozenset("copy astype real imag T transpose squeeze view".split())


def _named_results() -> dict[str, type]:
    """NumPy's named tuples, by the function that gives one."""
    made = {
        "linalg.eigh": np.linalg.eigh(np.eye(1)), "linalg.eig": np.linalg.eig(np.eye(1)),
        "linalg.svd": np.linalg.svd(np.eye(1)), "linalg.qr": np.linalg.qr(np.eye(1)),
        "linalg.slogdet": np.linalg.slogdet(np.eye(1)),
    }  # fmt: skip
    return {f"numpy.{name}": type(value) for name, value in made.items()}


NAMED = _named_results()


# ---------------------------------------------------------------- attributes


def array_get_attr(s: Session, value: ArrayValue, name: str) -> Value:
    """`array.name`."""
    reader = ATTRIBUTES.get(name)
    if reader is not None:
        return reader(s, value)
    static = s.static(np.ndarray, name)
    if isinstance(static, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return MethodValue(KnownValue(static), value)
    if static is MISSING:
        return s.throw(AttributeError, f"'numpy.ndarray' object has no attribute {name!r}")
    return s.generic_get_attr(value, name) if name == "__class__" else refuse(s, f"the code reads {name!r} of an array")


def dtype_of(value: ArrayValue) -> np.dtype:
    """NumPy's dtype of the array."""
    return np.dtype(value.view.dtype.name)


def _by(read: Callable[[Any], Any]) -> Callable[[Any, ArrayValue], Value]:
    return lambda s, v: s.from_native(read(v.tensor.fake))


def _through(name: str) -> Callable[[Any, ArrayValue], Value]:
    return lambda s, v: traced(s, f"numpy.ndarray.{name}", lambda a: getattr(a, name), [v], {})


ATTRIBUTES: dict[str, Callable[[Any, ArrayValue], Value]] = {
    "shape": _by(lambda t: tuple(t.shape)),
    "ndim": _by(lambda t: t.dim()),
    "size": _by(lambda t: t.numel()),
    "itemsize": _by(lambda t: t.element_size()),
    "nbytes": _by(lambda t: t.numel() * t.element_size()),
    "strides": _by(lambda t: tuple(n * t.element_size() for n in t.stride())),
    "dtype": lambda s, v: Const(dtype_of(v)),
    "T": _through("T"),
    "real": lambda s, v: _through("real")(s, v) if dtype_of(v).kind == "c" else v,
    "imag": _through("imag"),
    "__class__": lambda s, v: s.wrap(v.type, None),
}


def _wrap_numpy_number(s: Session, obj: Any, source: Source | None) -> Value:
    if source is None or not s.options.trace_numpy or source.name() not in s.table.varying:
        return wrap_const(s, obj, source)
    return wrap_number(s, obj, source)


def _wrap_array(s: Session, obj: Any, source: Source | None) -> Value:
    value = wrap_array(s, obj, source if source is not None else s.bind(obj, "array"))
    return wrap_object(s, obj, source) if value is None else remember(s, obj, value)


WRAPPERS |= dict.fromkeys((np.float16, np.float32, np.float64), _wrap_numpy_number)
WRAPPERS[np.ndarray] = _wrap_array
