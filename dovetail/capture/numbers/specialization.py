"""What takes no symbols: the sizes involved become constants, or the error is shown for those of this call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dovetail.capture.numbers.size_table import sizes_in
from dovetail.capture.values.base import RestartCapture, Session
from dovetail.errors import SpecializedDimension, Unsupported
from dovetail.ir import dims
from dovetail.ir.dims import Symbol
from dovetail.ir.source import Computed, Source
from dovetail.ops.fake.symbolic.symint import dim_of, is_size
from dovetail.ops.fake.tensor import FakeTensor
from dovetail.ops.fake.wrapped import in_numbers, is_wrapper


class SizesConstant(RestartCapture):
    """Something cannot be done with the sizes `names` symbolic."""

    def __init__(self, names: list[str], reason: str) -> None:
        self.names, self.reason = names, reason


def retry_as_constants(s: Session, function: Callable[..., Any], args: Any, kwargs: Any, error: Exception) -> Exception:
    """Raise SizesConstant if the operation would succeed on the sizes of this call; else the error that shows these."""
    given = [getattr(function, "__self__", None), *args, *kwargs.values()]
    found = [n for value in given for n in sizes_in(value) if is_size(n)]
    involved = {symbol for n in found for symbol in dims.symbols(dim_of(n))}
    if not found or any(words in str(error) for words in OF_AUTOGRAD):
        return error
    if any(map(s.table.sizes.is_unbacked, map(dim_of, found))):
        raise _refused(s, function, error) from error
    try:
        _with_numbers(s, function, args, kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError, NotImplementedError) as shown:
        for symbol in sorted(involved):
            s.table.sizes.value(s.table.symbols[symbol].dim)
        return shown
    known = [s.table.symbols[symbol] for symbol in sorted(involved)]
    for marked in (k for k in known if k.marked):
        raise SpecializedDimension(marked.source.name(), marked.size, s.user_line())
    operation = getattr(function, "__name__", str(function))
    if not involved:  # all of them are constant by now
        raise Unsupported("no-shape-rule", f"the result of {operation} cannot be predicted: {error}", "", s.stack())
    reason = f"{operation} takes no symbolic sizes ({str(error).splitlines()[0]})  # {s.user_line()}"
    raise SizesConstant(names_of(s, involved), reason)


LEAF = "leaf Variable that requires grad"
OF_AUTOGRAD = ("modified inplace", LEAF)  # in what is refused at any size


def _refused(s: Session, function: Any, error: Exception) -> Unsupported:
    """An operation that cannot be predicted for unbacked sizes."""
    name, words = getattr(function, "__name__", str(function)), str(error).splitlines() or [type(error).__name__]
    return Unsupported(
        "data-dependent-size", f"{name} cannot be part of a graph for sizes that are only known when it runs: "
        f"{words[0]}", "State what is known of them with torch._check, or call this outside the compiled function.",
        s.stack(),
    )  # fmt: skip


def names_of(s: Session, symbols: set[Symbol]) -> list[str]:
    """The paths by which varying sizes are known that the symbols stand for."""
    known = [s.table.symbols[symbol] for symbol in sorted(symbols)]
    return [n for k in known for n in k.names or _leaves(k.source)]


def _leaves(source: Source) -> list[str]:
    if isinstance(source, Computed):
        return [name for operand in source.operands for name in _leaves(operand)]
    return [source.name()]


def _with_numbers(s: Session, function: Any, args: Any, kwargs: Any) -> None:
    copies: dict[int, Any] = {}

    def number(size: Any) -> int:
        return s.table.sizes.hint(dim_of(size))

    def fake(tensor: Any) -> Any:
        sizes, strides = map(number, tensor.shape), map(number, tensor.stride())
        return FakeTensor([*sizes], [*strides], tensor.dtype, tensor.device, number(tensor.storage_offset()))

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in copies:
                copies[id(value)] = in_numbers(value, fake, number) if is_wrapper(value) else fake(value)
            return copies[id(value)]
        if isinstance(value, (list, tuple)):
            return type(value)(map(plain, value))
        if isinstance(value, slice):
            return slice(plain(value.start), plain(value.stop), plain(value.step))
        return number(value) if is_size(value) else value

    receiver = getattr(function, "__self__", None)
    function = getattr(plain(receiver), function.__name__) if isinstance(receiver, torch.Tensor) else function
    with torch.no_grad():
        function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})
