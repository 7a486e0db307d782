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

from dovetail.ir.devices import HOST
from dovetail.ir.guard import Follows, TensorFacts
from dovetail.ir.source import Source

Constant = Callable[[Any, str], str]
Named = Callable[[str], tuple[str, str]]
Load = Callable[[Source], str]

#: Classes that have no behaviour of their own: their dispatch keys follow from the cheap facts.
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def conditions(v: str, facts: TensorFacts, constant: Constant, named: Named, load: Load) -> list[str]:
    """Conditions on the expression `v`, most selective first; evaluating them may raise, meaning no.

    `named(attribute)` is a text that loads an attribute of `v` and names it, and the name; `load` names a size.
    """
    texts = [f"type({v}) is {constant(facts.cls, facts.cls.__name__)}"]
    texts += _shape(v, facts, named, load)
    texts.append(f"{v}.dtype is {constant(facts.dtype, str(facts.dtype).removeprefix('torch.'))}")
    texts += _strides(v, facts, named)
    texts.append(_device(v, facts.device, constant))
    texts.append(f"{'' if facts.requires_grad else 'not '}{v}.requires_grad")
    if facts.offset is not None:
        texts.append(f"{v}.storage_offset() == {facts.offset}")
    return texts + _keys(v, facts, constant)


def _shape(v: str, facts: TensorFacts, named: Named, load: Load) -> list[str]:
    """The whole at once, or the rank and each known member where some are unknown."""
    sizes: list = [n if n is None else str(n) if isinstance(n, int) else load(n) for n in facts.sizes]
    if None not in sizes:
        return [f"{v}.shape == ({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"]
    if not any(sizes):
        return [f"{v}.ndim == {len(sizes)}"]
    loaded, name = named("shape")
    return [f"len({loaded}) == {len(sizes)}", *(f"{name}[{k}] == {n}" for k, n in enumerate(sizes) if n is not None)]


def _strides(v: str, facts: TensorFacts, named: Named) -> list[str]:
    strides = tuple(facts.strides)
    if facts.layout is not torch.strided:
        return []
    if facts.contiguous or _dense(facts.sizes, strides):
        return [f"{v}.is_contiguous()"]
    if all(isinstance(step, int) for step in strides):
        return [f"{v}.stride() == {strides!r}"]
    if all(step is None for step in strides):
        return []
    loaded, name = named("stride()")
    texts: list[str] = []
    for k, step in enumerate(strides):
        if step is not None:
            follows = f"{name}[{step.inner}] * {named('shape')[0]}[{step.inner}]" if isinstance(step, Follows) else step
            texts.append(f"{name if texts else loaded}[{k}] == {follows}")
    return texts


def _dense(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Contiguity says all about the strides: no size is unknown, 0 or 1 (whose strides are free)."""
    step = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if not isinstance(size, int) or size < 2 or stride != step:
            return False
        step *= size
    return True


def _device(v: str, device: torch.device, constant: Constant) -> str:
    return f"{v}.is_cpu" if device == HOST else f"{v}.device == {constant(device, 'device')}"


def _keys(v: str, facts: TensorFacts, constant: Constant) -> list[str]:
    texts = []
    if facts.layout is not torch.strided:
        texts.append(f"{v}.layout is {constant(facts.layout, 'layout')}")
    elif facts.cls in PLAIN and _ordinary(facts):
        if facts.dtype.is_floating_point or facts.dtype.is_complex:
            texts.append(f"not {v}.is_neg()")
        if facts.dtype.is_complex:
            texts.append(f"not {v}.is_conj()")
        if 0 not in facts.sizes:  # excludes zero tensors, opaque layouts and freed storage
            any_size = not all(isinstance(size, int) for size in facts.sizes)
            texts.append(f"({v}.data_ptr() or not {v}.numel())" if any_size else f"{v}.data_ptr()")
        return texts
    if facts.dispatch_keys is not None:
        texts.append(f"{constant(keys_of, 'keys_of')}({v}) == {constant(key_text(facts.dispatch_keys), 'keys')}")
    return texts


_UNUSUAL = "Conjugate Negative ZeroTensor Python Functorch FuncTorch Sparse Batched Functionalize Meta".split()


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
    cls: Any = facts.cls
    if type(v) is not cls:
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
    for k, (expected, actual) in enumerate(zip(facts.sizes, v.shape)):
        if expected is not None and expected != actual:
            return f"tensor {name!r} size mismatch at index {k}. expected {expected}, actual {actual}"
    if facts.layout is torch.strided and (found := _stride_mismatch(name, v, facts)):
        return found
    if facts.offset is not None and v.storage_offset() != facts.offset:
        return f"tensor {name!r} storage offset mismatch. expected {facts.offset}, actual {v.storage_offset()}"
    return f"tensor {name!r} has other dispatch keys: {keys_of(v)}"


def _stride_mismatch(name: str, v: Any, facts: TensorFacts) -> str:
    if facts.contiguous:
        return "" if v.is_contiguous() else f"tensor {name!r} is not contiguous. expected a contiguous one"
    for k, (step, actual) in enumerate(zip(facts.strides, v.stride())):
        expected = v.shape[step.inner] * v.stride(step.inner) if isinstance(step, Follows) else step
        if expected is not None and expected != actual:
            return f"tensor {name!r} stride mismatch at index {k}. expected {expected}, actual {actual}"
    return ""


def resized(v: Any, facts: TensorFacts) -> list[str]:
    """What would have to vary for the facts to hold: sizes, or else strides that follow from none. Empty if more."""
    cls: Any = facts.cls
    same = type(v) is cls and v.ndim == len(facts.sizes) and v.layout is facts.layout is torch.strided
    if not same or (v.dtype, v.device, v.requires_grad) != (facts.dtype, facts.device, facts.requires_grad):
        return []
    sizes = [k for k, size in enumerate(facts.sizes) if size is not None and v.shape[k] != size]
    if sizes:
        return [f"shape[{k}]" for k in sizes]
    return [f"stride()[{k}]" for k, step in enumerate(facts.strides) if isinstance(step, int) and v.stride(k) != step]


def other_kind(v: Any, facts: TensorFacts) -> bool:
    """Does it differ in what takes few values in one program? Sizes and strides may be others in each call."""
    if type(v) not in PLAIN or facts.cls not in PLAIN:
        return False
    expected = (facts.cls, facts.dtype, facts.device, facts.layout, len(facts.sizes), facts.requires_grad)
    return expected != (type(v), v.dtype, v.device, v.layout, v.ndim, v.requires_grad)
