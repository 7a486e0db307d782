"""Comparing what two runs of a model return: every tensor, by path, caches and other objects included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def tensors(value: Any) -> dict[str, torch.Tensor]:
    """Every tensor in a result, by path; objects (caches, model outputs) are walked through their attributes."""
    found: dict[str, torch.Tensor] = {}
    _collect(value, "", set(), found)
    return found


def _collect(value: Any, path: str, seen: set[int], found: dict[str, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found[path] = value
    elif id(value) not in seen:
        seen.add(id(value))
        for key, inner in _inside(value):
            _collect(inner, f"{path}.{key}", seen, found)


def _inside(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, torch.nn.Module):
        return ()
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (tuple, list)):
        return enumerate(value)
    return getattr(value, "__dict__", {}).items()


def difference(actual: Any, expected: Any) -> str:
    """What differs first, bit by bit; "" if nothing does."""
    if type(actual) is not type(expected):
        return f"a {type(actual).__name__} instead of a {type(expected).__name__}"
    ours, theirs = tensors(actual), tensors(expected)
    if list(ours) != list(theirs):
        return f"other tensors: {sorted(ours.keys() ^ theirs.keys()) or 'in another order'}"
    for path, tensor in ours.items():
        found = _tensor_difference(tensor, theirs[path])
        if found:
            return f"{path}: {found}"
    return ""


def _tensor_difference(ours: torch.Tensor, theirs: torch.Tensor) -> str:
    for name in ("dtype", "device", "shape", "requires_grad"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} {getattr(ours, name)} instead of {getattr(theirs, name)}"
    if ours.stride() != theirs.stride():
        return f"stride {ours.stride()} instead of {theirs.stride()}"
    same = torch.equal(ours, theirs) or torch.equal(_bits(ours), _bits(theirs))
    return "" if same else f"values differ by up to {_wide(ours).sub(_wide(theirs)).abs().max().item():.3g}"


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same where NaNs are: NaN is not equal to itself, its bits are."""
    return torch.nan_to_num(tensor.detach(), nan=12345.0) if tensor.is_floating_point() else tensor.detach()


def largest_error(actual: Any, expected: Any) -> float:
    """The largest absolute difference of floating-point tensors, relative to the largest value of the same tensor."""
    ours, theirs, worst = tensors(actual), tensors(expected), 0.0
    if list(ours) != list(theirs):
        raise AssertionError(difference(actual, expected))
    for path, exact in theirs.items():
        if not exact.numel():
            continue
        apart = (_wide(ours[path]) - _wide(exact)).abs().max().item()
        worst = max(worst, apart / (_wide(exact).abs().max().item() or 1.0))
    return worst
