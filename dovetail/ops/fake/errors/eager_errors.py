"""What kernels refuse and meta kernels let pass: the errors that eager raises for layouts, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.ops.fake.rules.layout import is_dense
from dovetail.ops.fake.symbolic.size_questions import all_same, empty, never_more, same

aten = torch.ops.aten

FLOATING = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
REAL = FLOATING | {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
COMPLEX = frozenset((torch.complex32, torch.complex64, torch.complex128))
_INDEX_DTYPES = frozenset((torch.int64, torch.int32, torch.bool, torch.uint8))
#: Those that look for overlaps and are not tagged as element-wise by every version of PyTorch.
_LOOKING = frozenset(
    """__irshift__ _add_relu_ absolute_ arctan2_ bernoulli_ cauchy_ celu_ copy_ copysign_ cumprod_ cumsum_ divide_
    elu_ eq_ exponential_ floor_divide_ gcd_ ge_ gelu_ greater_ greater_equal_ gt_ hardsigmoid_ hardswish_ hardtanh_
    heaviside_ index_add_ index_copy_ index_fill_ lcm_ le_ leaky_relu_ less_ less_equal_ log_normal_ lt_
    masked_fill_ masked_scatter_ mish_ multiply_ ne_ normal_ not_equal_ put_ random_ scatter_ scatter_add_ selu_
    subtract_ true_divide_ uniform_ xlogy_""".split()
)
_ITERATING = frozenset((aten.abs_.default, aten.fill_.Tensor))  # of operators that do not all look
#: Which of them write to several elements in one place, and which may read a part of what they write to.
_SHARED = {
    "conj_physical_": REAL,
    "nan_to_num_": REAL - FLOATING,
    "index_fill_": COMPLEX | REAL,
    "masked_fill_": COMPLEX | REAL,
}
_REREADING = frozenset("bernoulli_ fill_ ldexp_ masked_scatter_ rrelu_with_noise_".split())
#: In-place operators whose result is converted to the type of what they write to, if that can hold it.
_ARITHMETIC = frozenset(
    f"aten::{name}_" for name in
    "add sub mul div true_divide floor_divide remainder fmod pow clamp clamp_min clamp_max".split()
)  # fmt: skip
_NAMES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


def check(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What operators refuse that write to an argument."""
    if not _iterates(func):
        return
    _check_places(func, args, kwargs)
    if _broadcasts(func):
        _check_result(args[0], [t for t in (*args[1:], *kwargs.values()) if isinstance(t, torch.Tensor)])
    if func._schema.name in _ARITHMETIC:
        _check_conversion(args)


@cache
def _iterates(func: Any) -> bool:
    """Does the operator look whether memory that it writes to overlaps?"""
    named = func.namespace == "aten" and _name(func) in _LOOKING
    return named or func in _ITERATING or torch.Tag.pointwise in func.tags and _name(func) not in ("fill_", "zero_")


@cache
def _broadcasts(func: Any) -> bool:
    """Is the result written to the first operand, with which the others are broadcast?"""
    name = _name(func)
    tagged = torch.Tag.pointwise in func.tags or name == "masked_fill_"
    return tagged and name.endswith("_") and not name.startswith("_")


def part(view: Any) -> Callable[..., None]:
    """Of operators that exchange what `view` gives of a tensor."""
    return partial(_check_part, view)


def _check_part(view: Any, own: torch.Tensor, source: torch.Tensor, *place: Any, **named: Any) -> None:
    if any(type(n) not in (int, type(None)) for n in (*own.shape, *source.shape, *place, *named.values())):
        return  # sizes that vary
    with torch._C._DisableTorchDispatch():
        part = view(torch.empty(own.shape, device="meta"), *place, **named)
    if part.shape != source.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(source.shape)}, "
            f"slice size = {list(part.shape)}"
        )


def _check_result(own: torch.Tensor, others: list[torch.Tensor]) -> None:
    shapes = [tuple(t.shape) for t in (own, *others)]
    if any(type(n) is not int for shape in shapes for n in shape) or all(shape == shapes[0] for shape in shapes):
        return
    try:
        whole = tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return  # refused anyway
    if whole != shapes[0]:
        raise RuntimeError(f"output with shape {list(shapes[0])} doesn't match the broadcast shape {list(whole)}")


