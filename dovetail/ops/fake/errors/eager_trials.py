"""What kernels refuse for types or a number alone, found by running them on a few elements.

For operators whose results are known without asking PyTorch (the rules), or whose meta kernels take any type. Each
trial gives small arguments of the types that the real ones have; what is refused once raises the same error each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from dovetail.ir.devices import HOST
from dovetail.ir.stores import Store
from dovetail.ops.fake.symbolic.size_questions import empty

aten = torch.ops.aten
_passed = Store(5000)
_outs = Store(5000)


class Trial(NamedTuple):
    """`sample` gives small arguments like the real ones, or None for nothing to try; `run` is called with the operator
    and these."""

    sample: Callable[..., Any]
    run: Callable[..., Any] = lambda operator, *given: operator(*given)


def attempt(trial: Trial, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises what eager raises."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        given = trial.sample(*args, **kwargs)
        if given is not None and (key := (operator, *map(_key, given))) not in _passed:
            trial.run(operator, *given)
            _passed.keep(key, True)


def takes_out(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does eager take `out=` of the type that is given? Of an operator that works element by element."""
    given = pytree.tree_map_only(torch.Tensor, lambda t: _ones(t, *[1] * t.dim()), (args, kwargs))
    key = operator, *map(_key, pytree.tree_leaves(given))
    found: bool | None = _outs.recall(key)
    if found is None:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            try:
                operator(*given[0], **given[1])
                found = True
            except (RuntimeError, TypeError):
                found = False
        _outs.keep(key, found)
    return found


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device, tuple(value.shape)
    return type(value), repr(value)


def _ones(like: Any, *sizes: int) -> Any:
    return torch.ones(sizes, dtype=like.dtype, device=like.device) if isinstance(like, torch.Tensor) else like


def _zeros(like: Any) -> Any:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device) if isinstance(like, torch.Tensor) else like


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: Any) -> tuple[Any, ...]:
    return _ones(x, 1), (1,), _ones(weight, 1), _ones(bias, 1), eps


def _batch_norm(x: Any, *rest: Any) -> tuple[Any, ...]:
    return _ones(x, 2, 1), *(_ones(t, 1) for t in rest)


def _group_norm(x: Any, weight: Any, bias: Any, batch: Any, channels: Any, size: Any, groups: Any, eps: Any) -> Any:
    return _ones(x, 1, 1, 2), _ones(weight, 1), _ones(bias, 1), 1, 1, 2, 1, eps


def _gated(x: Any, dim: int = -1) -> tuple[Any, ...]:
    return _ones(x, 2), -1


def _each(*args: Any) -> tuple[Any, ...]:
    return tuple(_ones(a, 1) for a in args)


def _backward(gradient: Any, output: Any, dim: int, dtype: Any) -> tuple[Any, ...]:
    return _ones(gradient, 1), _ones(output, 1), 0, dtype


def _mixed(*args: Any, **_: Any) -> Any:
    """All of it with sizes of 1, or of 0, for which kernels take more types; nothing where all types are one
    floating-point type, which every kernel takes.
    """
    types = {a.dtype for a in args if isinstance(a, torch.Tensor)}
    if len(types) == 1 and all(dtype.is_floating_point for dtype in types):
        return None
    return tuple(_ones(a, *map(_least, a.shape)) if isinstance(a, torch.Tensor) else a for a in args)


def _least(size: Any) -> int:
    return 0 if empty((size,)) else 1


def _product(*args: Any, beta: Any = 1, **_: Any) -> Any:
    given = _mixed(*args)
    return given and (beta if type(beta) in (int, float, complex) else 1, *given)


def _convolved(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: Any
) -> Any:
    """In one group. A transposed one takes its padding off the result, of which nothing would be left."""
    given = _mixed(x, weight, bias)
    if given is None:
        return None
    image = given[0][:0] if empty(x.shape[:1]) else given[0]
    return image, *given[1:], stride, [0] * len(padding) if transposed else padding, dilation, transposed, extra, 1


def _without_elements(*args: Any, **_: Any) -> Any:
    """All of it as large as it is, where a tensor is empty."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if any(t._has_symbolic_sizes_strides for t in tensors) or not any(0 in t.shape for t in tensors):
        return None
    return tuple(map(_zeros, args))


def _put(x: Any, indices: Any, values: Any, *rest: Any, **_: Any) -> Any:
    if x.dtype is values.dtype:
        return None
    return _ones(x, 1), [torch.zeros(1, dtype=torch.int64, device=x.device)], _ones(values, 1)


def _filled(dtype: torch.dtype | None, value: Any) -> Any:
    """A number that an integer type may not hold, or a real one."""
    held = dtype is not None and dtype.is_floating_point and type(value) is not complex
    if dtype is None or held or type(value) not in (int, float, complex):
        return None
    return torch.empty(1, dtype=dtype, device=HOST), value


def _fill(_: Any, *given: Any) -> None:
    aten.fill_.Scalar(*given)


LAYER_NORM, BATCH_NORM, GROUP_NORM = Trial(_layer_norm), Trial(_batch_norm), Trial(_group_norm)
GATED, EACH, BACKWARD = Trial(_gated), Trial(_each), Trial(_backward)
CONVOLVED, MIXED = Trial(_convolved), Trial(_mixed)
PUT = Trial(_put, lambda _, *given: aten.index_put_.default(*given))
FULL = Trial(lambda size, value, *, dtype=None, **_: _filled(dtype, value), _fill)
FULL_LIKE = Trial(lambda x, value, *, dtype=None, **_: _filled(dtype or x.dtype, value), _fill)
NEW_FULL = Trial(lambda x, size, value, *, dtype=None, **_: _filled(dtype or x.dtype, value), _fill)
MASKED_FILL = Trial(lambda x, mask, value: _filled(x.dtype, value), _fill)
#: Without elements to sum, a factor of 0 decides whether what is added to is read.
PRODUCT = Trial(_product, lambda operator, beta, *given: operator(*given, beta=beta))
#: Kernels refuse some empty tensors: meta kernels refuse others, and so do our own rules.
EMPTY = Trial(_without_elements)
