"""The tensor guard: what `TensorFacts` says, as the cheapest conditions that imply it.

Costs measured on one machine (ns): `type(x)` 10, `x.is_cpu` 33, `x.requires_grad` 34, `x.dtype` 35,
`x.is_contiguous()` 41, `x.data_ptr()` 42, `x.device ==` 56, `x.shape ==` 64, `x.stride() ==` 65,
`x.is_neg()` 67, `_dispatch_keys(x) ==` 248. So a plain strided CPU tensor never asks for its dispatch
keys: the type, the layout, the negative and conjugate bits and a memory address imply them, and
functorch's wrappers (which have the plain type) exist only inside transforms, a piece of global state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.ir.guard import TensorFacts

Constant = Callable[[Any, str], str]

#: Classes that have no behaviour of their own: their dispatch keys follow from the cheap facts.
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def conditions(v: str, facts: TensorFacts, constant: Constant) -> list[str]:
    """Conditions on the expression `v`, most selective first; evaluating them may raise, meaning no."""
    texts = [f"type({v}) is {constant(facts.cls, facts.cls.__name__)}"]
    texts += _shape(v, facts)
    texts.append(f"{v}.dtype is {constant(facts.dtype, str(facts.dtype).removeprefix('torch.'))}")
    texts += _strides(v, facts)
    texts.append(_device(v, facts.device, constant))
    texts.append(f"{'' if facts.requires_grad else 'not '}{v}.requires_grad")
    if facts.offset is not None:
        texts.append(f"{v}.storage_offset() == {facts.offset}")
    return texts + _keys(v, facts, constant)


def _shape(v: str, facts: TensorFacts) -> list[str]:
    return _each(f"{v}.shape", f"{v}.ndim == {len(facts.sizes)}", facts.sizes)


def _strides(v: str, facts: TensorFacts) -> list[str]:
    if facts.layout is not torch.strided:
        return []
    if _dense(facts.sizes, facts.strides):
        return [f"{v}.is_contiguous()"]
    return _each(f"{v}.stride()", "", facts.strides)


def _each(whole: str, rank: str, expected: Sequence[Any]) -> list[str]:
    """`whole == expected`, or one comparison for each known member where some are unknown."""
    if None not in expected:
        return [f"{whole} == {tuple(expected)!r}"]
    known = [f"{whole}[{k}] == {e}" for k, e in enumerate(expected) if e is not None]
    return ([rank] if rank else []) + known


def _dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Contiguity says all about the strides: no size is unknown, 0 or 1 (whose strides are free)."""
    step = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size is None or size < 2 or stride != step:
            return False
        step *= size
    return True


def _device(v: str, device: torch.device, constant: Constant) -> str:
    return f"{v}.is_cpu" if device.type == "cpu" else f"{v}.device == {constant(device, 'device')}"


def _keys(v: str, facts: TensorFacts, constant: Constant) -> list[str]:
    texts = []
    if facts.layout is not torch.strided:
        texts.append(f"{v}.layout is {constant(facts.layout, 'layout')}")
    elif facts.cls in PLAIN and _ordinary(facts):
        if facts.dtype.is_floating_point or facts.dtype.is_complex:
            texts.append(f"not {v}.is_neg()")
        if facts.dtype.is_complex:
            texts.append(f"not {v}.is_conj()")
        if 0 not in facts.sizes and None not in facts.sizes:
            texts.append(f"{v}.data_ptr()")  # excludes zero tensors, opaque layouts and freed storage
        return texts
    if facts.dispatch_keys is not None:
        texts.append(f"{constant(keys_of, 'keys_of')}({v}) == {constant(key_text(facts.dispatch_keys), 'keys')}")
    return texts


_UNUSUAL = (
    "Conjugate",
    "Negative",
    "ZeroTensor",
    "Python",
    "Functorch",
    "FuncTorch",
    "Sparse",
    "Batched",
    "Functionalize",
    "Meta",
)


def _ordinary(facts: TensorFacts) -> bool:
    text = "" if facts.dispatch_keys is None else key_text(facts.dispatch_keys)
    return not any(word in text for word in _UNUSUAL)


def key_text(keys: Any) -> str:
    """A DispatchKeySet as text (its repr); capture may hand over either."""
    return keys if isinstance(keys, str) else repr(keys)


def keys_of(tensor: torch.Tensor) -> str:
    return repr(torch._C._dispatch_keys(tensor))


def mismatch(name: str, v: Any, facts: TensorFacts) -> str:
    """What differs first, in words. The guard is known to have failed."""
    if type(v) is not facts.cls:
        return f"{name!r} has type {type(v).__name__}, expected {facts.cls.__name__}"
    rows = (
        ("dtype", facts.dtype, v.dtype),
        ("device", facts.device, v.device),
        ("layout", facts.layout, v.layout),
        ("rank", len(facts.sizes), v.ndim),
        ("requires_grad", facts.requires_grad, v.requires_grad),
    )
    for what, expected, actual in rows:
        if expected != actual:
            return f"tensor {name!r} {what} mismatch. expected {expected}, actual {actual}"
    strided = facts.layout is torch.strided
    for what, all_expected, all_actual in (
        ("size", facts.sizes, v.shape),
        ("stride", facts.strides, v.stride() if strided else ()),
    ):
        for k, (expected, actual) in enumerate(zip(all_expected, all_actual)):
            if expected is not None and expected != actual:
                return f"tensor {name!r} {what} mismatch at index {k}. expected {expected}, actual {actual}"
    if facts.offset is not None and v.storage_offset() != facts.offset:
        return f"tensor {name!r} storage offset mismatch. expected {facts.offset}, actual {v.storage_offset()}"
    return f"tensor {name!r} has other dispatch keys: {keys_of(v)}"
