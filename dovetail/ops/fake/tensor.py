"""Tensors with metadata and no memory, on their real device.

`FakeTensor` is a wrapper subclass: PyTorch's dispatcher sees a tensor of the real device, so composite
operators decompose as they would there. Each operator that reaches us is answered by a shape
rule (`ops/table.py`), by PyTorch's meta kernel on `meta` tensors of the same layout, or, failing both,
by PyTorch's own FakeTensorMode, whose import alone takes 0.6 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail.errors import Unsupported
from dovetail.loading import loaded
from dovetail.ops.calls.schema import IDENTITY, facts
from dovetail.ops.fake import result_cache
from dovetail.ops.fake.result_spec import ENOUGH, marked, meta
from dovetail.ops.fake.symbolic.number import PLAIN, SYMBOLIC, needed
from dovetail.ops.fake.symbolic.size_questions import symbolic
from dovetail.ops.fake.symbolic.symint import SizeNode, concrete
from dovetail.ops.fake.symbolic.unbacked import active
from dovetail.ops.fake.without_dynamo import without_dynamo
from dovetail.ops.fake.wrapped import is_wrapper, rebuilt

#: Operators whose results share the argument's memory although their schema does not say so.
SHARING = IDENTITY | {"aten::unsafe_split", "aten::unsafe_split_with_sizes"}


class FakeTensor(torch.Tensor):
    """Metadata of a tensor that does not exist. `owner` is the one that the memory was made for."""

    _meta: torch.Tensor | None
    _owner: FakeTensor | None = None

    @staticmethod
    def __new__(
        cls, sizes: Any, strides: Any, dtype: torch.dtype, device: Any, offset: Any = 0, requires_grad: bool = False
    ) -> FakeTensor:
        plain = not symbolic((*sizes, *strides, offset))  # PyTorch would compute a symbolic storage's size
        made = torch.Tensor._make_wrapper_subclass(
            cls, sizes, strides=strides, storage_offset=offset, dtype=dtype, device=device, requires_grad=requires_grad,
            storage_size=None if plain else ENOUGH,
        )  # fmt: skip
        made._meta = None
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return run(func, args, kwargs or {}) if all_fake(types) else NotImplemented

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"FakeTensor({tuple(self.size())}, {self.dtype}, {self.device})"

    @property
    def owner(self) -> FakeTensor:
        """The fake that the memory was made for."""
        return self if self._owner is None else self._owner

    @property
    def held(self) -> Any:
        """Bytes from the beginning of its storage to its last element: all of the memory, of one that owns it."""
        if not self._has_symbolic_sizes_strides:
            return self.untyped_storage().nbytes()
        last = self.storage_offset() + sum((n - 1) * step for n, step in zip(self.shape, self.stride(), strict=True))
        return (last + 1) * self.itemsize if self.numel() else 0

    @property
    def meta(self) -> torch.Tensor:
        """A `meta` tensor of the same layout, made when first needed."""
        if self._meta is None:
            self._meta = meta_like(self)
        return self._meta


class FakeMode(TorchDispatchMode):
    """Inside it every operator, factory functions included, gives FakeTensors and computes nothing.

    `drawn` counts the operators that would have taken random numbers.
    """

    drawn = 0

    def __init__(self) -> None:
        super().__init__()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without this PyTorch wraps the method below and imports its compiler on the first operator."""
        return False

    def __enter__(self) -> FakeMode:
        self.marks = ExitStack()
        self.marks.enter_context(without_dynamo())
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.marks.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all_fake(types):
            return NotImplemented
        self.drawn += draws(func)
        return run(func, args, kwargs or {})


@contextmanager
def on_fakes() -> Iterator[None]:
    """What passes compute on the fakes of a graph: nothing is differentiated, and none of the program's modes counts.

    In inference mode PyTorch refuses some views of them.
    """
    with torch.inference_mode(False), torch.no_grad(), FakeMode():
        yield


def all_fake(types: tuple[type, ...]) -> bool:
    """Is there no tensor class of the user's among these? What handles operators itself comes before us."""
    return not types or types == (FakeTensor,) or all(t is FakeTensor for t in types)


@cache
def draws(func: Any) -> bool:
    """Does the operator take random numbers?"""
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


