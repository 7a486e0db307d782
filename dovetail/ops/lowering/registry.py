"""How an operator's row is written down.

A Lowering takes the Emitter, the Spec of eager's result (a tuple of them for several results) and
the operator's own arguments, tensors as Values. It gives a Value, a tuple of Values, or
NotImplemented: then the operator stays a library call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from dovetail.ir.loops import Expr, Param
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.value import Indices, Spec, Value

Lowering = Callable[..., Any]
Row = TypeVar("Row", bound=Lowering)


class Rows(dict[str, Lowering]):
    """Lowerings by qualified name: "aten::add" for every overload, or "aten::add.Scalar" for one."""

    def __call__(self, *names: str) -> Callable[[Row], Row]:
        def register(lowering: Row) -> Row:
            for name in names:
                assert name not in self, f"{name} has two rows"
                self[name] = lowering
            return lowering

        return register

    def pointwise(self, *names: str, operands: int, compute: Compute | None = None) -> Callable[[Row], Row]:
        """The decorated function maps `operands` expressions of one dtype, and further arguments
        as they are, to an expression. An operand given as None arrives as None.
        """

        def register(formula: Row) -> Row:
            lowering = elementwise(formula, operands, compute or in_result_dtype)
            self(*names)(lowering)
            return formula

        return register


Compute = Callable[[list[Any], Spec], tuple[torch.dtype, torch.dtype]]


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which arithmetic on `dtype` is done."""
    return torch.float32 if dtype in build.HALF else dtype


def in_result_dtype(operands: list[Any], out: Spec) -> tuple[torch.dtype, torch.dtype]:
    """Operands are converted to the result's dtype; next to half types, float operands and numbers
    go to float32 unrounded, as in PyTorch's kernels."""
    dtype = opmath(out.dtype)
    if dtype is not out.dtype and any(isinstance(v, Value) and v.dtype in build.INTEGERS for v in operands):
        return out.dtype, dtype
    return dtype, dtype


def in_common_dtype(operands: list[Any], out: Spec) -> tuple[torch.dtype, torch.dtype]:
    """For comparisons: operands are rounded to the dtype they have in common first."""
    common = common_dtype(operands)
    return common, opmath(common)


def in_first_dtype(operands: list[Any], out: Spec) -> tuple[torch.dtype, torch.dtype]:
    dtype = next(v.dtype for v in operands if isinstance(v, Value))
    return dtype, opmath(dtype)


def elementwise(formula: Callable[..., Any], operands: int, compute: Compute) -> Lowering:
    """The lowering of a function from elements to an element, with broadcasting."""
    names = formula.__code__.co_varnames[:operands]

    def lowering(emit: Emitter, out: Spec, *args: Any, **kwargs: Any) -> Any:
        given = list(args[:operands])
        rest = args[operands:]
        for name in names[len(given) :]:
            given.append(kwargs.pop(name, None))
        if any(isinstance(v, complex) for v in given):
            return NotImplemented
        rounded, dtype = compute(given, out)

        def at(indices: Indices) -> Any:
            return formula(*(operand(v, indices, rounded, dtype) for v in given), *rest, **kwargs)

        return emit.pointwise(out, at)

    return lowering


def operand(value: Any, indices: Indices, rounded: torch.dtype, dtype: torch.dtype) -> Expr | None:
    """The operand's element at `indices`, converted by way of `rounded` to `dtype`."""
    if isinstance(value, Value):
        return build.cast(build.cast(value.broadcast(indices), rounded), dtype)
    return None if value is None else build.cast(build.const(value, rounded), dtype)


# ---------------------------------------------------------------- promotion

_NUMBER_KIND: dict[type, int] = {bool: 0, int: 1, float: 2}
_NUMBER_DTYPE = (torch.bool, torch.int64, torch.float32)


def _category(dtype: torch.dtype) -> int:
    return 0 if dtype is torch.bool else 1 if dtype in build.INTEGERS else 2


def common_dtype(operands: list[Any]) -> torch.dtype:
    """`torch.result_type`: tensors with dimensions, then those without, then numbers; a lower
    class only counts when it is of a higher category (bool < integer < float)."""
    full: torch.dtype | None = None
    scalar: torch.dtype | None = None
    number = -1
    for value in operands:
        if isinstance(value, Value):
            if value.sizes:
                full = value.dtype if full is None else torch.promote_types(full, value.dtype)
            else:
                scalar = value.dtype if scalar is None else torch.promote_types(scalar, value.dtype)
        elif value is not None:
            kind = float if isinstance(value, Param) and value.dtype is torch.float64 else type(value)
            number = max(number, _NUMBER_KIND.get(kind, 1))
    result = full
    if scalar is not None and (result is None or _category(scalar) > _category(result)):
        result = scalar if result is None else torch.promote_types(result, scalar)
    if number >= 0 and (result is None or number > _category(result)):
        result = torch.get_default_dtype() if number == 2 else _NUMBER_DTYPE[number]
    assert result is not None
    return result
