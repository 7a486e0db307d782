"""How an operator's row is written down: all that is known about it, in one place.

    @ROWS("aten::native_layer_norm", takes_sizes=True)
    def layer_norm(emit, out, x, shape, weight, bias, eps): ...         # becomes loops

    ROWS.library("aten::cudnn_convolution_relu", fresh=True)            # is only ever a library call

A Lowering takes the Emitter, the Spec of eager's result (a tuple of them for several results) and
the operator's own arguments, tensors as Values. It gives a Value, a tuple of Values, or
NotImplemented: then the operator stays a library call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch

from dovetail.ir.loops import Expr, Param
from dovetail.ops.fake.errors.eager_trials import Trial
from dovetail.ops.fake.result_spec import ForOverload
from dovetail.ops.lowering import build
from dovetail.ops.lowering.emit import Emitter
from dovetail.ops.lowering.value import Indices, Spec, Value

Lowering = Callable[..., Any]
Rule = Callable[..., Any]
Function = TypeVar("Function", bound=Callable[..., Any])


class Row(NamedTuple):
    """What is known about an operator. `docs/operators.md` lists all of it.

    `shape`: what its results look like, instead of PyTorch's meta kernel, which is slow or imports much.
    `symbolic_shape`: the same where a symbolic size takes part and the meta kernel would want plain integers.
    `discovers`: its results where their sizes, or values, are known when the program runs; takes `Sizes` first.
    `refuses`: raises what eager raises of its arguments, and meta kernels let pass.
    `trial`: finds out by running the operator on a few elements what eager raises for types or a number.
    `takes_numbers`: its lowering takes numbers that are known only when the program runs, and so do sizes.
    `takes_sizes`: its lowering takes symbolic sizes among its arguments. Otherwise it is a library call then.
    `cheap`: it costs little next to reading its operands, so a backward pass may compute it again.
    `only_indices`: its lowering changes indices alone, so it holds for every dtype.
    `rounds_otherwise`: its lowering may go to another library than eager does.
    `same_bits`: of its arguments and its result, whether its loops round as eager's kernel does; None: they do.
    `callee`: what to call in the operator's place where it is a library call.
    `fresh`: its results are new memory, each its own, and it keeps none of its arguments.
    `may_raise`: it refuses some values of what it is given: indices, labels, matrices, probabilities.
    `checks`: it is called for what it checks.
    `writes_at_indices`: another operator, with an underscore, writes into the first argument at some places alone.
    `opaque`: the results whose sizes nobody can tell before the call; only its own derivative reads them.
    `keeps_offset`: its result begins where its first argument does in its storage; all others begin a storage.
    `counts_from_storage`: its `storage_offset` counts from the start of the storage of its first argument.
    """

    lowering: Lowering | None = None
    shape: Rule | ForOverload | None = None
    symbolic_shape: Rule | None = None
    discovers: Rule | None = None
    refuses: Callable[..., None] | None = None
    trial: Trial | None = None
    takes_numbers: bool = False
    takes_sizes: bool = False
    cheap: bool = False
    only_indices: bool = False
    rounds_otherwise: bool = False
    same_bits: Callable[[list, Spec], bool] | None = None
    callee: Callable[..., Any] | None = None
    fresh: bool = False
    may_raise: bool = False
    checks: bool = False
    writes_at_indices: bool = False
    opaque: frozenset[int] = frozenset()
    keeps_offset: bool = False
    counts_from_storage: bool = False


class Rows(dict[str, Row]):
    """Rows by qualified name: "aten::add" for every overload, or "aten::add.Scalar" for one.

    What is known of every operator of a file is given once: `Rows(only_indices=True)`.
    """

    def __init__(self, **common: Any) -> None:
        super().__init__()
        self.common = common

    def library(self, *names: str, **known: Any) -> None:
        """Rows of operators that are only ever library calls."""
        row = Row(**self.common | known)
        for name in names:
            assert name not in self, f"{name} has two rows"
            self[name] = row

    def __call__(self, *names: str, **known: Any) -> Callable[[Function], Function]:
        """The decorated function is the operators' lowering; `known` are fields of their rows."""

        def register(lowering: Function) -> Function:
            self.library(*names, lowering=lowering, **known)
            return lowering

        return register

    def pointwise(
        self, *names: str, operands: int, compute: Compute | None = None, cheap: bool = True, **known: Any
    ) -> Callable[[Function], Function]:
        """The decorated function maps `operands` expressions of one dtype, and further arguments
        as they are, to an expression. An operand given as None arrives as None.
        """

        def register(formula: Function) -> Function:
            lowering = elementwise(formula, operands, compute or in_result_dtype)
            self(*names, cheap=cheap, **known)(lowering)
            return formula

        return register


Compute = Callable[[list, Spec], tuple[torch.dtype, torch.dtype]]


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which arithmetic on `dtype` is done."""
    return torch.float32 if dtype in build.HALF else dtype


def in_result_dtype(operands: list, out: Spec) -> tuple[torch.dtype, torch.dtype]:
    """Operands are converted to the result's dtype; next to half types, float operands and numbers
    go to float32 unrounded, as in PyTorch's kernels."""
    dtype = opmath(out.dtype)
    if dtype is not out.dtype and any(isinstance(v, Value) and v.dtype in build.INTEGERS for v in operands):
        return out.dtype, dtype
    return dtype, dtype


def in_common_dtype(operands: list, out: Spec) -> tuple[torch.dtype, torch.dtype]:
    """For comparisons: operands are rounded to the dtype they have in common first."""
    common = common_dtype(operands)
    return common, opmath(common)


def in_first_dtype(operands: list, out: Spec) -> tuple[torch.dtype, torch.dtype]:
    """Operands are converted to the first one's dtype."""
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


def common_dtype(operands: list) -> torch.dtype:
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