def meta_like(tensor: torch.Tensor) -> torch.Tensor:
    """A `meta` tensor with the sizes, strides, offset and dtype of `tensor`."""
    offset = tensor.storage_offset()
    if tensor._has_symbolic_sizes_strides:
        return marked(meta(tensor.size(), tensor.stride(), tensor.dtype, offset), tensor)
    with torch._C._DisableTorchDispatch():
        made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
        if offset == 0:
            return marked(made, tensor)
        elements = offset + made.untyped_storage().nbytes() // made.itemsize
        storage = torch.empty(elements, dtype=tensor.dtype, device="meta")
        return marked(storage.as_strided(tensor.size(), tensor.stride(), offset), tensor)


def to_fake(real: torch.Tensor, leaf: bool = True, layout: Any = None) -> FakeTensor:
    """A FakeTensor with the metadata of `real`; a leaf that requires grad if `real` does, or without any history.

    `layout` is (sizes, strides) where they are other than the real ones: symbolic. Raises Unsupported for a tensor that
    strides do not describe. Of a tensor that is made of others it is one of its class (`wrapped.py`), and a leaf; then
    `layout` has those of its parts, by their ids.
    """
    refuse_unusual(real)
    if type(real) is not FakeTensor and is_wrapper(real):
        return _wrapped(real, leaf, layout or {})
    sizes, strides = layout or (real.size(), real.stride())
    made = FakeTensor(
        sizes, strides, real.dtype, real.device, real.storage_offset(), leaf and real.requires_grad,
    )  # fmt: skip
    return marked(made, real)


def _wrapped(real: torch.Tensor, leaf: bool, layouts: Mapping[int, Any]) -> Any:
    made = rebuilt(real, lambda part: to_fake(part, layout=layouts.get(id(part))))
    wanted = leaf and real.requires_grad
    return made if made.requires_grad is wanted else made.requires_grad_(wanted)


#: Types of elements that mean nothing without a scale. Tensors without memory have them, and say that they have none.
QUANTIZED = frozenset((torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4))


def refuse_unusual(real: torch.Tensor) -> None:
    """Raise Unsupported for a tensor that sizes, strides and a type, or what it is made of, do not describe."""
    if real.layout is torch.jagged:
        return
    if real.is_nested or real.is_quantized or real.dtype in QUANTIZED:
        kind = "nested" if real.is_nested else "quantized"
        raise Unsupported(
            f"{kind}-tensor", f"a {kind} tensor takes part, and only plain ones are compiled",
            "Convert it with .dequantize()." if kind == "quantized" else "Use the layout torch.jagged.",
        )
    if real.layout is not torch.strided:
        raise Unsupported(
            "sparse-tensor", f"a tensor has the layout {real.layout}, and only strided tensors are compiled",
            "Convert it with .to_dense().",
        )


def from_meta(meta: torch.Tensor, device: Any) -> FakeTensor:
    """Wrap the result of a meta kernel."""
    refuse_unusual(meta)
    made = FakeTensor(meta.size(), meta.stride(), meta.dtype, device, meta.storage_offset())
    made._meta = meta
    return marked(made, meta)


def run(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The result of an operator on fake tensors. Real tensors among the arguments count as fake."""
    table = result_cache.table_of(func)
    if table is None:
        return _found(func, args, kwargs)
    key = result_cache.key_of(table, args, kwargs, FakeTensor)
    known = table.get(key)
    if known is not None:
        result = result_cache.again(table, known, args, FakeTensor)
    else:
        result = _found(func, args, kwargs)
        if key is not None:
            result_cache.remember(table, key, args, result, FakeTensor)
    if table.computes and result.dtype is torch.bool and (sizes := active()) is not None:
        sizes.masks.note(func, args, kwargs, result)
    return result


def _found(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if any(map(_symbolic, args)) or any(map(_symbolic, kwargs.values())):
        args, kwargs = tuple(map(concrete, args)), {k: concrete(v) for k, v in kwargs.items()}
    if func._schema.name in PLAIN:
        raise needed()
    result = _inference().infer(func, args, kwargs, FakeTensor, from_meta, refuse_unusual)
    if args and type(args[0]) is FakeTensor and (facts(func).view or func._schema.name in SHARING):
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if made is not args[0]:
                made._owner = args[0].owner
    return result


@cache
def _inference() -> Any:
    """With every operator's row, which a warm start does without."""
    return loaded("dovetail.ops.fake.infer")


def _symbolic(value: Any) -> bool:
    """Is it a symbolic number, or a list with one?"""
    if isinstance(value, (list, tuple)):
        return any(isinstance(v, _NUMBERS) for v in value)
    return isinstance(value, _NUMBERS)


_NUMBERS = (*SYMBOLIC, SizeNode)