def _name(func: Any) -> str:
    return func._schema.name.removeprefix("aten::")


def _check_places(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Kernels refuse to write to an expanded tensor, and to a part of what they read."""
    if func is aten.copy_.default and args[0] is args[1]:
        return  # nothing is written
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    for argument in func._schema.arguments:
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        written = given.get(argument.name)
        if not isinstance(written, torch.Tensor) or written.layout is not torch.strided:
            continue
        shares = written.dtype in _SHARED.get(_name(func), ())
        repeated = [n for n, t in zip(written.shape, written.stride(), strict=True) if type(t) is int and t == 0]
        if not shares and any(n > 1 for n in repeated) and written.numel():
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation."
            )
        read = [t for name, t in given.items() if isinstance(t, torch.Tensor) and name not in ("value", argument.name)]
        if _name(func) not in _REREADING and any(_partly(written, t) for t in read):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )


def _partly(written: torch.Tensor, read: torch.Tensor) -> bool:
    """Do they share some elements, but differ? Known of views of one tensor without gaps."""
    if written is read or read.layout is not torch.strided or _base(written) is not _base(read):
        return False
    if empty(written.shape) or empty(read.shape):
        return False
    (first, end), (start, stop) = (
        (t.storage_offset() * t.itemsize, (t.storage_offset() + t.numel()) * t.itemsize) for t in (written, read)
    )
    if never_more(stop, first) or never_more(end, start):
        return False
    alike = all_same(written.stride(), read.stride())
    if alike and all_same((first, end), (start, stop)):
        return False
    if any(n == 0 for n in (*written.shape, *read.shape)) or not (first < stop and start < end):
        return False
    same_place = (first, end) == (start, stop) and (alike or written.stride() == read.stride())
    return not same_place and is_dense(written) and is_dense(read)


def _base(tensor: Any) -> Any:
    """The tensor that has the memory. Views that are made below autograd have no base; their fakes know an owner."""
    owner = getattr(tensor, "owner", tensor)
    return tensor._base if owner is tensor and tensor._is_view() else owner


def _check_conversion(args: tuple[Any, ...]) -> None:
    """An integer tensor cannot be the place of a floating-point result, nor a real one that of a complex result."""
    own = args[0].dtype
    if own.is_complex:
        return
    for other in args[1:]:
        kind = _kind(other)
        if kind is not None and not torch.can_cast(kind, own):
            kind = torch.promote_types(kind, own)
            raise RuntimeError(
                f"result type {_NAMES.get(kind, kind)} can't be cast to the desired output type {_NAMES.get(own, own)}"
            )


def _kind(operand: Any) -> torch.dtype | None:
    if isinstance(operand, torch.Tensor):
        return operand.dtype
    if isinstance(operand, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    if isinstance(operand, complex):
        return torch.get_default_dtype().to_complex()
    if isinstance(operand, (int, torch.SymInt)) and not isinstance(operand, bool):
        return torch.int64
    return None


def put(tensor: torch.Tensor, indices: Any, values: torch.Tensor, *_: Any, **__: Any) -> None:
    """Of `index_put` and its likes: indices, then whether the values fit what they choose."""
    indexed(tensor, indices)
    _check_values(tensor, indices, values)


def indexed(tensor: torch.Tensor, indices: Any, **_: Any) -> None:
    """Dtypes, and the sizes of masks."""
    place = 0
    for index in indices:
        if index is None:
            place += 1
            continue
        if index.dtype not in _INDEX_DTYPES:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if index.dtype not in (torch.bool, torch.uint8):
            place += 1
            continue
        for d, size in enumerate(index.shape):
            own = tensor.shape[place + d] if place + d < tensor.dim() else size
            if not same(size, own) and size != own:
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {d} does not match the shape of the indexed "
                    f"tensor {list(tensor.shape)} at index {place + d}"
                )
        place += index.dim()


def _check_values(tensor: torch.Tensor, indices: Any, values: torch.Tensor) -> None:
    """Values are broadcast to what the indices choose; known where those are integers."""
    given = [i for i in indices if i is not None]
    if not given or any(i.dtype in (torch.bool, torch.uint8) for i in given) or len(indices) > tensor.dim():
        return
    chosen = torch.broadcast_shapes(*(i.shape for i in given))
    places = [k for k, i in enumerate(indices) if i is not None]
    rest = [n for k, n in enumerate(tensor.shape) if k not in places]
    together = places == list(range(places[0], places[-1] + 1))
    front = places[0] if together else 0
    result = (*rest[:front], *chosen, *rest[front:])
    lead = len(values.shape) - len(result)
    fits = all(n == 1 for n in values.shape[: max(lead, 0)]) and all(
        same(n, m) or n in (1, m) for n, m in zip(reversed(values.shape), reversed(result), strict=False)
    )
    if not fits:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
            f"shape {list(result)}"
        )


# ---------------------------------------------------------------- index_add, index_copy, index_fill


def index_add(own: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, **_: Any) -> None:
    """The index's type, the source's type, and sizes but for that of `dim`."""
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"index_add_(): Expected dtype int32/int64 for index but got: {_NAMES.get(index.dtype)}")
    if own.dtype is not source.dtype:
        raise RuntimeError(
            f"index_add_(): self ({_NAMES.get(own.dtype)}) and source ({_NAMES.get(source.dtype)}) must have the same "
            "scalar type"
        )
    both = own.dim() and source.dim()
    if (_without(own, dim) != _without(source, dim)) if both else (own.shape != source.shape):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(own.shape)} source.shape = {list(source.shape)}"
        )


def index_copy(own: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, **_: Any) -> None:
    """Ranks, the index's type, the source's type, sizes, and that there is an index for each slice."""
    if own.dim() and source.dim() and own.dim() != source.dim():
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
            f"dimensionality ({source.dim()}), destination dimensionality ({own.dim()})"
        )
    if index.dtype is not torch.int64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {_NAMES.get(index.dtype)}")
    if own.dtype is not source.dtype:
        raise RuntimeError(
            "index_copy_(): self and source expected to have the same dtype, but got (self) "
            f"{_NAMES.get(own.dtype)} and (source) {_NAMES.get(source.dtype)}"
        )
    if _without(own, dim) != _without(source, dim):
        raise RuntimeError("index_copy_(): Source/destination tensor must have same slice shapes.")
    if source.dim() and index.dim() < 2 and index.numel() != source.shape[dim]:
        raise IndexError(
            f"index_copy_(): Number of indices ({index.numel()}) should be equal to source.size(dim) "
            f"({source.shape[dim]})"
        )


def index_fill(own: torch.Tensor, dim: int, index: torch.Tensor, value: Any, **_: Any) -> None:
    """The index's type."""
    if index.dtype is not torch.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")


def topk(tensor: torch.Tensor, count: int, dim: int = -1, *_: Any, **__: Any) -> None:
    """That a dimension has `count` elements."""
    if -tensor.dim() <= dim < tensor.dim() and not 0 <= count <= tensor.shape[dim]:
        raise RuntimeError("selected index k out of range")


def _without(tensor: torch.Tensor, dim: int) -> list[Any]:
    """The sizes but for that of one dimension."""
    sizes = list(tensor.shape)
    return sizes if not sizes else sizes[:dim] + sizes[dim % len(sizes) + 1 :]


def observed(
    tensor: torch.Tensor, on: Any, quantising: Any, least: torch.Tensor, most: torch.Tensor, scale: Any, zero: Any,
    rate: float, lowest: int, highest: int, axis: int, per_channel: bool = False, *_: Any, **__: Any,
) -> None:  # fmt: skip
    """The first call of an observer that looks at each channel gives its statistics their size."""
    if per_channel and empty(least.shape):
        raise Unsupported(
            "metadata-mutation", "an observer finds out how many channels there are and resizes its buffers",
            "Nothing: it does so in its first call, and later ones are compiled.",
        )


def quantized(*_: Any, **__: Any) -> None:
    """What gives quantized tensors: PyTorch's meta kernels give plain ones."""
    raise Unsupported(
        "quantized-tensor", "a quantized tensor is made, and only plain ones are compiled",
        "Use torch.ops.quantized_decomposed, whose tensors are plain.",
    )
