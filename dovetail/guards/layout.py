"""Which machine words change when an object changes: found by experiment, never assumed.

A dictionary has a word that every store changes (its version, CPython 3.11 and 3.12), a tensor's implementation has
words for storage, sizes, strides, offset, dtype and dispatch keys. `discover` changes sample objects in every way that
guards care about and watches their memory. Where an experiment does not come out as expected (another CPython,
another PyTorch), there is no layout, and guards read the same facts through Python, more slowly.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

_WORD = 8
_DICT_WORDS = 6
_IMPL_WORDS = 23  # a TensorImpl is 22 words long or 23; malloc gives both as much
_META_WORDS = 20  # an AutogradMeta is longer
_STORAGE_WORDS = 8
MAX_RANK = 5  # sizes and strides of higher ranks lie outside the TensorImpl


@dataclass(frozen=True)
class Layout:
    """Byte offsets. `impl` is (first, words) of each run of words in a TensorImpl that say what the tensor is."""

    dict_version: int
    object_type: int
    tensor_impl: int
    impl: tuple[tuple[int, int], ...]
    impl_storage: int
    impl_meta: int
    meta_requires_grad: int
    storage_data: int


def words(address: int, count: int) -> tuple[int, ...]:
    """`count` machine words at `address`, which the caller knows to be readable."""
    return tuple((ctypes.c_uint64 * count).from_address(address))


@cache
def discover() -> Layout | None:
    """The layout of this process, or None where it is not as expected."""
    version, sample = _dict_version(), _Sample()
    with torch.inference_mode(False), torch.no_grad(), torch._C.DisableTorchFunction():  # whatever the program has on
        impl = _tensor_words()
    kind = _only(k for k, w in enumerate(words(id(sample), 2)) if w == id(_Sample))
    if version is None or impl is None or kind is None:
        return None
    return Layout(version, kind * _WORD, **impl)


def _only(found: Iterable[int]) -> int | None:
    """The one member, None if there are none or several."""
    every = list(found)
    return every[0] if len(every) == 1 else None


def _changed(address: int, count: int, change: Callable[[], Any]) -> set[int]:
    before = words(address, count)
    change()
    after = words(address, count)
    return {k for k in range(count) if before[k] != after[k]}


# ---------------------------------------------------------------- dictionaries


class _Sample:
    """An object like a module: attributes in an instance dictionary, some stored through `__setattr__`."""

    def __init__(self) -> None:
        self.a, self.b = 1000, 2000

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _store_often(obj: Any) -> None:
    for value in range(5000, 5100):  # enough for the interpreter to specialise the store
        obj.a = value


def _dict_changes() -> list[tuple[Any, Callable[[Any], Any]]]:
    plain: list[Callable[[Any], Any]] = [
        lambda d: d.__setitem__("a", 3000),
        lambda d: d.__setitem__("new", 3000),
        lambda d: d.update(a=3001),
        lambda d: d.pop("a"),
        lambda d: d.clear(),
    ]
    rows: list[tuple[Any, Callable[[Any], Any]]] = []
    for change in plain:
        for made in ({"a": 1, "b": 2}, OrderedDict(a=1, b=2), _Sample().__dict__):
            rows.append((made, change))
    for act in (_store_often, lambda obj: setattr(obj, "a", 7000), lambda obj: delattr(obj, "a")):
        obj = _Sample()
        rows.append((obj.__dict__, lambda d, obj=obj, act=act: act(obj)))  # type: ignore[misc]
    return rows


def _dict_version() -> int | None:
    common = set(range(2, _DICT_WORDS))
    for made, change in _dict_changes():
        common &= _changed(id(made), _DICT_WORDS, partial(change, made))
    sample = {"a": 1}
    common -= _changed(id(sample), _DICT_WORDS, lambda: (sample["a"], "a" in sample, list(sample), len(sample)))
    found = _only(common)
    return None if found is None else found * _WORD


# ---------------------------------------------------------------- tensors


def _sample() -> torch.Tensor:
    return torch.zeros(2, 3, 4, 5, 6, dtype=torch.float32, device="cpu")


def _set_data(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], Any]:
    return lambda t: setattr(t, "data", make(t.data))


#: Everything about a tensor that a guard may rely on, each changed alone.
_TENSOR_CHANGES: tuple[Callable[[torch.Tensor], Any], ...] = (
    _set_data(torch.clone),
    _set_data(lambda d: d.new_zeros(7, 8, 9, 10, 11)),
    _set_data(lambda d: d.new_zeros(7)),
    _set_data(lambda d: d.permute(4, 3, 2, 1, 0)),
    _set_data(lambda d: d[1:]),
    _set_data(lambda d: d.view(torch.int32)),
    _set_data(lambda d: d.double()),
    _set_data(torch._neg_view),
    lambda t: t.resize_(3, 3),
    lambda t: t.set_(t.new_ones(2)),
)


def _tensor_words() -> dict[str, Any] | None:
    sample = _sample()
    storage = sample.untyped_storage()._cdata
    pointer = _only(k for k, w in enumerate(words(id(sample), 6)) if w == sample._cdata)
    held = _only(k for k, w in enumerate(words(sample._cdata, _IMPL_WORDS)) if w == storage)
    data = [k for k, w in enumerate(words(storage, _STORAGE_WORDS)) if w == sample.data_ptr()]
    grad = _requires_grad_words()
    if pointer is None or held is None or not data or grad is None:
        return None
    watched = {held}
    for change in _TENSOR_CHANGES:
        t = _sample()
        changed = _changed(t._cdata, _IMPL_WORDS, partial(change, t))
        if not changed:
            return None
        watched |= changed
    for act in (lambda t: t.mul_(2), lambda t: setattr(t, "note", 1), lambda t: t.numpy(), lambda t: t.clone()):
        t = _sample()
        if watched & _changed(t._cdata, _IMPL_WORDS, partial(act, t)):
            return None
    return {
        "tensor_impl": pointer * _WORD, "impl": _runs(watched | {grad[0]}), "impl_storage": held * _WORD,
        "impl_meta": grad[0] * _WORD, "meta_requires_grad": grad[1] * _WORD, "storage_data": data[0] * _WORD,
    }  # fmt: skip


def _requires_grad_words() -> tuple[int, int] | None:
    """Where the autograd data hangs in a TensorImpl (null at first), and the word in it that requires_grad changes."""
    t, other = _sample(), _sample()
    meta = _only(_changed(t._cdata, _IMPL_WORDS, lambda: t.requires_grad_(True)))
    if meta is None:
        return None
    address = words(t._cdata, _IMPL_WORDS)[meta]
    flag = _only(_changed(address, _META_WORDS, lambda: t.requires_grad_(False)))
    if flag is None or _changed(address, _META_WORDS, lambda: t.requires_grad_(True)) != {flag}:
        return None
    kept = words(t._cdata, _IMPL_WORDS)[meta] == address and not words(other._cdata, _IMPL_WORDS)[meta]
    return (meta, flag) if kept else None


def _runs(found: set[int]) -> tuple[tuple[int, int], ...]:
    """Neighbouring words as (byte offset, count)."""
    runs: list[list[int]] = []
    for k in sorted(found):
        if runs and runs[-1][0] + runs[-1][1] == k:
            runs[-1][1] += 1
        else:
            runs.append([k, 1])
    return tuple((first * _WORD, count) for first, count in runs)
