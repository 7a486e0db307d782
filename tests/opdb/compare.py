"""Is a compiled call's outcome the same as eager's, in everything that a caller can see?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: Differences from eager that need no further look: (relative, absolute).
CLOSE = {
    torch.float64: (1e-7, 1e-7), torch.float32: (1.3e-6, 1e-5), torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5), torch.complex64: (1.3e-6, 1e-5), torch.complex128: (1e-7, 1e-7),
    torch.complex32: (1e-3, 1e-5),
}
_WIDER = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
    torch.complex64: torch.complex128, torch.complex32: torch.complex128,
}


class Mismatch(Exception):
    """What differs, in one line."""


def compare(got: Any, want: Any, inputs: tuple[Any, Any], exact: Callable[[], Any]) -> None:
    """`inputs` are (compiled's, eager's) arguments after the call. `exact` gives eager's result, and its arguments
    after the call, in float64.

    Raises Mismatch. Floats pass when close to eager, or no further from the exact result than twice eager's error.
    """
    mine, spec = pytree.tree_flatten(got)
    theirs, wanted = pytree.tree_flatten(want)
    if str(spec) != str(wanted):
        raise Mismatch(f"structure {spec}, eager's {wanted}")
    computed: list[Any] = []

    def reference(part: int, k: int) -> Any:
        if not computed:
            computed.extend(map(pytree.tree_leaves, exact()))
        return computed[part][k]

    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        one(f"output {k}", a, b, lambda k=k: reference(0, k))  # type: ignore[misc]
    same_sharing(mine, theirs, inputs)
    for k, (a, b) in enumerate(zip(*map(pytree.tree_leaves, inputs), strict=True)):
        if isinstance(b, torch.Tensor):
            one(f"input {k} afterwards", a, b, lambda k=k: reference(1, k))  # type: ignore[misc]


def one(place: str, mine: Any, eager: Any, exact: Callable[[], Any]) -> None:
    described(place, mine, eager)
    if isinstance(eager, torch.Tensor):
        values(place, dense(mine), dense(eager), exact)


def described(place: str, mine: Any, eager: Any) -> None:
    """Everything but the elements of tensors."""
    if not isinstance(eager, torch.Tensor):
        if type(mine) is not type(eager) or not (mine == eager or mine != mine and eager != eager):
            raise Mismatch(f"{place} is {mine!r}, eager's {eager!r}")
        return
    if not isinstance(mine, torch.Tensor):
        raise Mismatch(f"{place} is a {type(mine).__name__}, eager's a tensor")
    for field in ("dtype", "shape", "device", "layout", "requires_grad"):
        a, b = getattr(mine, field), getattr(eager, field)
        if a != b:
            raise Mismatch(f"{place} has {field} {a}, eager's {b}")
    if eager.layout is torch.strided and eager.numel():
        a, b = ([s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in (mine, eager))
        if a != b:
            raise Mismatch(f"{place} has strides {mine.stride()}, eager's {eager.stride()}")
    if (mine.is_conj(), mine.is_neg()) != (eager.is_conj(), eager.is_neg()):
        raise Mismatch(f"{place} has conjugate and negative bits {mine.is_conj(), mine.is_neg()}")


def dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    tensor = (tensor if tensor.layout is torch.strided else tensor.to_dense()).resolve_conj().resolve_neg()
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor  # which cannot be compared


def values(place: str, mine: torch.Tensor, eager: torch.Tensor, exact: Callable[[], Any]) -> None:
    relative, absolute = CLOSE.get(eager.dtype, (0, 0))
    if torch.equal(mine, eager) or torch.allclose(mine, eager, rtol=relative, atol=absolute, equal_nan=True):
        return
    wide = _WIDER.get(eager.dtype)
    true = exact() if wide is not None else None
    known = isinstance(true, torch.Tensor) and true.shape == eager.shape
    epsilon = torch.finfo(eager.dtype).eps if eager.dtype in (torch.bfloat16, torch.float16) else 0
    if known and no_worse(mine.to(wide), eager.to(wide), dense(true), epsilon):
        return
    difference = (mine.to(torch.complex128) - eager.to(torch.complex128)).abs().nan_to_num(posinf=float("inf"))
    worst = int(difference.argmax()) if difference.numel() else 0
    unequal = int((~torch.isclose(mine, eager, rtol=relative, atol=absolute, equal_nan=True)).sum())
    raise Mismatch(f"{place} differs in {unequal} of {eager.numel()}: {mine.flatten()[worst].item()} "
                   f"for eager's {eager.flatten()[worst].item()}")


def no_worse(mine: torch.Tensor, eager: torch.Tensor, true: torch.Tensor, epsilon: float) -> bool:
    """Is the largest relative error at most twice eager's, and everything that is not finite the same?

    Where rounding dominates (a half type, whose machine epsilon is given), four roundings are within the bounds. A
    small difference of large numbers has any relative error: there the largest absolute error counts, and the mean,
    which depends less on chance. Where eager is NaN and should not be, as its vector code for remainders of large
    quotients is, the exact number passes.
    """
    true = true.to(mine.dtype)
    eager = torch.where(torch.isnan(eager) & (mine == true), mine, eager)
    finite = torch.isfinite(true) & torch.isfinite(eager)
    if not torch.equal(torch.isfinite(mine), torch.isfinite(eager)) or not bool(finite.any()):
        return False
    scale = true.abs().clamp_min(1e-5)
    mine_error, eager_error = ((t - true).abs()[finite] for t in (mine, eager))
    relative = [(error / scale[finite]).max() for error in (mine_error, eager_error)]
    smaller = mine_error.mean() <= 1.5 * eager_error.mean() and mine_error.max() <= 2 * eager_error.max()
    return bool(relative[0] <= max(2 * relative[1], 4 * epsilon)) or bool(smaller)


def same_sharing(mine: list[Any], theirs: list[Any], inputs: tuple[Any, Any]) -> None:
    """Each output shares memory with the same input as in eager, or with none."""
    own, eager = (_memories(pytree.tree_leaves(i)) for i in inputs)
    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if isinstance(b, torch.Tensor) and b.layout is torch.strided and b.numel():
            x, y = own.get(a.untyped_storage().data_ptr()), eager.get(b.untyped_storage().data_ptr())
            if x != y:
                raise Mismatch(f"output {k} shares memory with input {x}, eager's with {y}")
            if x is not None and a.storage_offset() != b.storage_offset():
                raise Mismatch(f"output {k} starts at {a.storage_offset()}, eager's at {b.storage_offset()}")


def _memories(leaves: list[Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for k, t in enumerate(leaves):
        if isinstance(t, torch.Tensor) and t.layout is torch.strided and t.numel():
            found.setdefault(t.untyped_storage().data_ptr(), k)
    return found


def widened(value: Any) -> Any:
    """Arguments with floating tensors in float64, for the exact result."""
    def wide(t: torch.Tensor) -> torch.Tensor:
        return t.to(_WIDER[t.dtype]) if t.dtype in _WIDER else t

    result = pytree.tree_map_only(torch.Tensor, wide, value)
    return pytree.tree_map_only(torch.dtype, lambda d: _WIDER.get(d, d), result)
